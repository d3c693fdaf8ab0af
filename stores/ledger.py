"""The ledger: the only truth. SQLite (WAL, `synchronous=FULL`, `secure_delete`) through SQLAlchemy Core,
one writer thread, and a reading connection for each thread that reads.

Reads may be called from any thread. They raise `StoreUnavailable` when the database can't be read.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from sqlalchemy import (
    Connection,
    Engine,
    bindparam,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from models.errors import StoreUnavailable
from models.layers import Status
from models.memory import Memory
from models.scope import Partition, Scope
from models.token_codes import TokenCodes
from stores import migration
from stores.loading import StoredPartition, load_partition
from stores.rows import VARIABLES, memory_from, select_memories
from stores.schema import memories, settings, tokens, vectors, versions
from stores.token_rows import read_tokens
from stores.words import ANALYZER
from stores.writer import Publish, Transaction, Writer

_BY_ID = select_memories().where(memories.c.memory_id == bindparam("memory_id"))
_BY_IDS = select_memories().where(memories.c.memory_id.in_(bindparam("memory_ids", expanding=True)))
_COPIES = memories.alias()
_REPEATED = select(memories.c.memory_id).where(
    memories.c.memory_id.in_(bindparam("memory_ids", expanding=True)),
    memories.c.content_key.in_(
        select(_COPIES.c.content_key).group_by(_COPIES.c.content_key).having(func.count() > 1)
    ),
)
_STAMP = (
    select(memories.c.product, memories.c.agent, memories.c.user, versions.c.version, versions.c.status)
    .join(versions, (versions.c.memory_id == memories.c.memory_id) & versions.c.to_seq.is_(None))
    .where(memories.c.memory_id == bindparam("memory_id"))
)
_WRITE_TERMS = (
    update(tokens)  # no insert: what was purged meanwhile stays away
    .where(tokens.c.memory_id == bindparam("id"))
    .values(analyzer=ANALYZER, terms=bindparam("words"))
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What must agree before another store's copy of a memory may be shown."""

    partition: Partition
    version: int
    status: Status


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
        self._engine = create_engine(
            f"sqlite:///{path}", poolclass=NullPool, hide_parameters=True, json_deserializer=orjson.loads
        )
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

    def find_all(self, memory_ids: Sequence[str]) -> dict[str, Memory]:
        """Those that there are of these ids, as they stand, of any scope and status."""
        found: dict[str, Memory] = {}
        for start in range(0, len(memory_ids), VARIABLES):
            part = list(memory_ids[start : start + VARIABLES])
            with self._readable():
                for row in self._reading().execute(_BY_IDS, {"memory_ids": part}):
                    memory = memory_from(row)
                    found[memory.memory_id] = memory
        return found

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
        """All that is resident of a partition, vectors of one fingerprint only. One snapshot. Terms that an
        older analyzer wrote are written again, so that the next load is as fast as any."""
        with self.snapshot() as connection:
            stored = load_partition(connection, partition, fingerprint)
        ids, terms = stored.memories.column("memory_id"), stored.terms
        for start in range(0, len(stored.analysed), VARIABLES):
            rows = stored.analysed[start : start + VARIABLES]
            self.submit(partial(_write_terms, [{"id": ids[row], "words": terms[row]} for row in rows]))
        return stored

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

    def token_codes(self, memory_ids: Sequence[str], fingerprint: str) -> dict[str, list[TokenCodes]]:
        """The stored word pieces of some memories, by chunk; one without any is left out."""
        with self._readable():
            return read_tokens(self._reading(), memory_ids, fingerprint)

    def repeated(self, memory_ids: Iterable[str]) -> set[str]:
        """Those of some memories whose text other memories have too, of whatever scope."""
        ids = list(memory_ids)
        found: set[str] = set()
        for start in range(0, len(ids), VARIABLES):
            with self._readable():
                part = {"memory_ids": ids[start : start + VARIABLES]}
                found.update(self._reading().scalars(_REPEATED, part))
        return found

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

    def settings(self) -> dict[str, str]:
        """All of them."""
        with self._readable():
            rows = self._reading().execute(select(settings.c.name, settings.c.value))
            return {row.name: row.value for row in rows}

    def truncate_log(self) -> bool:
        """Fold the write-ahead log into the file and empty it, so that no old page stays behind. False when
        a reader is in the way; try again."""
        with self._readable(), self._engine.connect() as connection:
            busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]
            return not busy

    def put_setting(self, name: str, value: str) -> "Future[Any]":
        def write(transaction: Transaction) -> None:
            transaction.connection.execute(delete(settings).where(settings.c.name == name))
            transaction.connection.execute(insert(settings).values(name=name, value=value))

        return self.submit(write)


def _write_terms(rows: Sequence[dict[str, str]], transaction: Transaction) -> None:
    transaction.flush()
    transaction.connection.execute(_WRITE_TERMS, rows)
