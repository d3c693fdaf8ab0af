"""Topics: what the memories and summaries of one key and project are to each other. One memory is the head of
its key; segments sum up stretches of what was said about it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, select, update

from models.memory import Memory
from models.observation_view import DELETED, covered_by, type_of
from models.scope import Partition
from stores.observations_schema import topics
from stores.rows import memory_from, select_memories
from stores.schema import memories, versions
from stores.writer import Transaction

SEGMENTS = 12  # of a topic that are shown

_SHOWN = ("active", "superseded", "conflicted", "archived")


def topic_values(memory: Memory) -> list[dict[str, Any]]:
    """The row by which a memory is found by its topic; none without a key."""
    key = memory.state.provenance.topic_key
    if key is None:
        return []
    product, agent, user = memory.partition
    covered = covered_by(memory)
    row = {
        "memory_id": memory.memory_id,
        "product": product,
        "agent": agent,
        "user": user,
        "project": memory.project,
        "topic_key": key,
        "memory_type": type_of(memory) if memory.kind == "memory" else None,
        "covered_from": None if covered is None else covered.first,
    }
    return [row]


def heads(transaction: Transaction, partition: Partition, project: str, key: str) -> list[Memory]:
    """The active memories of a key that are no segments, the latest first: mostly one."""
    query = (
        select_memories()
        .join(topics, topics.c.memory_id == memories.c.memory_id)
        .where(_keyed(partition, project, key), topics.c.covered_from.is_(None))
        .where(memories.c.kind == "memory", versions.c.status == "active")
        .order_by(memories.c.seq.desc())
    )
    return [memory_from(row) for row in transaction.execute(query)]


def next_segment(transaction: Transaction, partition: Partition, project: str, key: str) -> int:
    """The place of a new segment among those of its topic, from 0."""
    query = select(func.count()).where(_keyed(partition, project, key), topics.c.covered_from.is_not(None))
    return int(transaction.scalar(query))


def exchange_numbers(transaction: Transaction, head: Memory, old: Memory) -> None:
    """Give a new head the number of the one that it replaced, and that one the new one's, in the ledger and
    in what is published of this write. Both have a version that nobody has read with the other number."""
    transaction.flush()
    ids = (head.memory_id, old.memory_id)
    query = select(memories.c.memory_id, memories.c.number).where(memories.c.memory_id.in_(ids))
    numbers: dict[str, int] = {row.memory_id: row.number for row in transaction.execute(query)}
    mine, theirs = numbers[head.memory_id], numbers[old.memory_id]
    # By way of a number that nobody has: at no moment may two have the same.
    for memory_id, number in ((old.memory_id, -theirs), (head.memory_id, theirs), (old.memory_id, mine)):
        this = memories.c.memory_id == memory_id
        transaction.execute(update(memories).where(this).values(number=number))
    now = {head.memory_id: theirs, old.memory_id: mine}
    for place, change in enumerate(transaction.changes):
        if change.memory.memory_id in now:
            memory = replace(change.memory, number=now[change.memory.memory_id])
            transaction.changes[place] = replace(change, memory=memory)


def has_rival(connection: Connection, memory: Memory) -> bool:
    """Whether another active memory has its project, type and key."""
    key = memory.state.provenance.topic_key
    if key is None:
        return False
    query = (
        select(topics.c.memory_id)
        .join(versions, (versions.c.memory_id == topics.c.memory_id) & versions.c.to_seq.is_(None))
        .where(_keyed(memory.partition, memory.project, key), topics.c.memory_type == type_of(memory))
        .where(topics.c.memory_id != memory.memory_id, versions.c.status == "active")
    )
    return connection.execute(query.limit(1)).first() is not None


def segments(
    connection: Connection, memory: Memory, visible: Callable[[Memory], bool]
) -> list[tuple[Memory, int]]:
    """The newest twelve segments of a memory's topic, in the order of what they cover, each with when it was
    changed last, epoch ms."""
    key = memory.state.provenance.topic_key
    if key is None:
        return []
    query = (
        select_memories()
        .add_columns(versions.c.at)
        .join(topics, topics.c.memory_id == memories.c.memory_id)
        .where(_keyed(memory.partition, memory.project, key), topics.c.covered_from.is_not(None))
        .where(versions.c.status.in_(_SHOWN))
        .order_by(topics.c.covered_from.desc(), memories.c.number.desc())
    )

    def shown() -> Iterator[tuple[Memory, int]]:
        for *row, at in connection.execute(query):
            one = memory_from(row)
            if one.state.status_reason != DELETED and visible(one):
                yield one, at

    return sorted(islice(shown(), SEGMENTS), key=lambda found: _place(found[0]))


def _place(memory: Memory) -> tuple[int, int, int]:
    covered = covered_by(memory)
    assert covered is not None
    return covered.first, covered.segment, memory.number


def _keyed(partition: Partition, project: str, key: str) -> ColumnElement[bool]:
    product, agent, user = partition
    return and_(
        topics.c.product == product,
        topics.c.agent == agent,
        topics.c.user == user,
        topics.c.project == project,
        topics.c.topic_key == key,
    )
