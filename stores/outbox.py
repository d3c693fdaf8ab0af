"""The outbox: what still has to be done for memories, a row for each task. Written with the memory itself,
emptied by the applier."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import structlog
from sqlalchemy import Connection, Select, and_, bindparam, delete, func, or_, select, update

from models.scope import Scope
from stores.schema import memories, outbox
from stores.writer import Transaction

log = structlog.get_logger()

BATCH = 100  # Chroma takes half as long for each row as in batches of 25, and a read waits 0.1 s at most
MAX_ATTEMPTS = 6
MAX_PAUSE_S = 30.0
# No wait is longer. A time that lies further ahead was set before the clock went back: it has come.
LONGEST_MS = 120_000

Name = Literal["embed", "index"]

# Built once: to build a statement costs more than to run it. Of this seq only: a later write of the same
# memory has its own task, which stays.
_THIS = and_(
    outbox.c.memory_id == bindparam("this_memory"),
    outbox.c.task == bindparam("this_task"),
    outbox.c.seq == bindparam("this_seq"),
)
_FINISH = delete(outbox).where(_THIS)


@dataclass(frozen=True, slots=True)
class Task:
    """A row of the outbox."""

    memory_id: str
    seq: int
    shard: int
    attempts: int


@dataclass(slots=True)
class Pace:
    """How fast one shard is fed: `batch` rows at once, and none before `until` (epoch ms)."""

    batch: int = BATCH
    pause: float = 0.0  # seconds, doubled by each outage in a row
    until: int = 0

    def rest(self, now: int) -> None:
        self.pause = min(MAX_PAUSE_S, max(0.1, self.pause * 2))
        self.until = now + round(self.pause * 1000)

    def rests(self, now: int) -> bool:
        """Whether `until` lies ahead of `now` (epoch ms)."""
        return now < self.until <= now + LONGEST_MS

    def go_on(self) -> None:
        self.batch, self.pause, self.until = min(BATCH, self.batch * 2), 0.0, 0


def next_task(connection: Connection, name: Name, now: int, resting: Collection[int]) -> Task | None:
    """The oldest that is due at `now` (epoch ms), of a shard that does not rest."""
    query = _due(name, now).where(outbox.c.shard.not_in(resting))
    row = connection.execute(query.limit(1)).first()
    return None if row is None else Task(*row)


def batch(connection: Connection, name: Name, now: int, shard: int | None, limit: int) -> list[Task]:
    """Those that are due and never failed, oldest first; of one shard, unless it is None."""
    query = _due(name, now).where(outbox.c.attempts == 0)
    if shard is not None:
        query = query.where(outbox.c.shard == shard)
    return [Task(*row) for row in connection.execute(query.limit(limit))]


def retries(connection: Connection) -> list[tuple[Name, int, int]]:
    """For each task and shard that has pending rows, when the first of them is due (epoch ms)."""
    query = (
        select(outbox.c.task, outbox.c.shard, func.min(outbox.c.retry_at))
        .where(outbox.c.state == "pending")
        .group_by(outbox.c.task, outbox.c.shard)
    )
    return [(name, shard, at) for name, shard, at in connection.execute(query)]


def finish(transaction: Transaction, task: Task, name: Name) -> bool:
    """False when the task was replaced or withdrawn meanwhile, so that its outcome counts no more."""
    return bool(transaction.execute(_FINISH, _names(task, name)).rowcount)


def finish_all(transaction: Transaction, tasks: Collection[Task], name: Name) -> None:
    """Finish a batch, whatever became of its tasks meanwhile."""
    transaction.flush()
    transaction.connection.execute(_FINISH, [_names(task, name) for task in tasks])


def fail(transaction: Transaction, task: Task, name: Name, fault: str) -> None:
    """Count an attempt: try again later, or park it."""
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
    transaction.execute(update(outbox).where(_THIS).values(**values), _names(task, name))


def unpark(transaction: Transaction) -> None:
    """Give every row that failed a new chance."""
    transaction.execute(
        update(outbox).where(outbox.c.attempts > 0).values(state="pending", attempts=0, retry_at=0)
    )


def lag(connection: Connection, scope: Scope | None) -> int:
    """Memories, of one scope or of all, with something left to do, parked or not."""
    query = select(func.count(func.distinct(outbox.c.memory_id)))
    if scope is not None:
        query = query.join(memories, memories.c.memory_id == outbox.c.memory_id).where(
            memories.c.product == scope.product, memories.c.agent == scope.agent
        )
    return connection.scalar(query) or 0


def parked(connection: Connection) -> list[tuple[str, str | None]]:
    """Ids and faults of the rows that were given up."""
    query = select(outbox.c.memory_id, outbox.c.error).where(outbox.c.state == "parked")
    return [(memory_id, error) for memory_id, error in connection.execute(query)]


def _due(name: Name, now: int) -> Select[Any]:
    come = or_(outbox.c.retry_at <= now, outbox.c.retry_at > now + LONGEST_MS)
    return (
        select(outbox.c.memory_id, outbox.c.seq, outbox.c.shard, outbox.c.attempts)
        .where(outbox.c.task == name, outbox.c.state == "pending", come)
        .order_by(outbox.c.seq)
    )


def _names(task: Task, name: Name) -> dict[str, Any]:
    return {"this_memory": task.memory_id, "this_task": name, "this_seq": task.seq}
