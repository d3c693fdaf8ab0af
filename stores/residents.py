"""Which partitions are in memory: loaded when first used, the least recently used leave under a budget."""

import asyncio
import gc
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from models.memory import Memory
from models.scope import Partition
from stores.changes import Change
from stores.ledger import Ledger
from stores.resident import ResidentPartition

log = structlog.get_logger()


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

    def held(self, partition: Partition) -> ResidentPartition | None:
        """The partition if it is in memory. Counts as no use."""
        return self._resident.get(partition)

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
        return await asyncio.shield(self._joined(partition))

    def load_soon(self, partition: Partition) -> None:
        """Start loading what is not in memory, without waiting."""
        if partition not in self._resident:
            self._joined(partition)

    def _joined(self, partition: Partition) -> "asyncio.Task[ResidentPartition]":
        """The one load of a partition that is under way, or a new one."""
        task = self._loading.get(partition)
        if task is None:
            task = self._loading[partition] = asyncio.create_task(self._load(partition))
            # A fault is the waiters' to see; `load_soon` has none, and asyncio would complain.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    def publish(self, change: Change) -> None:
        """Bring memory in step with a commit."""
        key = change.memory.partition
        if key in self._missed:
            self._missed[key].append(change)
        resident = self._resident.get(key)
        if resident is None:
            return
        if not _follows(resident, change):
            self.evict(key)
        elif change.memory.hidden:
            self._home.pop(change.memory.memory_id, None)
        else:
            self._home[change.memory.memory_id] = resident

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
        await asyncio.to_thread(self._loader.shutdown)

    async def _load(self, partition: Partition) -> ResidentPartition:
        try:
            resident = await self._in_step(partition)
            self._resident[partition] = resident
            self._home.update(dict.fromkeys(resident.memory_ids(), resident))
            self.make_room()
            gc.freeze()  # what is resident stays for long: collections need not walk over it
            return resident
        finally:
            self._missed.pop(partition, None)
            del self._loading[partition]

    async def _in_step(self, partition: Partition) -> ResidentPartition:
        """Loaded, with what was published meanwhile: the snapshot may or may not have it, and applying
        twice does no harm. Loaded again when that does not say enough."""
        loop = asyncio.get_running_loop()
        while True:
            missed = self._missed[partition] = []
            fingerprint = self._fingerprint()
            resident = await loop.run_in_executor(self._loader, self._build, partition)
            # The model may have been changed meanwhile; vectors of two never meet.
            if fingerprint == self._fingerprint() and all(_follows(resident, change) for change in missed):
                return resident
            resident.graph.clear()

    def _build(self, partition: Partition) -> ResidentPartition:
        # A full collection over a large partition stalls every thread, and loading makes no garbage.
        gc.disable()
        try:
            return ResidentPartition(partition, self._ledger.load(partition, self._fingerprint()))
        finally:
            gc.enable()

    def make_room(self) -> None:
        """Let the least recently used go until the rest is within the budget; the last one used stays."""
        size = self.size_bytes
        for partition in list(self._resident)[:-1]:
            if size <= self._budget:
                break
            size -= self._resident[partition].size_bytes
            self.evict(partition)


def _follows(resident: ResidentPartition, change: Change) -> bool:
    """Apply a change. False when the partition is out of step with the ledger now."""
    try:
        return resident.apply(change)
    except Exception:
        log.exception("a partition can't follow the ledger", memory_id=change.memory.memory_id)
        return False
