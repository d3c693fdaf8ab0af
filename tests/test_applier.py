"""The applier: whatever fails, the outbox drains in the end, and nothing is lost or held up."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from models.embedder import EncodeFailed
from service.brain import Brain
from stores.inserts import requeue
from stores.vdb import VdbRow
from stores.vdb_rows import record_from
from tests.equivalence import check
from tests.state.brains import (
    Clock,
    SwitchEncoder,
    SwitchVdb,
    add,
    call,
    caller,
    drained,
    make_brain,
    model_ready,
    running,
    search,
)

pytestmark = pytest.mark.anyio
ME = caller("me")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def until(condition: Callable[[], bool]) -> None:
    """Give the brain turns on the loop until the condition holds."""
    while not condition():  # noqa: ASYNC110 - there is no event for what the tests look at
        await asyncio.sleep(0)


def indexed(vdb: SwitchVdb) -> set[str]:
    return {memory_id for rows in vdb.shards.values() for memory_id in rows}


def parked(brain: Brain) -> dict[str, str | None]:
    return dict(brain.applier.parked())


async def add_many(brain: Brain, count: int, word: str = "number", who: Any = ME) -> list[str]:
    items = [{"content": f"{word} {n}", "session_id": "s"} for n in range(count)]
    _, body = await call(brain, "brain_memory_add_batch", who, items=items)
    return [result["memory_ids"][0] for result in body["results"]]


# Chroma


async def test_a_row_that_chroma_refuses_is_parked_and_named_and_holds_nobody_up(tmp_path: Path) -> None:
    vdb = SwitchVdb()
    async with running(tmp_path, vdb=vdb) as brain:
        await model_ready(brain)
        vdb.hangs(True)  # so that all of them share a batch
        ids = await add_many(brain, 60)
        vdb.poison = {ids[7]}
        vdb.hangs(False)
        await drained(brain)
        assert parked(brain) == {ids[7]: "a row is broken"}
        assert indexed(vdb) == set(ids) - {ids[7]}
        assert vdb.puts.count([ids[7]]) == 6
        last_of_the_others = max(n for n, put in enumerate(vdb.puts) if ids[7] not in put)
        assert last_of_the_others < len(vdb.puts) - 4, "the others waited for the poison row"
        later = await add(brain, ME, "after the poison")
        await drained(brain)
        assert (later in indexed(vdb), brain.applier.last_error) == (True, None)


async def test_what_is_written_one_at_a_time_goes_to_chroma_together(tmp_path: Path) -> None:
    vdb, clock = SwitchVdb(), Clock()
    gathering, over = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        if not over.is_set():
            gathering.set()
            await over.wait()
        await Clock.sleep(clock, seconds)

    clock.sleep = sleep  # type: ignore[method-assign]
    async with running(tmp_path, vdb=vdb, clock=clock, gather_ms=500) as brain:
        await model_ready(brain)
        await gathering.wait()
        ids = [await add(brain, ME, f"one by one {n}") for n in range(5)]
        assert indexed(vdb) == set()
        over.set()
        await drained(brain)
        assert indexed(vdb) == set(ids)
        assert [set(put) for put in vdb.puts] == [set(ids)]


async def test_parked_rows_are_tried_again_at_the_next_start(tmp_path: Path) -> None:
    vdb = SwitchVdb()
    async with running(tmp_path, vdb=vdb) as brain:
        await model_ready(brain)
        vdb.hangs(True)
        ids = await add_many(brain, 3)
        vdb.poison = {ids[1]}
        vdb.hangs(False)
        await drained(brain)
        assert set(parked(brain)) == {ids[1]}
    again = SwitchVdb(vdb._shards)
    async with running(tmp_path, vdb=again) as brain:
        await model_ready(brain)
        await drained(brain)
        assert (parked(brain), indexed(again)) == ({}, set(ids))
        await check(brain)


async def test_an_outage_parks_nothing_is_retried_ever_more_slowly_and_drains_afterwards(
    tmp_path: Path,
) -> None:
    vdb, clock = SwitchVdb(fail=True), Clock()
    over = asyncio.Event()

    async def sleep(seconds: float) -> None:
        await Clock.sleep(clock, seconds)
        if len(clock.slept) == 40:
            vdb.fail = False
        if len(clock.slept) >= 40:
            over.set()

    clock.sleep = sleep  # type: ignore[method-assign]
    async with running(tmp_path, vdb=vdb, clock=clock) as brain:
        await model_ready(brain)
        ids = await add_many(brain, 30)
        await over.wait()
        await drained(brain)
        assert (parked(brain), indexed(vdb)) == ({}, set(ids))
        assert brain.applier.last_error is None
        pauses = [round(seconds, 1) for seconds in clock.slept[:10]]
        assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
        assert max(clock.slept) <= 30
        await check(brain)


async def test_a_broken_shard_does_not_hold_up_the_others(tmp_path: Path) -> None:
    vdb = SwitchVdb()
    other = caller("me", agent="another")
    async with running(tmp_path, vdb=vdb) as brain:
        await model_ready(brain)
        mine = await add(brain, ME, "mine")
        await drained(brain)
        [shard] = vdb.shards
        vdb.broken = {shard}
        behind = await add(brain, ME, "stays behind")
        theirs = await add(brain, other, "theirs")
        assert len({shard, *vdb.shards}) == 1
        await until(lambda: theirs in indexed(vdb))
        assert behind not in indexed(vdb)
        assert brain.applier.last_error == "the shard is broken"
        vdb.broken = set()
        await drained(brain)
        assert indexed(vdb) == {mine, behind, theirs}


async def test_a_chroma_that_hangs_delays_no_write_and_no_read(tmp_path: Path) -> None:
    vdb = SwitchVdb(hang=True)
    async with running(tmp_path, vdb=vdb) as brain:
        await model_ready(brain)
        ids = await add_many(brain, 30)
        assert await search(brain, ME, "number 29", limit=1) == [ids[29]]
        assert brain.applier.lag() == 30
        vdb.hangs(False)
        await drained(brain)
        assert indexed(vdb) == set(ids)


async def test_a_write_that_arrives_while_its_older_state_is_applied_is_not_lost(tmp_path: Path) -> None:
    class SlowVdb(SwitchVdb):
        async def put(self, shard: str, rows: Sequence[VdbRow], **within: float) -> None:
            begun.set()
            await go_on.wait()
            await super().put(shard, rows, **within)

    begun, go_on = asyncio.Event(), asyncio.Event()
    vdb = SlowVdb()
    async with running(tmp_path, vdb=vdb) as brain:
        await model_ready(brain)
        memory_id = await add(brain, ME, "the same", tags=["old"])
        await begun.wait()
        assert await add(brain, ME, "the same", tags=["new"]) == memory_id
        go_on.set()
        await drained(brain)
        [rows] = vdb.shards.values()
        stored = record_from(rows[memory_id].record)
        assert stored is not None
        assert (stored.version, stored.state.tags) == (2, ("old", "new"))
        assert vdb.puts == [[memory_id], [memory_id]]
        await check(brain)


async def test_applying_everything_again_changes_nothing(tmp_path: Path) -> None:
    vdb = SwitchVdb()
    async with running(tmp_path, vdb=vdb) as brain:
        await model_ready(brain)
        ids = await add_many(brain, 10)
        await drained(brain)
        before = {shard: {id: row.record for id, row in rows.items()} for shard, rows in vdb.shards.items()}

        def again(transaction: Any) -> None:
            for memory in found:
                requeue(transaction, memory, "index", memory.seq)
                requeue(transaction, memory, "embed", memory.seq)

        found = [memory for id in ids if (memory := brain.ledger.find(id))]
        await brain.write(again)
        await drained(brain)
        assert (parked(brain), brain.applier.last_error) == ({}, None)
        after = {shard: {id: row.record for id, row in rows.items()} for shard, rows in vdb.shards.items()}
        assert after == before
        await check(brain)


async def test_an_embedding_whose_task_was_replaced_meanwhile_does_not_count(tmp_path: Path) -> None:
    vdb, encoder = SwitchVdb(), SwitchEncoder(fail=True)
    async with running(tmp_path, vdb=vdb, load=lambda: encoder) as brain:
        with pytest.raises(EncodeFailed):
            await asyncio.wrap_future(brain.embedder.embed_query("loads the model"))
        memory_id = await add(brain, ME, "later")
        memory = brain.ledger.find(memory_id)
        assert memory is not None
        await brain.write(lambda t: requeue(t, memory, "embed", memory.seq + 1))
        encoder.fail = False
        await drained(brain)
        assert indexed(vdb) == {memory_id}
        await check(brain)


# The embedder


async def test_vectors_that_are_missing_follow_when_the_model_has_loaded(tmp_path: Path) -> None:
    loaded = threading.Event()

    def load() -> SwitchEncoder:
        loaded.wait(120)
        return SwitchEncoder()

    vdb = SwitchVdb()
    async with running(tmp_path, vdb=vdb, load=load) as brain:
        status, body = await call(brain, "brain_memory_add", ME, content="before the model")
        assert (status, body["indexed"]) == (201, False)
        assert await search(brain, ME, "before the model") == body["memory_ids"]
        await brain.applier.drained()
        assert indexed(vdb) == set()
        loaded.set()
        await model_ready(brain)
        await drained(brain)
        assert indexed(vdb) == set(body["memory_ids"])
        await check(brain)


async def test_vectors_follow_when_the_encoder_recovers_and_no_text_is_blamed_for_an_outage(
    tmp_path: Path,
) -> None:
    encoder, clock, vdb = SwitchEncoder(), Clock(), SwitchVdb()
    async with running(tmp_path, vdb=vdb, load=lambda: encoder, clock=clock) as brain:
        await model_ready(brain)
        encoder.fail = True
        ids = await add_many(brain, 30)
        await until(lambda: sum(clock.slept) >= 600)
        assert (parked(brain), indexed(vdb)) == ({}, set())
        assert await search(brain, ME, "number 29", limit=1) == [ids[29]]
        encoder.fail = False
        await drained(brain)
        assert (parked(brain), indexed(vdb)) == ({}, set(ids))
        await check(brain)


async def test_a_text_that_can_never_be_embedded_is_parked_and_found_by_its_words(tmp_path: Path) -> None:
    vdb = SwitchVdb()
    async with running(tmp_path, vdb=vdb, load=lambda: SwitchEncoder(poison=["arsenic"])) as brain:
        await model_ready(brain)
        good = await add_many(brain, 5)
        bad = await add(brain, ME, "old lace and arsenic")
        await drained(brain)
        assert set(parked(brain)) == {bad}
        assert indexed(vdb) == set(good)
        assert await search(brain, ME, "lace", limit=1) == [bad]


# The ledger


async def test_the_applier_outlives_a_ledger_that_cannot_be_read(tmp_path: Path) -> None:
    vdb = SwitchVdb()
    clock = Clock()
    async with running(tmp_path, vdb=vdb, clock=clock) as brain:
        await model_ready(brain)
        await brain.write(lambda t: t.connection.exec_driver_sql("ALTER TABLE outbox RENAME TO away"))
        brain.applier.wake()
        await until(lambda: len(clock.slept) >= 3)
        assert brain.applier.last_error is not None
        await brain.write(lambda t: t.connection.exec_driver_sql("ALTER TABLE away RENAME TO outbox"))
        memory_id = await add(brain, ME, "after the fault")
        await drained(brain)
        assert indexed(vdb) == {memory_id}
        assert brain.applier.last_error is None


async def test_a_close_that_meets_the_end_of_a_hang_ends(tmp_path: Path) -> None:
    vdb = SwitchVdb(hang=True)
    brain = make_brain(tmp_path, vdb=vdb)
    await brain.start()
    await model_ready(brain)
    await add(brain, ME, "one")
    await until(lambda: bool(vdb.puts))
    vdb.hangs(False)  # its wait is over in the same turn in which it is cancelled
    async with asyncio.timeout(60):
        await brain.close()
