"""The ledger: the only truth. SQLite (WAL, `synchronous=FULL`, `secure_delete`) through SQLAlchemy Core,
one writer thread, and a reading connection for each thread that reads.

Reads may be called from any thread. They raise `StoreUnavailable` when the database can't be read.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    Connection,
    Engine,
    and_,
    bindparam,
    create_engine,
    delete,
    event,
    insert,
    or_,
    select,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from models.errors import StoreUnavailable
from models.layers import HIDDEN, Status
from models.memory import Memory
from models.scope import Partition, Scope
from stores import migration
from stores.changes import Edge
from stores.rows import memory_from, select_memories
from stores.schema import edges, memories, settings, tokens, vectors, versions
from stores.words import ANALYZER, analyze
from stores.writer import Publish, Transaction, Writer

_BY_ID = select_memories().where(memories.c.memory_id == bindparam("memory_id"))
_STAMP = (
    select(memories.c.product, memories.c.agent, memories.c.user, versions.c.version, versions.c.status)
    .join(versions, (versions.c.memory_id == memories.c.memory_id) & versions.c.to_seq.is_(None))
    .where(memories.c.memory_id == bindparam("memory_id"))
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What must agree before another store's copy of a memory may be shown."""

    partition: Partition
    version: int
    status: Status


@dataclass(frozen=True, slots=True, eq=False)
class StoredPartition:
    """A partition as one consistent snapshot of the ledger. Row i of every column is one memory, in the
    order of `seq`; `vectors` (m, dimensions) float32 with `owners` (m,) int64: the row of each."""

    memories: list[Memory]
    terms: list[tuple[str, ...]]
    vectors: NDArray[np.float32]
    owners: NDArray[np.int64]
    edges: list[Edge]


