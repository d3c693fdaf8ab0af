"""Partitions in memory: in step with the ledger whatever comes between, and gone when they are evicted."""

import asyncio
import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from models.errors import StoreUnavailable
from models.scope import Partition
from service.brain import Brain
from stores.changes import Change
from stores.ledger import Ledger
from stores.loading import StoredPartition
from stores.residents import Residents
from tests.equivalence import check
from tests.state.brains import add, call, caller, drained, model_ready, running, search

pytestmark = pytest.mark.anyio
ME = caller("me")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class GatedLedger:
    """A ledger whose loads stop before or after their snapshot until they are told to go on."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.loads: list[Partition] = []
        self.fault: Exception | None = None
        self.loading, self.taken = threading.Event(), threading.Event()
        self.before, self.after = threading.Event(), threading.Event()
        self.before.set()
        self.after.set()

    def load(self, partition: Partition, fingerprint: str | None) -> StoredPartition:
        self.loads.append(partition)
        self.loading.set()
        assert self.before.wait(20)
        if self.fault is not None:
            raise self.fault
        stored = self._ledger.load(partition, fingerprint)
        self.taken.set()
        assert self.after.wait(20)
        return stored


def residents_of(brain: Brain, budget: int = 1 << 40) -> tuple[Residents, GatedLedger]:
    """Residents of their own over a brain's ledger: what they are told is up to the test."""
    gated = GatedLedger(brain.ledger)
    return Residents(gated, brain.meaning.fingerprint, budget), gated  # type: ignore[arg-type]


def change_of(brain: Brain, memory_id: str, **fields: Any) -> Change:
    memory = brain.ledger.find(memory_id)
    assert memory is not None
    vectors = brain.ledger.document_vectors([memory_id], brain.meaning.fingerprint() or "")
    return Change(memory, fields.get("terms", ("one",)), vectors.get(memory_id))


async def happened(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 20)


@pytest.mark.parametrize("gate", ["before", "after"])
async def test_what_is_published_while_a_partition_loads_is_there_once(tmp_path: Path, gate: str) -> None:
    async with running(tmp_path) as brain:
        await model_ready(brain)
        first = await add(brain, ME, "one")
        residents, gated = residents_of(brain)
        getattr(gated, gate).clear()
        load = asyncio.create_task(residents.load(ME.home))
        await happened(gated.loading if gate == "before" else gated.taken)
        second = await add(brain, ME, "one more")
        residents.publish(change_of(brain, second))
        residents.publish(change_of(brain, second))
        getattr(gated, gate).set()
        resident = await load
        assert sorted(resident.memory_ids()) == sorted([first, second])
        snapshot = resident.snapshot(["one"])
        assert [memory.memory_id for memory in snapshot.rows] == [first, second]
        assert snapshot.owners.tolist() == [0, 1]
        assert residents.memory(second) == brain.ledger.find(second)
        await residents.close()


async def test_a_change_that_says_too_little_makes_the_load_begin_again(tmp_path: Path) -> None:
    async with running(tmp_path) as brain:
        residents, gated = residents_of(brain)
        gated.after.clear()
        load = asyncio.create_task(residents.load(ME.home))
        await happened(gated.taken)
        memory_id = await add(brain, ME, "one")
        residents.publish(change_of(brain, memory_id, terms=None))
        gated.after.set()
        resident = await load
        assert list(resident.memory_ids()) == [memory_id]
        assert residents.memory(memory_id) is not None
        await residents.close()


async def test_a_resident_that_cannot_follow_is_let_go_and_loaded_anew(tmp_path: Path) -> None:
    async with running(tmp_path) as brain:
        residents, _ = residents_of(brain)
        first = await add(brain, ME, "one")
        await residents.load(ME.home)
        second = await add(brain, ME, "two")
        residents.publish(change_of(brain, second, terms=None))
        assert (len(residents), residents.memory(first)) == (0, None)
        resident = await residents.load(ME.home)
        assert list(resident.memory_ids()) == [first, second]
        await residents.close()


async def test_loads_of_one_partition_at_the_same_time_are_one(tmp_path: Path) -> None:
    async with running(tmp_path) as brain:
        await model_ready(
            brain
        )  # else its fingerprint may come in between, and the partition is loaded again
        await add(brain, ME, "one")
        residents, gated = residents_of(brain)
        gated.before.clear()
        residents.load_soon(ME.home)
        loads = [asyncio.create_task(residents.load(ME.home)) for _ in range(5)]
        await happened(gated.loading)
        gated.before.set()
        assert len({id(resident) for resident in await asyncio.gather(*loads)}) == 1
        residents.load_soon(ME.home)
        await residents.load(ME.home)
        assert gated.loads == [ME.home]
        await residents.close()


