"""The moment that a search looks at: now, or an earlier time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from models.memory import Memory
from models.scope import Caller, Partition
from service.brain import Brain
from stores import chronicle
from stores.graph import MemoryGraph
from stores.resident import ResidentPartition


class Moment(Protocol):
    """What a caller reaches at some time. `now` is that time, epoch ms: the real one, or the earlier one."""

    now: int

    async def partitions(self) -> Sequence[ResidentPartition]:
        """All of them, loaded. Raises StoreUnavailable."""

    async def graph(self, partition: Partition) -> MemoryGraph:
        """The graph of one of them; to be read at once: what is resident may leave memory at the next wait.
        Raises StoreUnavailable."""

    def memory(self, memory_id: str) -> Memory | None:
        """A memory of any of them; None for what is hidden or out of reach."""


class Present:
    """As it is now, from what is resident."""

    def __init__(self, brain: Brain, caller: Caller):
        self.now = brain.clock()
        self._brain = brain
        self._caller = caller

    async def partitions(self) -> Sequence[ResidentPartition]:
        return await self._brain.reach(self._caller)

    async def graph(self, partition: Partition) -> MemoryGraph:
        return (await self._brain.residents.load(partition)).graph

    def memory(self, memory_id: str) -> Memory | None:
        found = self._brain.current([memory_id])
        return next((memory for memory in found if self._caller.reaches(memory.partition)), None)


class Past:
    """As it was, from the ledger. What is hidden now stays hidden."""

    def __init__(self, now: int, partitions: Sequence[ResidentPartition]):
        self.now = now
        self._partitions = {partition.key: partition for partition in partitions}

    async def partitions(self) -> Sequence[ResidentPartition]:
        return list(self._partitions.values())

    async def graph(self, partition: Partition) -> MemoryGraph:
        return self._partitions[partition].graph

    def memory(self, memory_id: str) -> Memory | None:
        graphs = (partition.graph for partition in self._partitions.values())
        return next((memory for graph in graphs if (memory := graph.memory(memory_id))), None)

    def clear(self) -> None:
        for partition in self._partitions.values():
            partition.graph.clear()


@asynccontextmanager
async def moment(brain: Brain, caller: Caller, as_of: int | None) -> AsyncIterator[Moment]:
    """What the caller reaches now, or reached at `as_of`, epoch ms; that is loaded for this once. Raises
    StoreUnavailable."""
    if as_of is None or as_of >= brain.clock():  # the future is not known
        yield Present(brain, caller)
        return
    keys = [partition.key for partition in await brain.reach(caller)]
    past = await asyncio.to_thread(_past, brain, keys, as_of)
    try:
        yield past
    finally:
        past.clear()


def _past(brain: Brain, keys: Sequence[Partition], at: int) -> Past:
    event = chronicle.event_at(brain.ledger, at)
    fingerprint = brain.meaning.stored
    return Past(
        at,
        [
            ResidentPartition(key, chronicle.partition_at(brain.ledger, key, fingerprint, event))
            for key in keys
        ],
    )