def _connect_args(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves: the driver's own BEGIN breaks savepoints
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "secure_delete=ON",
            "foreign_keys=ON",
            "busy_timeout=5000",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        statement = connection.get_execution_options().get("begin", "BEGIN")
        if statement:
            connection.exec_driver_sql(statement)


class Ledger:
    """Opens, migrates, reads and writes one ledger file. `clock` gives epoch ms."""

    def __init__(self, path: Path, clock: Callable[[], int], publish: Publish):
        self._engine = create_engine(f"sqlite:///{path}", poolclass=NullPool, hide_parameters=True)
        _connect_args(self._engine)
        self._writer = Writer(self._engine.execution_options(begin="BEGIN IMMEDIATE"), clock, publish)
        self._local = threading.local()
        self._opened: list[Connection] = []
        self._quiet = threading.Condition()  # guards what follows; notified when a read has ended
        self._reads = 0
        self._closed = False

    def open(self) -> None:
        """Bring the schema up to date and start the writer."""
        with self._readable():
            migration.upgrade(self._engine)
            self._writer.start()

    def stop_writing(self) -> None:
        """Finish the queued writes and end the writer."""
        self._writer.close()

    def close(self) -> None:
        """After `stop_writing`: fold the write-ahead log into the file and close every connection. Waits for
        the reads that are under way: to close a connection under a thread crashes the process."""
        with self._quiet:
            self._closed = True
            self._quiet.wait_for(lambda: not self._reads)
        for connection in self._opened:
            connection.close()
        # Not possible on a file that could not even be opened; and the next start reads a log as well.
        with suppress(SQLAlchemyError), self._engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        self._engine.dispose()

    def submit(self, write: Callable[[Transaction], Any]) -> "Future[Any]":
        """Queue a write; see `Writer.submit`."""
        return self._writer.submit(write)

    # Reading

    def find(self, memory_id: str) -> Memory | None:
        """One memory as it stands, of any scope and status."""
        with self._readable():
            row = self._reading().execute(_BY_ID, {"memory_id": memory_id}).first()
            return None if row is None else memory_from(row)

    def stamp(self, memory_id: str) -> Stamp | None:
        """Where a memory belongs and its version, without its text."""
        with self._readable():
            row = self._reading().execute(_STAMP, {"memory_id": memory_id}).first()
            return None if row is None else Stamp(Partition(*row[:3]), row[3], row[4])

    def users(self, scope: Scope) -> list[str]:
        """Every user of a scope that has a memory, sorted."""
        query = (
            select(memories.c.user)
            .where(memories.c.product == scope.product, memories.c.agent == scope.agent)
            .distinct()
            .order_by(memories.c.user)
        )
        with self._readable():
            return list(self._reading().scalars(query))

    def load(self, partition: Partition, fingerprint: str | None) -> StoredPartition:
        """All that is resident of a partition, vectors of one fingerprint only. One snapshot."""
        with self.snapshot() as connection:
            records = [memory_from(row) for row in connection.execute(_in_partition(partition))]
            row_of = {memory.memory_id: row for row, memory in enumerate(records)}
            owners, matrix = _load_vectors(connection, partition, fingerprint, row_of)
            return StoredPartition(
                records,
                _load_terms(connection, partition, records),
                matrix,
                owners,
                _load_edges(connection, partition),
            )

    def document_vectors(self, memory_ids: Iterable[str], fingerprint: str) -> dict[str, NDArray[np.float32]]:
        """The stored vectors (chunks, dimensions) of some memories; one without vectors is left out."""
        query = (
            select(vectors.c.memory_id, vectors.c.vector)
            .where(vectors.c.memory_id.in_(list(memory_ids)), vectors.c.fingerprint == fingerprint)
            .order_by(vectors.c.memory_id, vectors.c.chunk)
        )
        chunks: dict[str, list[NDArray[np.float32]]] = {}
        with self._readable():
            for memory_id, blob in self._reading().execute(query):
                chunks.setdefault(memory_id, []).append(np.frombuffer(blob, "<f4"))
        return {memory_id: np.stack(rows) for memory_id, rows in chunks.items()}

    def has_vectors(self) -> bool:
        """Whether any memory has been embedded, with whatever model."""
        with self._readable():
            return self._reading().execute(select(vectors.c.chunk).limit(1)).first() is not None

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """The calling thread's connection inside one read transaction."""
        with self._readable():
            connection = self._reading()
            connection.exec_driver_sql("BEGIN")
            try:
                yield connection
            finally:
                connection.exec_driver_sql("ROLLBACK")

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Around every read, in whatever thread. Raises StoreUnavailable."""
        with self._quiet:
            if self._closed:
                raise StoreUnavailable("The ledger is closed.", retry_after=1)
            self._reads += 1
        try:
            yield
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or type(error).__name__
            raise StoreUnavailable(f"The ledger can't be read: {cause}", retry_after=1) from error
        finally:
            with self._quiet:
                self._reads -= 1
                self._quiet.notify_all()

    def _reading(self) -> Connection:
        """This thread's connection. It begins nothing by itself: each statement outside `snapshot` stands
        alone and sees the latest commit."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._engine.connect().execution_options(begin="")
            self._local.connection = connection
            self._opened.append(connection)
        return connection

    # Small facts about the store itself

    def setting(self, name: str) -> str | None:
        with self._readable():
            query = select(settings.c.value).where(settings.c.name == name)
            value: str | None = self._reading().scalar(query)
            return value

    def put_setting(self, name: str, value: str) -> "Future[Any]":
        def write(transaction: Transaction) -> None:
            transaction.connection.execute(delete(settings).where(settings.c.name == name))
            transaction.connection.execute(insert(settings).values(name=name, value=value))

        return self.submit(write)


def _of(partition: Partition) -> Any:
    return and_(
        memories.c.product == partition.product,
        memories.c.agent == partition.agent,
        memories.c.user == partition.user,
    )


def _in_partition(partition: Partition) -> Any:
    return select_memories().where(_of(partition), versions.c.status.not_in(HIDDEN)).order_by(memories.c.seq)


def _load_terms(connection: Connection, partition: Partition, records: list[Memory]) -> list[tuple[str, ...]]:
    query = (
        select(tokens.c.memory_id, tokens.c.terms)
        .join(memories, memories.c.memory_id == tokens.c.memory_id)
        .where(_of(partition), tokens.c.analyzer == ANALYZER)
    )
    rows = connection.execute(query)
    stored = {memory_id: tuple(terms.split("\n")) if terms else () for memory_id, terms in rows}
    # A row that an older analyzer wrote is analysed again here rather than matched by other rules.
    return [stored[m.memory_id] if m.memory_id in stored else analyze(m.content, m.actor) for m in records]


def _load_vectors(
    connection: Connection, partition: Partition, fingerprint: str | None, row_of: dict[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    query = (
        select(vectors.c.memory_id, vectors.c.vector)
        .join(memories, memories.c.memory_id == vectors.c.memory_id)
        .where(_of(partition), vectors.c.fingerprint == fingerprint)
        .order_by(memories.c.seq, vectors.c.chunk)
    )
    found = [(row_of[id], blob) for id, blob in connection.execute(query) if id in row_of]
    owners = np.fromiter((row for row, _ in found), np.int64, len(found))
    joined = np.frombuffer(b"".join(blob for _, blob in found), "<f4")
    return owners, joined.reshape(len(found), -1) if found else joined.reshape(0, 0)


def _load_edges(connection: Connection, partition: Partition) -> list[Edge]:
    """Edges that still hold and touch a memory of the partition at either end."""
    own = select(memories.c.memory_id).where(_of(partition))
    query = select(edges.c.from_id, edges.c.type, edges.c.to_id, edges.c.weight).where(
        edges.c.to_seq.is_(None), or_(edges.c.from_id.in_(own), edges.c.to_id.in_(own))
    )
    return [Edge(*row) for row in connection.execute(query)]