async def test_a_caller_who_goes_away_does_not_end_the_load_for_others(tmp_path: Path) -> None:
    async with running(tmp_path) as brain:
        memory_id = await add(brain, ME, "one")
        residents, gated = residents_of(brain)
        gated.before.clear()
        leaving = asyncio.create_task(residents.load(ME.home))
        staying = asyncio.create_task(residents.load(ME.home))
        await happened(gated.loading)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        gated.before.set()
        assert list((await staying).memory_ids()) == [memory_id]
        await residents.close()


async def test_a_load_that_fails_tells_those_who_wait_and_the_next_one_tries_again(tmp_path: Path) -> None:
    async with running(tmp_path) as brain:
        memory_id = await add(brain, ME, "one")
        residents, gated = residents_of(brain)
        gated.fault = StoreUnavailable("no disk")
        for load in [asyncio.create_task(residents.load(ME.home)) for _ in range(2)]:
            with pytest.raises(StoreUnavailable, match="no disk"):
                await load
        residents.load_soon(ME.home)
        gated.fault = None
        with pytest.raises(StoreUnavailable):  # joins the one that had begun, or
            await residents.load(ME.home)
            raise StoreUnavailable("begun after the fault was over")
        assert list((await residents.load(ME.home)).memory_ids()) == [memory_id]
        await residents.close()


async def test_the_least_recently_used_leave_when_the_budget_is_spent(tmp_path: Path) -> None:
    users = [caller(name) for name in "abcd"]
    async with running(tmp_path) as brain:
        await model_ready(brain)
        ids = [await add(brain, user, "text " * 200) for user in users]
        one = (await brain.residents.load(users[0].home)).size_bytes
        residents, _ = residents_of(brain, budget=round(3.5 * one))
        for user in users[:3]:
            await residents.load(user.home)
        assert residents.memory(ids[0]) is not None  # a use: now b is the oldest
        await residents.load(users[3].home)
        assert [residents.memory(memory_id) is not None for memory_id in ids] == [True, False, True, True]
        assert residents.size_bytes <= 3.5 * one
        await residents.close()


async def test_a_partition_over_the_budget_stays_while_it_is_the_one_in_use(tmp_path: Path) -> None:
    async with running(tmp_path) as brain:
        memory_id = await add(brain, ME, "one")
        residents, _ = residents_of(brain, budget=1)
        await residents.load(ME.home)
        assert residents.memory(memory_id) is not None
        await residents.load(caller("other").home)
        assert residents.memory(memory_id) is None
        await residents.close()


async def test_what_is_evicted_can_be_read_by_its_id_and_searched(tmp_path: Path) -> None:
    async with running(tmp_path) as brain:
        memory_id = await add(brain, ME, "amber fox")
        assert await search(brain, ME, "amber") == [memory_id]
        brain.residents.evict_all()
        status, body = await call(brain, "brain_memory_get", ME, memory_id=memory_id)
        assert (status, body["content"]) == (200, "amber fox")
        brain.residents.evict_all()
        assert await search(brain, ME, "amber") == [memory_id]
        await model_ready(brain)
        await drained(brain)
        await check(brain)


async def test_the_memory_of_an_evicted_partition_is_freed_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as brain:
        await model_ready(brain)
        turns = [{"role": "user", "content": f"turn {n}"} for n in range(50)]
        await call(brain, "brain_memory_add", ME, messages=turns, session_id="s")
        await search(brain, ME, "turn 7")
        gc.collect()
        await brain.residents.load(caller("other").home)  # by the same thread, which then has let go of ours
        resident = await brain.residents.load(ME.home)
        parts = [weakref.ref(resident), weakref.ref(resident.graph), weakref.ref(resident.graph._graph)]
        del resident
        gc.disable()  # no help from a collection: what is frozen is never collected
        try:
            brain.residents.evict_all()
            assert [part() for part in parts] == [None, None, None]
        finally:
            gc.enable()


async def test_cold_reads_at_the_same_time_load_their_partition_once(tmp_path: Path) -> None:
    async with running(tmp_path) as brain:
        ids = [await add(brain, ME, f"number {n}") for n in range(20)]
        brain.residents.evict_all()
        await asyncio.gather(*(call(brain, "brain_memory_get", ME, memory_id=id) for id in ids))
        resident = await brain.residents.load(ME.home)
        for memory_id in ids:
            await call(brain, "brain_memory_get", ME, memory_id=memory_id)
        assert await brain.residents.load(ME.home) is resident
        assert [brain.residents.holder(id) is resident for id in ids] == [True] * 20
