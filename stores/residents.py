"""Which partitions are in memory: loaded when first used, the least recently used leave under a budget."""

import asyncio
import gc
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from models.memory import Memory
from models.scope import Partition
from stores.changes import Change
from stores.ledger import Ledger
from stores.resident import ResidentPartition


class Residents:
    """Lives on the event loop. `fingerprint` says which vectors are loaded; `budget` is in bytes."""

    def __init__(self, ledger: Ledger, fingerprint: Callable[[], str | None], budget: int):
        self._ledger = ledger
        self._fingerprint = fingerprint
        self._budget = budget
        self._resident: OrderedDict[Partition, ResidentPartition] = OrderedDict()
        self._home: dict[str, ResidentPartition] = {}
        self._loading: dict[Partition, asyncio.Task[ResidentPartition]] = {}
        self._missed: dict[Partition, list[Change]] = {}  # published while their partition loads
        # One thread: a load is mostly Python, so two would only slow the event loop twice as much.
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="partition-loader")

    def __len__(self) -> int:
        return len(self._resident)

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for partition in self._resident.values())

    def holder(self, memory_id: str) -> ResidentPartition | None:
        """The resident partition that has a memory. Counts as a use."""
        found = self._home.get(memory_id)
        if found is not None:
            self._resident.move_to_end(found.key)
        return found

    def memory(self, memory_id: str) -> Memory | None:
        """The record of a resident memory, read from its graph node."""
        found = self.holder(memory_id)
        return None if found is None else found.graph.memory(memory_id)

    async def load(self, partition: Partition) -> ResidentPartition:
        """The partition, from memory or from the ledger. Raises StoreUnavailable."""
        resident = self._resident.get(partition)
        if resident is not None:
            self._resident.move_to_end(partition)
            return resident
        # Shielded: a caller that goes away must not cancel the load that others wait for.
        return await asyncio.shield(self.load_soon(partition))

    def load_soon(self, partition: Partition) -> "asyncio.Task[ResidentPartition]":
        """Start loading, without waiting; a second call joins the first."""
        task = self._loading.get(partition)
        if task is None:
            task = asyncio.create_task(self._load(partition))
            self._loading[partition] = task
        return task

    def publish(self, change: Change) -> None:
        """Bring memory in step with a commit."""
        key = change.memory.partition
        if key in self._missed:
            self._missed[key].append(change)
        resident = self._resident.get(key)
        if resident is not None:
            self._apply(resident, change)

    def evict(self, partition: Partition) -> None:
        """Let a partition go; the ledger has everything."""
        resident = self._resident.pop(partition, None)
        if resident is not None:
            for memory_id in resident.memory_ids():
                self._home.pop(memory_id, None)
            resident.graph.clear()

    def evict_all(self) -> None:
        for partition in list(self._resident):
            self.evict(partition)

    async def close(self) -> None:
        for task in list(self._loading.values()):
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)
        self._loader.shutdown(wait=True)

    async def _load(self, partition: Partition) -> ResidentPartition:
        # What is published from now on is kept, and applied once the snapshot, which may or may not have
        # it, is in place: applying twice does no harm.
        self._missed[partition] = []
        try:
            loop = asyncio.get_running_loop()
            resident = await loop.run_in_executor(self._loader, self._build, partition)
            self._resident[partition] = resident
            self._home.update(dict.fromkeys(resident.memory_ids(), resident))
            for change in self._missed[partition]:
                self._apply(resident, change)
            self._make_room(keep=partition)
            return resident
        finally:
            del self._missed[partition], self._loading[partition]

    def _build(self, partition: Partition) -> ResidentPartition:
        # A full collection over a large partition stalls every thread, and loading makes no garbage.
        gc.disable()
        try:
            return ResidentPartition(partition, self._ledger.load(partition, self._fingerprint()))
        finally:
            gc.enable()

    def _apply(self, resident: ResidentPartition, change: Change) -> None:
        memory_id = change.memory.memory_id
        if not resident.apply(change):
            self.evict(resident.key)
        elif change.memory.hidden:
            self._home.pop(memory_id, None)
        else:
            self._home[memory_id] = resident

    def _make_room(self, keep: Partition) -> None:
        size = self.size_bytes
        for partition in [p for p in self._resident if p != keep]:
            if size <= self._budget:
                break
            size -= self._resident[partition].size_bytes
            self.evict(partition)
        gc.freeze()  # what is resident stays for long: collections need not walk over it
