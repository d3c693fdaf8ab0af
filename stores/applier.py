"""Drains the outbox: embeds what was written without vectors, and brings Chroma in step with the ledger.

Works in small batches, so that a read of Chroma never waits long behind one; keeps state for each row, so
that a fault is retried and one bad row is parked rather than holding up the rest. Replay is harmless.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
import structlog
from sqlalchemy import and_, delete, func, select, update

from models.errors import BrainError
from models.memory import Memory
from models.scope import Scope
from stores.changes import Change, Floats
from stores.inserts import insert_vectors, queue
from stores.ledger import Ledger
from stores.schema import memories, outbox
from stores.vdb import Vdb, VdbRow, VdbUnavailable, scope_key
from stores.writer import Transaction

log = structlog.get_logger()

BATCH = 25
MAX_ATTEMPTS = 6
MAX_PAUSE_S = 30.0

Embed = Callable[[str], Awaitable[Floats]]
"""The vectors (chunks, dimensions) of a text. Raises `CannotEmbed`."""


class CannotEmbed(Exception):
    """The embedder can't take this text now. `whole` when it can't take any."""

    def __init__(self, reason: str, *, whole: bool):
        super().__init__(reason)
        self.whole = whole


@dataclass(frozen=True, slots=True)
class Task:
    """A row of the outbox."""

    memory_id: str
    seq: int
    shard: int
    attempts: int


class Applier:
    """Lives on the event loop. `shard_name` gives a shard's directory; `fingerprint` which vectors count,
    None while the model is not known or not the ledger's."""

    def __init__(
        self,
        ledger: Ledger,
        vdb: Vdb,
        embed: Embed,
        fingerprint: Callable[[], str | None],
        shard_name: Callable[[int], str],
        clock: Callable[[], int],
    ):
        self._ledger = ledger
        self._vdb = vdb
        self._embed = embed
        self._fingerprint = fingerprint
        self._shard_name = shard_name
        self._clock = clock
        self._wake = asyncio.Event()
        self._batch = BATCH
        self._pause = 0.0
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.last_error: str | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """There may be work: something was written, or the model has been loaded."""
        self._idle.clear()
        self._wake.set()

    async def drained(self) -> None:
        """Wait until there was nothing left to do (parked rows aside)."""
        await self._idle.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def lag(self, scope: Scope | None = None) -> int:
        """Memories, of one scope or of all, whose row in Chroma is not up to date, parked ones included."""
        query = select(func.count(func.distinct(outbox.c.memory_id)))
        if scope is not None:
            query = query.join(memories, memories.c.memory_id == outbox.c.memory_id).where(
                memories.c.product == scope.product, memories.c.agent == scope.agent
            )
        with self._ledger.snapshot() as connection:
            return connection.scalar(query) or 0

    def parked(self) -> list[tuple[str, str | None]]:
        """Ids and faults of the rows that were given up until the next start."""
        query = select(outbox.c.memory_id, outbox.c.error).where(outbox.c.state == "parked")
        with self._ledger.snapshot() as connection:
            return [(memory_id, error) for memory_id, error in connection.execute(query)]

    async def _run(self) -> None:
        await self._write(lambda t: t.connection.execute(_UNPARK))
        while True:
            self._wake.clear()
            try:
                busy = await self._embed_some() | await self._index_some()
            except BrainError as fault:  # the ledger can't be read or written just now
                self._fail(str(fault))
                busy = False
            if busy:
                continue
            if not self._pause and not self._wake.is_set():
                self._idle.set()
            await self._wait()

    async def _wait(self) -> None:
        """Until woken, or until the pause after a fault is over, or a row's retry may be due."""
        try:
            async with asyncio.timeout(self._pause or MAX_PAUSE_S):
                await (asyncio.sleep(self._pause) if self._pause else self._wake.wait())
        except TimeoutError:
            pass

    # Embedding

    async def _embed_some(self) -> bool:
        fingerprint = self._fingerprint()
        if fingerprint is None:
            return False
        tasks = await asyncio.to_thread(self._due, "embed", None)
        found = await asyncio.to_thread(self._memories, tasks)
        made = await asyncio.gather(*(self._vectors(found.get(task.memory_id)) for task in tasks))
        if any(isinstance(fault, CannotEmbed) and fault.whole for fault in made):
            return False

        def write(transaction: Transaction) -> None:
            for task, vectors in zip(tasks, made, strict=True):
                if isinstance(vectors, CannotEmbed):
                    _fail_row(transaction, task, "embed", str(vectors))
                else:
                    _finish(transaction, task, "embed")
                    memory = found.get(task.memory_id)
                    if memory is not None and vectors is not None:
                        insert_vectors(transaction, task.memory_id, fingerprint, vectors)
                        queue(transaction, memory, "index", task.seq)
                        transaction.changes.append(Change(memory, vectors=vectors))

        if tasks:
            await self._write(write)
        return bool(tasks)

    async def _vectors(self, memory: Memory | None) -> Floats | CannotEmbed | None:
        if memory is None or memory.hidden:
            return None
        try:
            return await self._embed(memory.content)
        except CannotEmbed as fault:
            return fault

    # Indexing

    async def _index_some(self) -> bool:
        fingerprint = self._fingerprint()
        if fingerprint is None:
            return False
        tasks = (await asyncio.to_thread(self._due, "index", None))[:1]
        if tasks:
            tasks = await asyncio.to_thread(self._due, "index", tasks[0].shard)
        if not tasks:
            return False
        rows, gone = await asyncio.to_thread(self._rows, tasks, fingerprint)
        shard = self._shard_name(tasks[0].shard)
        try:
            if rows:
                await self._vdb.put(shard, rows)
            if gone:
                await self._vdb.remove(shard, gone)
        except VdbUnavailable as fault:
            await self._failed(tasks, str(fault))
            return False

        def write(transaction: Transaction) -> None:
            for task in tasks:
                _finish(transaction, task, "index")

        await self._write(write)
        self._batch = min(BATCH, self._batch * 2)
        self._pause, self.last_error = 0.0, None
        return True

    async def _failed(self, tasks: Sequence[Task], fault: str) -> None:
        """Halve the batch until the fault is one row's own; only then does it count against the row."""
        if len(tasks) == 1:
            await self._write(lambda transaction: _fail_row(transaction, tasks[0], "index", fault))
        self._batch = max(1, len(tasks) // 2)
        self._fail(fault)

    def _fail(self, fault: str) -> None:
        self._pause = min(MAX_PAUSE_S, max(0.1, self._pause * 2))
        self.last_error = fault
        log.warning("the vector store is behind", fault=fault, retry_in_s=self._pause)

    def _due(self, task: str, shard: int | None) -> list[Task]:
        query = select(outbox.c.memory_id, outbox.c.seq, outbox.c.shard, outbox.c.attempts).where(
            outbox.c.task == task, outbox.c.state == "pending", outbox.c.retry_at <= self._clock()
        )
        if shard is not None:
            query = query.where(outbox.c.shard == shard)
        with self._ledger.snapshot() as connection:
            rows = connection.execute(query.order_by(outbox.c.seq).limit(self._batch)).all()
        return [Task(*row) for row in rows]

    def _memories(self, tasks: Sequence[Task]) -> dict[str, Memory]:
        found = (self._ledger.find(task.memory_id) for task in tasks)
        return {memory.memory_id: memory for memory in found if memory is not None}

    def _rows(self, tasks: Sequence[Task], fingerprint: str) -> tuple[list[VdbRow], list[str]]:
        """What Chroma should hold of these memories, and the ids that it should not hold. One without
        vectors is neither: its embedding will queue it again."""
        found = self._memories(tasks)
        vectors = self._ledger.document_vectors(found, fingerprint)
        rows = [
            vdb_row(memory, vectors[id])
            for id, memory in found.items()
            if id in vectors and not memory.hidden
        ]
        return rows, [task.memory_id for task in tasks if _is_gone(found.get(task.memory_id))]

    async def _write(self, write: Callable[[Transaction], object]) -> None:
        await asyncio.wrap_future(self._ledger.submit(write))


def vdb_row(memory: Memory, vectors: Floats) -> VdbRow:
    """A memory as Chroma keeps it."""
    return VdbRow(
        memory_id=memory.memory_id,
        scope=scope_key(*memory.partition.scope),
        user=memory.partition.user,
        layer=memory.layer,
        kind=memory.kind,
        version=memory.version,
        record=orjson.dumps(memory.as_row()).decode(),
        vectors=np.ascontiguousarray(vectors, np.float32),
    )


_UNPARK = update(outbox).where(outbox.c.attempts > 0).values(state="pending", attempts=0, retry_at=0)


def _is_gone(memory: Memory | None) -> bool:
    return memory is None or memory.hidden


def _this(task: Task, name: str) -> object:
    # Of this seq only: a later write of the same memory has its own task, which stays.
    return and_(outbox.c.memory_id == task.memory_id, outbox.c.task == name, outbox.c.seq == task.seq)


def _finish(transaction: Transaction, task: Task, name: str) -> None:
    transaction.connection.execute(delete(outbox).where(_this(task, name)))  # type: ignore[arg-type]


def _fail_row(transaction: Transaction, task: Task, name: str, fault: str) -> None:
    attempts = task.attempts + 1
    state = "parked" if attempts >= MAX_ATTEMPTS else "pending"
    if state == "parked":
        log.error("gave up until the next start", memory_id=task.memory_id, task=name, fault=fault)
    values = {
        "attempts": attempts,
        "state": state,
        "retry_at": transaction.now + 1000 * 2**attempts,
        "error": fault[:500],
    }
    transaction.connection.execute(update(outbox).where(_this(task, name)).values(**values))  # type: ignore[arg-type]
