"""Faults inside the write path: whoever submitted a write gets an answer, and the next write works."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError, OperationalError

from models.errors import StoreUnavailable
from stores.ledger import Ledger
from stores.publisher import Publisher
from stores.schema import settings
from stores.writer import Committed, Transaction
from tests.state.brains import Clock

pytestmark = pytest.mark.anyio
PATIENCE_S = 60  # only how long a broken writer may hang the tests


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def acknowledge(committed: list[Committed]) -> None:
    for write in committed:
        write.future.set_result(write.value)


class Group:
    """A ledger whose first write waits, so that all that is submitted meanwhile shares the next commit."""

    def __init__(self, path: Path, publish: Any = acknowledge, clock: Any = None) -> None:
        self.ledger = Ledger(path, clock or Clock(), publish)
        self.go = threading.Event()

    def start(self) -> None:
        self.ledger.open()
        begun = threading.Event()

        def hold(_: Transaction) -> None:
            begun.set()
            self.go.wait(PATIENCE_S)

        self.first = self.ledger.submit(hold)
        assert begun.wait(PATIENCE_S)

    def close(self) -> None:
        self.go.set()
        self.ledger.stop_writing()
        self.ledger.close()

    def together(self, *writes: Any) -> list["Future[Any]"]:
        futures = [self.ledger.submit(write) for write in writes]
        self.go.set()
        assert not wait([self.first, *futures], PATIENCE_S).not_done, "somebody waits for ever"
        return futures


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path / "l.sqlite3")
    made.start()
    yield made
    made.close()


def disk_is_full(_: Transaction) -> None:
    raise OperationalError("INSERT", {}, Exception("database or disk is full"))


def put(name: str) -> Any:
    return lambda t: t.connection.execute(insert(settings).values(name=name, value="v")).rowcount


def test_a_fault_of_the_database_answers_the_whole_group_also_those_behind_it(group: Group) -> None:
    futures = group.together(put("before"), disk_is_full, put("behind"), put("last"))
    for future in futures:
        with pytest.raises(StoreUnavailable, match="disk is full"):
            future.result()
    [again] = group.together(put("before"))
    assert again.result() == 1


def test_a_broken_constraint_is_the_answer_to_its_own_write_only(group: Group) -> None:
    first, twice, other = group.together(put("x"), put("x"), put("y"))
    with pytest.raises(IntegrityError):
        twice.result()
    assert (first.result(), other.result()) == (1, 1)


def test_a_write_that_was_cancelled_in_the_queue_is_not_done(group: Group) -> None:
    cancelled = group.ledger.submit(put("x"))
    assert cancelled.cancel()
    [again] = group.together(put("x"))
    assert again.result() == 1


def test_a_clock_that_fails_refuses_the_writes_and_the_thread_lives(tmp_path: Path) -> None:
    times: list[Any] = [1, None, 3]

    def clock() -> int:
        return max(0, times.pop(0))

    group = Group(tmp_path / "l.sqlite3", clock=clock)
    group.start()
    [refused] = group.together(put("x"))
    with pytest.raises(StoreUnavailable):
        refused.result()
    [done] = group.together(put("x"))
    assert done.result() == 1
    group.close()


def test_a_publisher_that_is_gone_does_not_hide_that_the_write_is_on_disk(tmp_path: Path) -> None:
    def gone(_: list[Committed]) -> None:
        raise RuntimeError("Event loop is closed")

    group = Group(tmp_path / "l.sqlite3", gone)
    group.start()
    [done] = group.together(put("x"))
    assert done.result() == 1
    group.close()


def test_a_write_after_the_close_is_refused(group: Group) -> None:
    group.go.set()
    group.ledger.stop_writing()
    with pytest.raises(StoreUnavailable, match="closed"):
        group.ledger.submit(put("x")).result(PATIENCE_S)


def test_writes_submitted_while_closing_are_done_or_refused_and_never_left(group: Group) -> None:
    futures: list[Future[Any]] = []
    closing = threading.Thread(target=group.ledger.stop_writing)
    for number in range(50):
        futures.append(group.ledger.submit(put(f"{number}")))
        if number == 20:
            closing.start()
            group.go.set()
    closing.join(PATIENCE_S)
    assert not wait(futures, PATIENCE_S).not_done
    outcomes = [future.exception() is None for future in futures]
    assert outcomes == sorted(outcomes, reverse=True)  # first those that were done, then the refused
    assert all(outcomes[:20])


def test_closing_twice_or_before_the_start_is_harmless(tmp_path: Path) -> None:
    group = Group(tmp_path / "l.sqlite3")
    early = group.ledger.submit(put("x"))
    group.ledger.stop_writing()
    group.ledger.stop_writing()
    with pytest.raises(StoreUnavailable):
        early.result(PATIENCE_S)


# The publisher


def committed(*changes: Any) -> Committed:
    future: Future[Any] = Future()
    assert future.set_running_or_notify_cancel()
    return Committed(future, "done", list(changes))


async def test_changes_are_applied_in_order_and_only_then_is_the_write_acknowledged() -> None:
    applied: list[int] = []
    seen: list[tuple[int, int]] = []
    publisher = Publisher(applied.append, lambda: None)  # type: ignore[arg-type]
    publisher.start()
    writes = [committed(*range(start, start + 5)) for start in range(0, 50, 5)]
    for number, write in enumerate(writes):
        write.future.add_done_callback(lambda _, n=number: seen.append((n, len(applied))))
    publisher(writes[:4])
    publisher(writes[4:])
    await asyncio.gather(*(asyncio.wrap_future(write.future) for write in writes))
    assert applied == list(range(50))
    assert seen == [(number, 5 * (number + 1)) for number in range(10)]
    await publisher.close()


async def test_a_long_write_lets_others_have_the_loop_between_its_slices() -> None:
    applied: list[int] = []
    turns: list[int] = []
    publisher = Publisher(applied.append, lambda: None)  # type: ignore[arg-type]
    publisher.start()
    write = committed(*range(100))
    publisher([write])
    while not write.future.done():
        turns.append(len(applied))
        await asyncio.sleep(0)
    assert max(after - before for before, after in itertools.pairwise(turns)) <= 8
    await publisher.close()


async def test_a_change_that_cannot_be_applied_holds_nobody_up() -> None:
    def apply(change: Any) -> None:
        if change == "broken":
            raise ValueError("no such shape")

    publisher = Publisher(apply, lambda: None)
    publisher.start()
    writes = [committed("broken"), committed("good")]
    publisher(writes)
    async with asyncio.timeout(PATIENCE_S):
        for write in writes:
            assert await asyncio.wrap_future(write.future) == "done"
        await publisher.close()
