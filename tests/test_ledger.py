"""The ledger: its schema and durability, one writer that groups commits, and what happens on a full disk."""

import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import func, insert, select

from models.errors import Duplicate, StoreUnavailable
from models.scope import Partition
from stores.ledger import Ledger
from stores.schema import events, metadata, settings
from stores.writer import Committed, Transaction
from tests.serving import Api, Server, refused, server

HOME = Partition("default", "a", "u")
WAIT = 60  # seconds; nothing here takes them


class Clock:
    """Epoch ms, set by the test."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Published(list[int]):
    """Resolves what was committed, as the event loop would; keeps the sizes of the groups."""

    def __call__(self, committed: list[Committed]) -> None:
        self.append(len(committed))
        for write in committed:
            write.future.set_result(write.value)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def published() -> Published:
    return Published()


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock, published: Published) -> Iterator[Ledger]:
    opened = Ledger(tmp_path / "ledger.sqlite3", clock, published)
    opened.open()
    yield opened
    opened.stop_writing()
    opened.close()


def put(name: str, refusal: Exception | None = None) -> Callable[[Transaction], str]:
    """A write that stores a setting, and then thinks better of it if there is a refusal."""

    def write(transaction: Transaction) -> str:
        transaction.connection.execute(insert(settings).values(name=name, value="x"))
        if refusal is not None:
            raise refusal
        return name

    return write


def as_one_group(ledger: Ledger, writes: list[Callable[[Transaction], Any]]) -> list["Future[Any]"]:
    """Queue writes while the writer is held up, so that they share a commit."""
    held, go = threading.Event(), threading.Event()

    def hold(_: Transaction) -> None:
        held.set()
        assert go.wait(WAIT)

    first = ledger.submit(hold)
    assert held.wait(WAIT)
    futures = [ledger.submit(write) for write in writes]
    go.set()
    first.result(WAIT)
    return futures


def test_the_migrations_make_exactly_the_tables_of_the_schema(ledger: Ledger) -> None:
    with ledger.snapshot() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() is not None


def test_migrating_twice_changes_nothing(ledger: Ledger, tmp_path: Path, clock: Clock) -> None:
    ledger.put_setting("kept", "yes").result(WAIT)
    again = Ledger(tmp_path / "ledger.sqlite3", clock, Published())
    again.open()
    assert again.setting("kept") == "yes"
    again.stop_writing()
    again.close()


@pytest.mark.parametrize(("pragma", "value"), [
    ("journal_mode", "wal"), ("synchronous", 2), ("secure_delete", 1), ("foreign_keys", 1),
    ("busy_timeout", 5000),
])  # fmt: skip
def test_who_reads_and_who_writes_have_the_pragmas_that_durability_needs(
    ledger: Ledger, pragma: str, value: Any
) -> None:
    def read(transaction: Transaction) -> Any:
        return transaction.connection.exec_driver_sql(f"PRAGMA {pragma}").scalar()

    with ledger.snapshot() as connection:
        assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value
    assert ledger.submit(read).result(WAIT) == value


def test_waiting_writes_share_one_commit(ledger: Ledger, published: Published) -> None:
    futures = as_one_group(ledger, [put(str(number)) for number in range(20)])
    assert [future.result(WAIT) for future in futures] == [str(number) for number in range(20)]
    assert published == [1, 20]


@pytest.mark.parametrize("refusal", [Duplicate("no"), ValueError("a bug")], ids=repr)
def test_a_refused_write_of_a_group_undoes_nothing_but_itself(
    ledger: Ledger, published: Published, refusal: Exception
) -> None:
    good, bad, last = as_one_group(ledger, [put("good"), put("bad", refusal), put("last")])
    assert (good.result(WAIT), last.result(WAIT)) == ("good", "last")
    assert bad.exception(WAIT) is refusal
    assert [ledger.setting(name) for name in ("good", "bad", "last")] == ["x", None, "x"]
    assert published == [1, 2]


def test_a_fault_of_the_database_refuses_the_whole_group_and_nobody_waits_for_ever(ledger: Ledger) -> None:
    def fault(transaction: Transaction) -> None:
        transaction.connection.exec_driver_sql("SELECT * FROM nowhere")

    refusal = Duplicate("no")
    writes = [put("before"), put("refused", refusal), fault, put("after"), put("last")]
    before, judged, *others = as_one_group(ledger, writes)
    assert judged.exception(WAIT) is refusal
    for future in (before, *others):
        error = future.exception(WAIT)
        assert isinstance(error, StoreUnavailable) and error.retry_after
        assert "nowhere" in error.detail and "SELECT" not in error.detail
    assert [ledger.setting(name) for name in ("before", "after", "last")] == [None] * 3
    assert ledger.submit(put("later")).result(WAIT) == "later"


def test_a_write_that_nobody_waits_for_any_more_is_not_begun(ledger: Ledger) -> None:
    held, go = threading.Event(), threading.Event()
    ledger.submit(lambda _: held.set() or go.wait(WAIT))
    assert held.wait(WAIT)
    futures = [ledger.submit(put("given up")), ledger.submit(put("kept"))]
    assert futures[0].cancel()
    go.set()
    assert futures[1].result(WAIT) == "kept"
    assert ledger.setting("given up") is None


def test_a_reader_keeps_its_snapshot_while_others_write(ledger: Ledger) -> None:
    count = select(func.count()).select_from(settings)
    with ledger.snapshot() as connection:
        before = connection.scalar(count)
        ledger.submit(put("meanwhile")).result(WAIT)
        assert connection.scalar(count) == before
    with ledger.snapshot() as connection:
        assert connection.scalar(count) == before + 1


def test_time_never_goes_back_for_the_ledger(ledger: Ledger, clock: Clock, tmp_path: Path) -> None:
    def happen(transaction: Transaction) -> int:
        transaction.event("test", HOME, None, key_id=None, request_id="r")
        return transaction.now

    start = clock.now
    assert ledger.submit(happen).result(WAIT) == start
    clock.now = start - 3_600_000
    assert ledger.submit(happen).result(WAIT) == start
    again = Ledger(tmp_path / "ledger.sqlite3", clock, Published())
    again.open()
    assert again.submit(happen).result(WAIT) == start
    clock.now = start + 1
    assert again.submit(happen).result(WAIT) == start + 1
    with again.snapshot() as connection:
        rows = connection.execute(select(events.c.seq, events.c.at).order_by(events.c.seq)).all()
    assert rows == sorted(rows) and len({seq for seq, _ in rows}) == 4
    again.stop_writing()
    again.close()


def test_a_file_that_is_no_ledger_is_refused_at_the_start(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "ledger.sqlite3"
    path.write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreUnavailable):
        Ledger(path, clock, Published()).open()
    assert path.read_bytes() == b"not a database" * 1000


# Through the door


def test_memories_are_never_dated_before_those_that_were_written_first(tmp_path: Path) -> None:
    clock = Clock()
    with server(tmp_path, clock=clock) as running:
        first = running.api.add("first")["memory"]
        clock.now -= 86_400_000
        second = running.api.add("second")["memory"]
        assert first["gmt_created"] == second["gmt_created"] == clock.now + 86_400_000
        listed = running.api.list(order="oldest")["memories"]
        assert [memory["content"] for memory in listed] == ["first", "second"]
    with server(tmp_path, clock=clock) as running:
        assert running.api.add("third")["memory"]["gmt_created"] == first["gmt_created"]


def rows_of(directory: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(directory / "ledger.sqlite3")) as connection:
        return connection.execute(f"SELECT * FROM {table}").fetchall()


def test_events_and_idempotency_rows_hold_no_text_and_the_directory_is_private(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with server(directory) as running:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        secret = {"metadata": {"xyzzy": "xyzzy"}, "tags": ["xyzzy"], "session_id": "xyzzy"}
        running.api.add("xyzzy", idempotency_key="k", **secret)
        running.api.add("XYZZY", tags=["xyzzy2"])
        items = [
            {"content": "xyzzy again"},
            {"content": "xyzzy", "layer": "xyzzy"},
            {"content": 0, "tags": "xyzzy"},
        ]
        running.api.batch(items, idempotency_key="b")
        running.settle()
    kept = rows_of(directory, "events") + rows_of(directory, "idempotency") + rows_of(directory, "outbox")
    assert len(kept) >= 5
    assert "xyzzy" not in str(kept).lower()


def limit_pages(running: Server, pages: int | None) -> None:
    """Let the ledger's file grow to so many pages more and no further; None: as it likes."""

    def write(transaction: Transaction) -> None:
        used = transaction.connection.exec_driver_sql("PRAGMA page_count").scalar()
        most = 2**32 - 2 if pages is None else used + pages
        transaction.connection.exec_driver_sql(f"PRAGMA max_page_count = {most}")

    running.portal.call(running.brain.write, write)


