"""The brain: the ledger, its two projections and the model, as the use cases see them."""

import asyncio
import contextlib
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import Any, Literal

import structlog

from models import injection
from models.embedder import Embedder
from models.embedding import Encoder
from models.errors import MemoryForgotten, MemoryNotFound, StoreUnavailable
from models.layers import HIDDEN, Status
from models.memory import Memory
from models.scope import Caller, Partition, Scope
from service.meaning import Meaning
from service.refusals import Refusals
from service.settings import Settings
from service.weights import Weights
from stores.applier import Applier
from stores.changes import Change
from stores.doctor import Doctor
from stores.ledger import Ledger, Stamp
from stores.publisher import Publisher
from stores.refill import Shards, put_row
from stores.resident import ResidentPartition
from stores.residents import Residents
from stores.vdb import Vdb, VdbUnavailable, shard_of
from stores.vdb_rows import record_from
from stores.writer import Transaction

log = structlog.get_logger()

Source = Literal["vdb", "graph"]
_CLEAN = "clean"  # a row of settings while nobody serves
CLEAN_WAIT_S = 60.0  # longer only when Chroma does not answer; the clean-up goes on behind the answer
MEMORY_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Brain:
    """Lives on one event loop. `clock` gives epoch ms, `new_id` a memory id for such a time, `sleep` waits
    seconds; `load_model` gives another model's encoder, by name or path, where models may be changed."""

    def __init__(
        self,
        settings: Settings,
        vdb: Vdb,
        embedder: Embedder,
        clock: Callable[[], int],
        new_id: Callable[[int], str],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        load_model: Callable[[str], Encoder] | None = None,
    ):
        self.settings = settings
        self.weights = Weights().adjusted(settings.search.weights, settings.search.relevance_floor)
        self.load_model = load_model
        self.vdb = vdb
        self.embedder = embedder
        self.clock = clock
        self.new_id = new_id
        self._users: dict[Scope, set[str]] = {}
        self._reading_users: dict[Scope, asyncio.Task[set[str]]] = {}
        self._sleep = sleep
        self._publisher = Publisher(self._publish, self._published)
        self.ledger = Ledger(settings.data_directory / "ledger.sqlite3", clock, self._publisher)
        wait_ms = settings.write.embed_wait_ms
        rebuild = f"brain rebuild --data {shlex.quote(str(settings.data_directory))} --live"
        self.meaning = Meaning(embedder, self.ledger, wait_ms, self._published, sleep, rebuild)
        self.residents = Residents(
            self.ledger, lambda: self.meaning.stored, settings.resident.budget_mb * 1_000_000
        )
        self.shards = Shards(self.ledger, vdb, settings.data_directory / "vdb")
        self.applier = Applier(
            self.ledger,
            vdb,
            self.meaning.of_document,
            self.meaning.fingerprint,
            lambda: self.meaning.stored,
            self.shards,
            clock,
            sleep,
            settings.vdb.gather_ms,
        )
        self.doctor = Doctor(self.ledger, vdb, self.shards, self.applier, self.residents, clock)
        self.refusals = Refusals(self.write, clock)
        self.in_step = False  # whether Chroma is known to hold what the ledger says, but for the outbox

    async def start(self) -> None:
        """Open the ledger; everything else comes up behind it. Reads by id work when this returns. A start
        that fails leaves nothing behind."""
        try:
            self._publisher.start()
            await asyncio.to_thread(self.ledger.open)
            await self._take_mark()
            await asyncio.to_thread(self.shards.open)
            self.vdb.start()
            self.meaning.start()
            self.applier.start()
            asyncio.get_running_loop().run_in_executor(None, injection.rules)  # the first scan shall not wait
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop, with every acknowledged write on disk. Whatever fails to close, the rest is closed."""
        async with AsyncExitStack() as last_first:
            last_first.push_async_callback(asyncio.to_thread, self.ledger.close)
            last_first.push_async_callback(self.vdb.close)
            last_first.push_async_callback(self.residents.close)
            last_first.push_async_callback(self._publisher.close)
            last_first.push_async_callback(asyncio.to_thread, self.ledger.stop_writing)
            last_first.push_async_callback(self._leave_mark)
            last_first.push_async_callback(self.refusals.write_counts)
            last_first.push_async_callback(self.meaning.close)
            last_first.push_async_callback(self.applier.close)

    async def _take_mark(self) -> None:
        """Whether the last stop was clean: it left a mark, which is gone before anything is written."""
        self.in_step = await asyncio.to_thread(self.ledger.setting, _CLEAN) is not None
        if self.in_step:
            await self.write(lambda transaction: put_row(transaction, _CLEAN, None))

    async def _leave_mark(self) -> None:
        if self.in_step:
            with contextlib.suppress(StoreUnavailable):
                await self.write(lambda transaction: put_row(transaction, _CLEAN, "1"))

    # Writing

    async def write(self, write: Callable[[Transaction], Any]) -> Any:
        """Run a write in the ledger. Returns when it is on disk and can be read everywhere."""
        return await asyncio.shield(asyncio.wrap_future(self.ledger.submit(write)))

    async def clean_files(self, shard: int, *, wait: bool) -> tuple[bool, bool]:
        """After a purge: empty the write-ahead log and have the shard of the vector store filled anew. Says
        of each whether it is done; with `wait` both are, unless that takes over a minute."""
        self.shards.note_due(shard)
        self.applier.wake()
        emptied = await asyncio.to_thread(self.ledger.truncate_log)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLEAN_WAIT_S if wait else 0):
                await self.shards.refilled(shard)
                while not emptied:
                    await self._sleep(0.05)
                    emptied = await asyncio.to_thread(self.ledger.truncate_log)
        return emptied, shard not in self.shards.due()

    def _publish(self, change: Change) -> None:
        users = self._users.get(change.memory.partition.scope)
        if users is not None:
            users.add(change.memory.partition.user)
        self.residents.publish(change)
        if change.memory.hidden:
            self.meaning.forget(change.memory.memory_id)

    def _published(self) -> None:
        self.residents.make_room()
        self.applier.wake()

    # Reading

    async def read(self, caller: Caller, memory_id: str) -> tuple[Memory, Source]:
        """One memory and the store that it was read from: the graph when it is resident, else Chroma, else
        the ledger's own record. Raises MemoryNotFound, MemoryForgotten or StoreUnavailable."""
        memory = self.residents.memory(memory_id)
        if memory is not None:
            _check(caller, memory_id, memory.partition, memory.state.status)
            return memory, "graph"
        stamp = self.ledger.stamp(memory_id) if MEMORY_ID.fullmatch(memory_id) else None
        if stamp is None:
            raise _not_found(memory_id)
        _check(caller, memory_id, stamp.partition, stamp.status)
        from_vdb = await self._read_vdb(memory_id, stamp)
        self.residents.load_soon(stamp.partition)
        if from_vdb is not None:
            return from_vdb, "vdb"
        memory = self.ledger.find(memory_id)
        if memory is None:
            raise _not_found(memory_id)
        _check(caller, memory_id, memory.partition, memory.state.status)
        return memory, "graph"

    def current(
        self, memory_ids: Sequence[str], written: Mapping[str, Memory] = MappingProxyType({})
    ) -> list[Memory]:
        """Memories as they stand, in this order, from what was just `written`, memory or the ledger; hidden
        ones are left out."""
        found = {id: written[id] for id in memory_ids if id in written}
        for id in memory_ids:
            if id not in found and (memory := self.residents.memory(id)) is not None:
                found[id] = memory
        found |= self.ledger.find_all([id for id in memory_ids if id not in found])
        return [found[id] for id in memory_ids if id in found and not found[id].hidden]

    async def reach(self, caller: Caller) -> list[ResidentPartition]:
        """Every partition that the caller reads, loaded."""
        if caller.user is not None:
            return [await self.residents.load(caller.home)]
        users = await self._users_of(caller.scope)
        return [await self.residents.load(Partition(*caller.scope, user)) for user in sorted(users)]

    async def _users_of(self, scope: Scope) -> set[str]:
        """Every user who has a memory in the scope. Those who ask at once wait for one query."""
        reading = self._reading_users.get(scope)
        if reading is None:
            reading = self._reading_users[scope] = asyncio.create_task(self._read_users(scope))
        return await asyncio.shield(reading)

    async def _read_users(self, scope: Scope) -> set[str]:
        # Set before the query: a user who is published meanwhile is added to it.
        users = self._users[scope] = set()
        found: list[str] = []
        try:
            found = await asyncio.to_thread(self.ledger.users, scope)
        finally:
            if not found:  # names that nobody ever wrote to take no room; after a fault the next asks again
                del self._users[scope], self._reading_users[scope]
        users.update(found)
        return users

    async def _read_vdb(self, memory_id: str, stamp: Stamp) -> Memory | None:
        """Chroma's copy, if it comes in time and is of the ledger's version."""
        shard = self.shards.name(shard_of(*stamp.partition.scope))
        deadline = self.settings.vdb.read_deadline_ms / 1000
        try:
            record = await self.vdb.get(shard, memory_id, within=deadline)
        except VdbUnavailable:
            return None
        memory = None if record is None else record_from(record)
        fresh = memory is not None and memory.version == stamp.version and memory.partition == stamp.partition
        return memory if fresh else None


def _check(caller: Caller, memory_id: str, partition: Partition, status: Status) -> None:
    """Another tenant's memory is answered exactly like one that never existed."""
    if not caller.reaches(partition) or status == "purged":
        raise _not_found(memory_id)
    if status in HIDDEN:
        raise MemoryForgotten(f"Memory {memory_id} was forgotten.")


def _not_found(memory_id: str) -> MemoryNotFound:
    return MemoryNotFound(f"There is no memory {memory_id[:64]!r} here.")
