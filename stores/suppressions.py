"""Suppressions: what its owner does not want to be shown, by number, topic, entity or words. They hide rows
when they are read, and change none. Whoever made one may hide with it what he may change, and nothing of a
higher authority, also of what is written later."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, delete, select, update

from models.authority import Authority, rank
from models.folding import fold
from models.memory import Memory
from models.observation_view import title_of
from models.scope import Partition, Scope
from stores.observations_schema import suppressions
from stores.rows import memory_from, select_memories
from stores.schema import idempotency, memories, versions
from stores.writer import Transaction

Sort = Literal["memory", "topic_key", "entity", "pattern"]


class Target(NamedTuple):
    """What is to be hidden: a memory by its number, all of a topic, whatever asserts something of an entity,
    or whatever has the words of a pattern in its title or text."""

    sort: Sort
    value: str

    def hides(self, memory: Memory) -> bool:
        """Whether it hides a memory of its partition. Only those of kind `memory` are ever hidden."""
        if memory.kind != "memory":
            return False
        if self.sort == "memory":
            return str(memory.number) == self.value
        if self.sort == "topic_key":
            return memory.state.provenance.topic_key == self.value
        if self.sort == "entity":
            entity = fold(self.value)
            return any(entity in (fold(fact.subject), fold(fact.object)) for fact in memory.facts)
        pattern = self.value.casefold()
        return pattern in title_of(memory).casefold() or pattern in memory.content.casefold()


class Suppression(NamedTuple):
    """A target, and the highest authority of what it hides."""

    target: Target
    authority: Authority

    def hides(self, memory: Memory) -> bool:
        """Whether it hides a memory of its partition."""
        return rank(memory.source_authority) <= rank(self.authority) and self.target.hides(memory)


@dataclass(frozen=True, slots=True)
class Suppressions:
    """Those of every partition that a caller reaches."""

    targets: dict[Partition, tuple[Suppression, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, connection: Connection, scope: Scope, user: str | None) -> "Suppressions":
        """Of one user of a scope, or of all."""
        t = suppressions.c
        query = select(t.user, t.sort, t.value, t.authority).where(
            t.product == scope.product, t.agent == scope.agent
        )
        if user is not None:
            query = query.where(t.user == user)
        found: dict[Partition, list[Suppression]] = {}
        for owner, sort, value, authority in connection.execute(query):
            made = Suppression(Target(sort, value), authority)
            found.setdefault(Partition(*scope, owner), []).append(made)
        return cls({partition: tuple(targets) for partition, targets in found.items()})

    def hide(self, memory: Memory) -> bool:
        """Whether one of its own partition hides a memory."""
        return any(target.hides(memory) for target in self.targets.get(memory.partition, ()))


def put(transaction: Transaction, partition: Partition, target: Target, authority: Authority) -> bool:
    """Suppress it, as far as memories of this authority. False when it was already, so far at least."""
    this = _this(partition, target)
    known: Authority | None = transaction.scalar(select(suppressions.c.authority).where(this))
    if known is not None:
        wider = rank(authority) > rank(known)
        if wider:
            transaction.execute(update(suppressions).where(this).values(authority=authority))
        return wider
    product, agent, user = partition
    row = {"product": product, "agent": agent, "user": user, "at": transaction.now, "authority": authority}
    transaction.insert(suppressions, [row | {"sort": target.sort, "value": target.value}])
    return True


def take_away(transaction: Transaction, partitions: Iterable[Partition], target: Target) -> list[Partition]:
    """Show it again. Those of the partitions where it was suppressed."""
    return [
        partition
        for partition in partitions
        if transaction.execute(delete(suppressions).where(_this(partition, target))).rowcount
    ]


def forget(transaction: Transaction, gone: Sequence[Memory]) -> None:
    """After a purge: let go of what was about the purged memories, and of what may repeat their text. A
    target that hid one of them stays where it hides another one as well; nothing stays where nothing is
    left."""
    for partition in {memory.partition for memory in gone}:
        doomed = [memory for memory in gone if memory.partition == partition]
        mine = Suppressions.read(transaction.connection, partition.scope, partition.user)
        targets = mine.targets.get(partition, ())
        if not targets:
            continue
        left = _left(transaction, partition)
        for target, _ in targets:  # of whatever authority: it is the words that are to go
            about = any(target.hides(memory) for memory in doomed)
            if not left or (about and not any(target.hides(memory) for memory in left)):
                transaction.execute(delete(suppressions).where(_this(partition, target)))
                _forget_requests(transaction, partition.scope)


def _forget_requests(transaction: Transaction, scope: Scope) -> None:
    """Destroy the digests of the requests that gave targets, which could confirm a guess of one. A repeat of
    such a request runs anew, which is harmless."""
    transaction.execute(
        delete(idempotency).where(
            idempotency.c.product == scope.product,
            idempotency.c.agent == scope.agent,
            idempotency.c.operation.in_(("suppress_memory", "unsuppress_memory")),
        )
    )


def _left(transaction: Transaction, partition: Partition) -> list[Memory]:
    query = select_memories().where(
        memories.c.product == partition.product,
        memories.c.agent == partition.agent,
        memories.c.user == partition.user,
        memories.c.kind == "memory",
        versions.c.status != "purged",
    )
    return [memory_from(row) for row in transaction.execute(query)]


def _this(partition: Partition, target: Target) -> ColumnElement[bool]:
    t = suppressions.c
    product, agent, user = partition
    return and_(
        t.product == product,
        t.agent == agent,
        t.user == user,
        t.sort == target.sort,
        t.value == target.value,
    )
