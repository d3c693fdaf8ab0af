"""Drains the outbox: embeds what was written without vectors, and brings Chroma in step with the ledger.

Works in small batches, so that a read of Chroma never waits long behind one. Replay is harmless. What a
fault means is found out by asking again for something harmless:

    nothing answers     an outage: that shard (or the embedder) rests, longer each time; no row is to blame
    it answers          a row is to blame: the batch is halved until it is alone, then its attempts count,
                        and it is parked and named after some; the others go on
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

import structlog

from models.embedder import CannotEmbed
from models.errors import BrainError
from models.memory import Memory
from models.scope import Scope
from models.token_codes import Embedded
from stores import outbox
from stores.changes import Change
from stores.inserts import replace_vectors, requeue
from stores.ledger import Ledger
from stores.outbox import LONGEST_MS, Pace, Task
from stores.refill import Shards
from stores.vdb import Vdb, VdbUnavailable
from stores.vdb_rows import held
from stores.writer import Transaction

log = structlog.get_logger()

_EMBEDDER = -1  # stands among the shards' numbers for the embedder
_LEDGER = -2
_REFILL = 1_000  # plus the shard's number: a refill goes to another directory
BROKEN_S = 1.6  # a shard that rests so long, while Chroma answers for others, is filled anew elsewhere

Embed = Callable[[str], Awaitable[Embedded]]
"""What the model makes of a text. Raises `CannotEmbed`."""


class Applier:
    """Lives on the event loop. `shards` knows their directories; `fingerprint` names the vectors that can
    be made now, None while there is no model that is the ledger's; `stored` those that the ledger has.
    `clock` gives epoch ms, `sleep` waits seconds. Between two looks for work, and two batches of a
    shard that are not full, lie `gather_ms`: a row alone costs ten times as much as one in a batch."""

    def __init__(
        self,
        ledger: Ledger,
        vdb: Vdb,
        embed: Embed,
        fingerprint: Callable[[], str | None],
        stored: Callable[[], str | None],
        shards: Shards,
        clock: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        gather_ms: int = 0,
    ):
        self._ledger = ledger
        self._vdb = vdb
        self._embed = embed
        self._fingerprint = fingerprint
        self._stored = stored
        self._shards = shards
        self._clock = clock
        self._sleep = sleep
        self._gather_ms = gather_ms
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._paces: defaultdict[int, Pace] = defaultdict(Pace)
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self.turn = asyncio.Lock()  # who holds it may change directories and model: no batch is on its way
        self.last_error: str | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """There may be work: something was written, or the model has been loaded. Nothing else is looked
        for but retries that are due."""
        self._idle.clear()
        self._wake.set()

    async def drained(self) -> None:
        """Wait until nothing is left to do or to try again, but for parked rows and for want of a model."""
        await self._idle.wait()

    async def close(self) -> None:
        """A cancellation can be lost on the way (`asyncio.wait_for` in 3.11 drops it), so it is told too."""
        self._closed = True
        self._wake.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def lag(self, scope: Scope | None = None) -> int:
        """Memories, of one scope or of all, whose row in Chroma is not up to date, parked ones included."""
        with self._ledger.snapshot() as connection:
            return outbox.lag(connection, scope)

    def parked(self) -> list[tuple[str, str | None]]:
        """Ids and faults of the rows that were given up until the next start."""
        with self._ledger.snapshot() as connection:
            return outbox.parked(connection)

    async def _run(self) -> None:
        unparked = False
        while not self._closed:
            self._wake.clear()
            looked = self._clock()
            try:
                if not unparked:
                    await self._write(outbox.unpark)
                    unparked = True
                async with self.turn:
                    if await self._embed_some() | await self._index_some() | await self._refill_some():
                        continue
                due = await asyncio.to_thread(self._next_due)
                if self._paces.pop(_LEDGER, None):
                    self._settle()
            except Exception as fault:
                if not isinstance(fault, BrainError):
                    log.exception("the applier stumbled")
                self._rest(_LEDGER, fault)
                due = self._paces[_LEDGER].until
            if due is None and not self._wake.is_set():
                self._idle.set()
            await self._wait(due)
            left = min(looked + self._gather_ms - self._clock(), self._gather_ms)  # the clock may go back
            if left > 0 and not self._closed:
                await self._sleep(left / 1000)

    async def _wait(self, due: int | None) -> None:
        """Until woken, or until something may be tried again. After a fault of the ledger only the latter:
        what wakes us needs it too."""
        seconds = 0.0 if due is None else min(max(0, due - self._clock()), LONGEST_MS) / 1000
        if _LEDGER in self._paces:
            await self._sleep(seconds)
        elif due is None:
            await self._wake.wait()
        else:
            waits = [asyncio.ensure_future(self._sleep(seconds)), asyncio.ensure_future(self._wake.wait())]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    def _rest(self, what: int, fault: Exception) -> None:
        pace = self._paces[what]
        pace.rest(self._clock())
        self.last_error = str(fault)
        log.warning("the vector store is behind", fault=str(fault), retry_in_s=pace.pause)

    def _go_on(self, what: int) -> None:
        self._paces[what].go_on()
        self._settle()

    def _settle(self) -> None:
        if not any(pace.pause for pace in self._paces.values()):
            self.last_error = None

    # Embedding

    async def _embed_some(self) -> bool:
        fingerprint = self._fingerprint()
        if fingerprint is None:
            return False
        tasks = await asyncio.to_thread(self._due, "embed")
        if not tasks:
            return False
        found = await asyncio.to_thread(self._ledger.find_all, [task.memory_id for task in tasks])
        made = await asyncio.gather(*(self._embedded(found.get(task.memory_id)) for task in tasks))
        for fault in made:
            if isinstance(fault, CannotEmbed) and fault.whole:
                self._rest(_EMBEDDER, fault)
                return False

        def write(transaction: Transaction) -> None:
            for task, embedded in zip(tasks, made, strict=True):
                if isinstance(embedded, CannotEmbed):
                    outbox.fail(transaction, task, "embed", str(embedded))
                elif outbox.finish(transaction, task, "embed") and embedded is not None:
                    memory = found[task.memory_id]
                    replace_vectors(transaction, [task.memory_id], fingerprint, [embedded])
                    requeue(transaction, memory, "index", task.seq)
                    transaction.changes.append(Change(memory, vectors=embedded.vectors))

        await self._write(write)
        self._go_on(_EMBEDDER)
        return True

    async def _embedded(self, memory: Memory | None) -> Embedded | CannotEmbed | None:
        if memory is None or memory.hidden:
            return None
        try:
            return await self._embed(memory.content)
        except CannotEmbed as fault:
            return fault

    # Indexing

    async def _index_some(self) -> bool:
        fingerprint = self._stored()
        tasks = [] if fingerprint is None else await asyncio.to_thread(self._due, "index")
        if not tasks or fingerprint is None:
            return False
        shard = self._shards.name(tasks[0].shard)
        try:
            ids = [task.memory_id for task in tasks]
            rows, gone = await asyncio.to_thread(held, self._ledger, ids, fingerprint)
            if rows:
                await self._vdb.put(shard, rows)
            if gone:
                await self._vdb.remove(shard, gone)
        except BrainError:
            raise
        except Exception as fault:  # noqa: BLE001 - a row that can't be made is to blame like any other
            await self._failed(tasks, fault)
            return True

        await self._write(lambda transaction: outbox.finish_all(transaction, tasks, "index"))
        full = len(tasks) == (pace := self._paces[tasks[0].shard]).batch
        self._go_on(tasks[0].shard)
        pace.until = 0 if full else self._clock() + self._gather_ms
        return True

    async def _failed(self, tasks: Sequence[Task], fault: Exception) -> None:
        """Let the shard rest, or find the row that is to blame."""
        shard = tasks[0].shard
        if isinstance(fault, VdbUnavailable) and not await self._answers(tasks[0]):
            self._rest(shard, fault)
            if self._vdb.available and self._paces[shard].pause >= BROKEN_S:
                self._shards.note_due(shard)  # and nothing more goes to the directory that it has now
            return
        if len(tasks) == 1:
            await self._write(lambda transaction: outbox.fail(transaction, tasks[0], "index", str(fault)))
        self._paces[shard] = Pace(max(1, len(tasks) // 2))
        self.last_error = str(fault)

    async def _answers(self, task: Task) -> bool:
        try:
            await self._vdb.get(self._shards.name(task.shard), task.memory_id)
        except VdbUnavailable:
            return False
        return True

    # Refilling

    async def _refill_some(self) -> bool:
        """Fill one shard anew, if one is due. It runs here, between batches, so that no batch of the shard
        goes to the directory that is about to be left."""
        now = self._clock()
        due = [shard for shard in self._shards.due() if not self._paces[_REFILL + shard].rests(now)]
        if not due:
            return False
        try:  # while nothing was ever embedded, no shard holds anything either
            await self._shards.refill(due[0], self._stored() or "")
        except VdbUnavailable as fault:
            self._rest(_REFILL + due[0], fault)
            return False
        self._go_on(_REFILL + due[0])
        self._go_on(due[0])
        return True

    def _due(self, name: outbox.Name) -> list[Task]:
        """The next batch, of one shard when it is to be indexed. A row that failed before comes alone, so
        that it takes nobody along."""
        now = self._clock()
        resting = [shard for shard, pace in self._paces.items() if pace.rests(now)] + self._shards.due()
        embed = name == "embed"
        if embed and _EMBEDDER in resting:
            return []
        with self._ledger.snapshot() as connection:
            first = outbox.next_task(connection, name, now, () if embed else resting)
            if first is None or first.attempts:
                return [] if first is None else [first]
            pace = self._paces[_EMBEDDER if embed else first.shard]
            return outbox.batch(connection, name, now, None if embed else first.shard, pace.batch)

    def _next_due(self) -> int | None:
        """When something may be tried again, epoch ms; None when there is nothing, or no model to do it."""
        able = {"embed": self._fingerprint() is not None, "index": self._stored() is not None}
        with self._ledger.snapshot() as connection:
            times = [
                max(at, self._paces[_EMBEDDER if name == "embed" else shard].until)
                for name, shard, at in outbox.retries(connection)
                if able[name]
            ]
        times += [self._paces[_REFILL + shard].until for shard in self._shards.due()]
        return min(times, default=None)

    async def _write(self, write: Callable[[Transaction], object]) -> None:
        await asyncio.wrap_future(self._ledger.submit(write))
