"""The one writer: a thread that drains its queue into one transaction, with a savepoint for each write,
so that many waiting writes share one fsync (group commit) and a refused one undoes nothing but itself."""

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Protocol

import structlog
from sqlalchemy import Connection, CursorResult, Engine, Executable, Table, func, insert, select
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError, ProgrammingError, SQLAlchemyError

from models.errors import BrainError, StoreUnavailable
from models.scope import Partition
from stores import audit
from stores.changes import Change
from stores.schema import events, metadata, settings

log = structlog.get_logger()

MAX_GROUP = 256  # writes that share a commit; bounds how long the first of them waits

# Faults of a statement, not of the database: the savepoint undoes them, and the others of the group go on.
_OWN_FAULTS = (IntegrityError, DataError, InterfaceError, ProgrammingError)


_insert_into = functools.cache(insert)

FINGERPRINT = "embedding.fingerprint"  # the setting that says which vectors count
_COUNTING = select(settings.c.value).where(settings.c.name == FINGERPRINT)


@dataclass(slots=True)
class Transaction:
    """What a write works with: the connection, one time for all of it, and what it changed.

    Inserts are collected and written table by table, many rows at once: a statement for each row would
    cost a batch more than its embedding leaves room for. `execute` writes them first.
    """

    connection: Connection
    now: int  # epoch ms, never less than that of any earlier event
    next_seq: Callable[[], int]
    changes: list[Change] = field(default_factory=list)
    last_numbers: dict[tuple[str, str, str], int] = field(default_factory=dict)  # by product, agent, kind
    new_contents: set[tuple[str, str, str, str]] = field(default_factory=set)  # partition and key
    seats: dict[tuple[str, str, str, str], set[int]] = field(default_factory=dict)  # positions by session
    pending: dict[Table, list[dict[str, Any]]] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)  # that the write recorded, for the audit chain
    _counting: tuple[str | None] | None = None

    def counts(self, fingerprint: str | None) -> bool:
        """Whether vectors of this fingerprint are those that count. They are not when the model was changed
        between their making and this write."""
        if self._counting is None:
            self._counting = (self.connection.scalar(_COUNTING),)
        return fingerprint is not None and self._counting[0] in (None, fingerprint)

    def insert(self, table: Table, rows: Iterable[dict[str, Any]]) -> None:
        """Rows for a table, all with every column named."""
        self.pending.setdefault(table, []).extend(rows)

    def flush(self) -> None:
        """Write the collected rows, those first that others refer to."""
        if self.pending:
            pending, self.pending = self.pending, {}
            for table in metadata.sorted_tables:
                if rows := pending.get(table):
                    self.connection.execute(_insert_into(table), rows)

    def execute(self, statement: Executable, values: dict[str, Any] | None = None) -> CursorResult[Any]:
        """Run a statement that sees everything inserted so far."""
        self.flush()
        return self.connection.execute(statement, values)

    def scalar(self, statement: Executable, values: dict[str, Any] | None = None) -> Any:
        """The first column of the first row, None when there is none."""
        return self.execute(statement, values).scalar()

    def event(
        self,
        action: str,
        partition: Partition,
        memory_id: str | None,
        *,
        key_id: str | None,
        request_id: str | None,
        fields: tuple[str, ...] = (),
        reason: str | None = None,
        refused: str | None = None,
        changed: Mapping[str, Any] | None = None,
    ) -> int:
        """Record that something happened, or was `refused`, with the code of that. Of what the `changed`
        fields hold since (JSON-ready), only a salted digest is kept. Returns the event's `seq`."""
        seq = self.next_seq()
        product, agent, user = partition
        salt, digest = audit.sealed(reason, changed)
        row = {
            "seq": seq,
            "at": self.now,
            "product": product,
            "agent": agent,
            "user": user,
            "action": action,
            "memory_id": memory_id,
            "key_id": key_id,
            "request_id": request_id,
            "fields": list(fields),
            "refused": refused,
            "reason": reason,
            "salt": salt,
            "digest": digest,
        }
        self.insert(events, [row])
        self.events.append(row)
        return seq

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A part of the write that a refusal undoes alone. The refusal goes up."""
        self.flush()
        changes, recorded = len(self.changes), len(self.events)
        try:
            with self.connection.begin_nested():
                yield
                self.flush()
        except BrainError:
            self.pending.clear()
            self.seats.clear()  # what was seated before is in the database by now
            del self.changes[changes:]
            del self.events[recorded:]
            raise


Write = Callable[[Transaction], Any]


class Publish(Protocol):
    """Called in the writer's thread after a commit, with each write's result and changes, in order. It
    must resolve the futures, once the changes can be read everywhere."""

    def __call__(self, committed: list["Committed"], /) -> None: ...


@dataclass(frozen=True, slots=True)
class Committed:
    """One write that is on disk."""

    future: "Future[Any]"
    value: Any
    changes: list[Change]
    events: list[dict[str, Any]] = field(default_factory=list)


class Writer:
    """Runs writes one after the other on its own thread. `clock` gives epoch ms."""

    def __init__(self, engine: Engine, clock: Callable[[], int], publish: Publish):
        self._engine = engine
        self._clock = clock
        self._publish = publish
        self._queue: SimpleQueue[tuple[Write, Future[Any]] | None] = SimpleQueue()
        self._door = threading.Lock()  # so that nothing is queued behind the end of the queue
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._now = 0
        self._next_seq: Callable[[], int] = itertools.count(1).__next__
        self._head = audit.Head()

    def start(self) -> None:
        with self._engine.begin() as connection:
            self._head = audit.take_up(connection)
            self._next_seq = itertools.count(audit.last_seq(connection) + 1).__next__
            self._now = connection.scalar(select(func.max(events.c.at))) or 0
        self._thread.start()

    def submit(self, write: Write) -> "Future[Any]":
        """Queue a write. Its future resolves after its commit, when its changes have been published; or
        with the BrainError that refused it, or StoreUnavailable when the commit failed or the writer
        has ended."""
        future: Future[Any] = Future()
        with self._door:
            if not self._closed:
                self._queue.put((write, future))
                return future
        _refuse([future], StoreUnavailable("The ledger is closed.", retry_after=1))
        return future

    def close(self) -> None:
        """Finish what is queued, then end the thread. Harmless when repeated, or before the start."""
        with self._door:
            self._closed = True
            self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()
        self._refuse_queued()

    def _run(self) -> None:
        try:
            with self._engine.connect() as connection:
                while True:
                    group = self._drain()
                    self._commit(connection, [entry for entry in group if entry is not None])
                    if None in group:
                        return
        finally:  # if not by `close`, then by a bug: nobody may wait for a thread that is gone
            with self._door:
                self._closed = True
            self._refuse_queued()

    def _refuse_queued(self) -> None:
        while not self._queue.empty():
            entry = self._queue.get()
            if entry is not None:
                _refuse([entry[1]], StoreUnavailable("The ledger is closed.", retry_after=1))

    def _drain(self) -> list[tuple[Write, "Future[Any]"] | None]:
        group = [self._queue.get()]
        while len(group) < MAX_GROUP and group[-1] is not None and not self._queue.empty():
            group.append(self._queue.get())
        return group

    def _commit(self, connection: Connection, group: list[tuple[Write, "Future[Any]"]]) -> None:
        committed: list[Committed] = []
        try:
            self._now = max(self._now, self._clock())
            with connection.begin():
                for write, future in group:
                    if future.set_running_or_notify_cancel():
                        done = self._attempt(connection, write, future)
                        committed += [done] if done else []
                recorded = [event for done in committed for event in done.events]
                head = audit.append(connection, self._head, recorded) if recorded else self._head
        except Exception as error:
            if not isinstance(error, SQLAlchemyError):
                log.exception("a group of writes failed")
            _refuse(
                [future for _, future in group],
                StoreUnavailable(f"The ledger refused the write: {_cause(error)}", retry_after=1),
            )
            return
        self._head = head
        try:
            self._publish(committed)
        except RuntimeError:  # the event loop is gone: what is on disk is done all the same
            for write_done in committed:
                write_done.future.set_result(write_done.value)

    def _attempt(self, connection: Connection, write: Write, future: "Future[Any]") -> Committed | None:
        """Run one write in its savepoint. A refusal is the write's own answer; a fault of the database
        goes up and fails the group, which is rolled back as a whole."""
        transaction = Transaction(connection, self._now, self._next_seq)
        try:
            with connection.begin_nested():
                value = write(transaction)
                transaction.flush()
        except (BrainError, *_OWN_FAULTS) as refusal:
            future.set_exception(refusal)
            return None
        except SQLAlchemyError:
            raise
        except Exception as bug:  # noqa: BLE001 - a bug in one write must neither end the thread nor the group
            future.set_exception(bug)
            return None
        return Committed(future, value, transaction.changes, transaction.events)


def _refuse(futures: list["Future[Any]"], refusal: StoreUnavailable) -> None:
    """Answer those that have no answer yet, begun or not."""
    for future in futures:
        if not future.done() and (future.running() or future.set_running_or_notify_cancel()):
            future.set_exception(refusal)


def _cause(error: Exception) -> str:
    """The database's own words, without the statement and its parameters, which hold text."""
    # The first of them: a full disk undoes the whole transaction, and then the savepoint is missed too.
    context: BaseException | None = error
    while context is not None:
        error = context if isinstance(context, SQLAlchemyError) else error
        context = context.__context__
    return str(getattr(error, "orig", None) or type(error).__name__)
