"""What was when: the ledger's events in time, a memory as it stood, and the history of a chain."""

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from sqlalchemy import Connection, func, select

from models.layers import HIDDEN
from models.memory import Memory, State
from models.scope import Caller, Partition, Scope
from stores.ledger import Ledger
from stores.loading import StoredPartition, load_partition
from stores.rows import holding, memory_from, select_memories
from stores.schema import events, memories, versions

MAX_CHAIN = 200  # memories of a chain that are shown; those nearest to the one asked for
MAX_ROWS = 1_000  # versions, and events, that are shown; the latest


@dataclass(frozen=True, slots=True)
class Stood:
    """A memory as it stood from `since` until `until`, epoch ms; `until` None means that it stands so."""

    memory: Memory
    since: int
    until: int | None


@dataclass(frozen=True, slots=True)
class History:
    """Of a whole chain, the latest memory first, and of each the latest version first. `hidden` are the ids
    whose text nobody may see now."""

    versions: tuple[Stood, ...]
    events: tuple[dict[str, Any], ...]
    hidden: frozenset[str]
    truncated: bool


def event_at(ledger: Ledger, at: int) -> int:
    """The number of the last event at or before a time, epoch ms; 0 when there was none."""
    with ledger.snapshot() as connection:
        return connection.scalar(select(func.max(events.c.seq)).where(events.c.at <= at)) or 0


def stood_at(ledger: Ledger, memory: Memory, at: int) -> Memory | None:
    """The memory as it stood at a time, epoch ms; None when there was no such memory yet."""
    seq = event_at(ledger, at)
    query = select(versions.c.version, versions.c.state).where(
        versions.c.memory_id == memory.memory_id, holding(seq)
    )
    with ledger.snapshot() as connection:
        row = connection.execute(query).first()
        return None if row is None else memory.with_state(row.version, State.from_row(row.state))


def partition_at(
    ledger: Ledger, partition: Partition, fingerprint: str | None, event: int
) -> StoredPartition:
    """A partition as it stood after an event, with vectors of one fingerprint. What is hidden now is left
    out."""
    with ledger.snapshot() as connection:
        return load_partition(connection, partition, fingerprint, event)


def history(ledger: Ledger, caller: Caller, memory_id: str) -> History | None:
    """The history of the chain that a memory stands in, as far as the caller reaches; None when the
    memory itself is out of reach. One snapshot."""
    with ledger.snapshot() as connection:
        chain, more = _chain(connection, caller, memory_id)
        if not chain:
            return None
        place = {memory.memory_id: at for at, memory in enumerate(_newest_first(chain))}
        stood = sorted(
            _versions(connection, chain), key=lambda one: (place[one.memory.memory_id], -one.memory.version)
        )
        happened = _events(connection, list(chain))
    return History(
        tuple(stood[:MAX_ROWS]),
        tuple(happened[:MAX_ROWS]),
        frozenset(id for id, memory in chain.items() if memory.hidden),
        more or max(len(stood), len(happened)) > MAX_ROWS,
    )


def chain(ledger: Ledger, caller: Caller, memory_id: str) -> tuple[list[Memory], bool]:
    """The memories of a chain that can be read, as far as the caller reaches, newest first; and whether there
    are more."""
    with ledger.snapshot() as connection:
        found, more = _chain(connection, caller, memory_id)
    return [memory for memory in _newest_first(found) if not memory.hidden], more


def _newest_first(chain: dict[str, Memory]) -> list[Memory]:
    """Each before those that it replaced; side by side, the later event first, then the later written."""
    waiting = TopologicalSorter(
        {id: [new for new in memory.state.superseded_by if new in chain] for id, memory in chain.items()}
    )
    waiting.prepare()
    ordered: list[Memory] = []
    while waiting.is_active():
        ready = [chain[id] for id in waiting.get_ready()]
        ordered += sorted(ready, key=_recency, reverse=True)
        waiting.done(*(memory.memory_id for memory in ready))
    return ordered


def _recency(memory: Memory) -> tuple[int, int]:
    return memory.gmt_created if memory.memory_at is None else memory.memory_at, memory.seq


def _chain(connection: Connection, caller: Caller, memory_id: str) -> tuple[dict[str, Memory], bool]:
    """The memories of a chain, both ways from one of them, and whether there are more. A cycle, which no
    write can make, would end here too."""
    found: dict[str, Memory] = {}
    asked = [memory_id]
    seen = {memory_id}
    while asked and len(found) < MAX_CHAIN:
        level = [
            memory
            for memory in _by_ids(connection, asked[: MAX_CHAIN - len(found)])
            if caller.reaches(memory.partition) and memory.state.status != "purged"
        ]
        left = asked[MAX_CHAIN - len(found) :]
        found |= {memory.memory_id: memory for memory in level}
        near = (id for memory in level for id in (*memory.state.supersedes, *memory.state.superseded_by))
        fresh = [id for id in dict.fromkeys(near) if id not in seen]
        seen.update(fresh)
        asked = left + fresh
    return found, bool(asked)


def _by_ids(connection: Connection, ids: Sequence[str]) -> list[Memory]:
    query = select_memories().where(memories.c.memory_id.in_(ids)).order_by(memories.c.seq)
    return [memory_from(row) for row in connection.execute(query)]


def _versions(connection: Connection, chain: dict[str, Memory]) -> list[Stood]:
    ended = events.alias("ended")
    query = (
        select(versions, ended.c.at.label("until"))
        .join(memories, memories.c.memory_id == versions.c.memory_id)
        .join(ended, ended.c.seq == versions.c.to_seq, isouter=True)
        .where(versions.c.memory_id.in_(chain))
        # The latest memory first: what it replaced was marked so just after it had been written.
        .order_by(memories.c.seq.desc(), versions.c.version.desc())
        .limit(MAX_ROWS + 1)
    )
    return [
        Stood(
            chain[row.memory_id].with_state(row.version, State.from_row(row.state)),
            row.at,
            row.until,
        )
        for row in connection.execute(query)
    ]


def _events(connection: Connection, ids: Sequence[str]) -> list[dict[str, Any]]:
    names = ("seq", "at", "action", "memory_id", "key_id", "fields")
    query = (
        select(*(events.c[name] for name in names))
        .where(events.c.memory_id.in_(ids), events.c.refused.is_(None))  # what was done, not what was tried
        .order_by(events.c.seq.desc())
        .limit(MAX_ROWS + 1)
    )
    return [dict(zip(names, row, strict=True)) for row in connection.execute(query)]


def count_users(ledger: Ledger, scope: Scope, bound: bool, limit: int) -> list[tuple[str, str, int]]:
    """Agent, user and number of memories that are not hidden, of the first `limit` by name: of the whole
    product, or, when the credential is `bound` to the scope's agent, of that agent."""
    query = (
        select(memories.c.agent, memories.c.user, func.count())
        .join(versions, (versions.c.memory_id == memories.c.memory_id) & holding(None))
        .where(memories.c.product == scope.product, versions.c.status.not_in(HIDDEN))
        .group_by(memories.c.agent, memories.c.user)
        .order_by(memories.c.agent, memories.c.user)
        .limit(limit)
    )
    if bound:
        query = query.where(memories.c.agent == scope.agent)
    with ledger.snapshot() as connection:
        return [(agent, user, count) for agent, user, count in connection.execute(query)]