def fill(api: Api) -> list[str]:
    """Add until the disk is full; the ids of what was acknowledged."""
    ids: list[str] = []
    for number in range(1000):
        answer = api.try_add(f"Number {number}. " + "x" * 8_000)
        if answer.status_code != 201:
            problem = refused(answer, 503, "store_unavailable")
            assert answer.headers["retry-after"] == "1" and problem["retryable"]
            assert "full" in problem["detail"] and "xxx" not in problem["detail"]
            return ids
        ids += answer.json()["memory_ids"]
    raise AssertionError("the disk was never full")


def test_on_a_full_disk_writes_are_refused_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        api = running.api
        running.settle()
        limit_pages(running, 40)
        ids = fill(api)
        items = [{"content": "y" * 60_000}, {"content": "z" * 60_000}]
        refused(api.post("/brain/memory/batch", {"items": items}), 503, "store_unavailable")
        assert ids and api.stats()["total"] == len(ids)
        assert all(api.memory(id)["memory_id"] == id for id in ids)
        assert api.search("Number 0")["results"][0]["memory_id"] == ids[0]
        assert api.get("/healthz").status_code == 200
        limit_pages(running, None)
        ids += api.add("After it.")["memory_ids"]
        ids += [id for result in api.batch(items)["results"] for id in result["memory_ids"]]
        running.settle()
    with server(tmp_path) as running:
        assert running.api.stats()["total"] == len(ids)
        assert all(running.api.memory(id)["status"] == "active" for id in ids)
