"""The one writer: a thread that drains its queue into one transaction, with a savepoint for each write,
so that many waiting writes share one fsync (group commit) and a refused one undoes nothing but itself."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, func, insert, select
from sqlalchemy.exc import SQLAlchemyError

from models.errors import BrainError, StoreUnavailable
from models.scope import Partition
from stores.changes import Change
from stores.schema import events

MAX_GROUP = 256  # writes that share a commit; bounds how long the first of them waits


@dataclass(slots=True)
class Transaction:
    """What a write works with: the connection, one time for all of it, and what it changed."""

    connection: Connection
    now: int  # epoch ms, never less than that of any earlier event
    changes: list[Change] = field(default_factory=list)

    def event(
        self,
        action: str,
        partition: Partition,
        memory_id: str | None,
        *,
        key_id: str | None,
        request_id: str,
        fields: tuple[str, ...] = (),
    ) -> int:
        """Record that something happened, without its text. Returns the event's `seq`."""
        product, agent, user = partition
        result = self.connection.execute(
            insert(events).values(
                at=self.now,
                product=product,
                agent=agent,
                user=user,
                action=action,
                memory_id=memory_id,
                key_id=key_id,
                request_id=request_id,
                fields=list(fields),
            )
        )
        key = result.inserted_primary_key
        assert key is not None
        return int(key[0])


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


class Writer:
    """Runs writes one after the other on its own thread. `clock` gives epoch ms."""

    def __init__(self, engine: Engine, clock: Callable[[], int], publish: Publish):
        self._engine = engine
        self._clock = clock
        self._publish = publish
        self._queue: SimpleQueue[tuple[Write, Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._now = 0

    def start(self) -> None:
        with self._engine.connect() as connection:
            self._now = connection.scalar(select(func.max(events.c.at))) or 0
        self._thread.start()

    def submit(self, write: Write) -> "Future[Any]":
        """Queue a write. Its future resolves after its commit, when its changes have been published; or
        with the BrainError that refused it, or StoreUnavailable when the commit failed."""
        future: Future[Any] = Future()
        self._queue.put((write, future))
        return future

    def close(self) -> None:
        """Finish what is queued, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        with self._engine.connect() as connection:
            while True:
                group = self._drain()
                if group:
                    self._commit(connection, [entry for entry in group if entry is not None])
                if None in group:
                    return

    def _drain(self) -> list[tuple[Write, "Future[Any]"] | None]:
        group = [self._queue.get()]
        while len(group) < MAX_GROUP and group[-1] is not None and not self._queue.empty():
            group.append(self._queue.get())
        return group

    def _commit(self, connection: Connection, group: list[tuple[Write, "Future[Any]"]]) -> None:
        self._now = max(self._now, self._clock())
        committed: list[Committed] = []
        try:
            with connection.begin():
                for write, future in group:
                    if future.set_running_or_notify_cancel():
                        done = self._attempt(connection, write, future)
                        committed += [done] if done else []
        except SQLAlchemyError as error:
            refusal = StoreUnavailable(f"The ledger refused the write: {_cause(error)}", retry_after=1)
            for _, future in group:
                if future.running():
                    future.set_exception(refusal)
            return
        self._publish(committed)

    def _attempt(self, connection: Connection, write: Write, future: "Future[Any]") -> Committed | None:
        """Run one write in its savepoint. A refusal is the write's own answer; a fault of the database
        goes up and fails the group, which is rolled back as a whole."""
        transaction = Transaction(connection, self._now)
        try:
            with connection.begin_nested():
                value = write(transaction)
        except SQLAlchemyError:
            raise
        except BrainError as refusal:
            future.set_exception(refusal)
            return None
        except Exception as bug:  # noqa: BLE001 - a bug in one write must neither end the thread nor the group
            future.set_exception(bug)
            return None
        return Committed(future, value, transaction.changes)


def _cause(error: SQLAlchemyError) -> str:
    """The database's own words, without the statement and its parameters, which hold text."""
    return str(getattr(error, "orig", None) or type(error).__name__)
