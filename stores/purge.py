"""Purge: the text goes from every table, an id-only tombstone stays. Other files follow: the write-ahead
log is truncated after the commit, and the scope's shard of the vector store is filled anew from the ledger
into another directory, because Chroma never overwrites what it deletes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from sqlalchemy import Connection, delete, or_, select, tuple_, update

from models.memory import Memory, State
from models.scope import Scope
from stores import suppressions
from stores.acts import Act
from stores.appraisal import alive, reappraise, touching
from stores.changes import Change, Edge
from stores.dependents import flag
from stores.history_schema import vacated
from stores.inserts import queue
from stores.observations_schema import accesses, topics
from stores.raw_places import erase
from stores.rows import memory_from, select_memories, version_values
from stores.schema import (
    conflicts,
    edges,
    events,
    fact_keys,
    idempotency,
    memories,
    outbox,
    tags,
    token_vectors,
    tokens,
    vectors,
    versions,
)
from stores.writer import Transaction

SLICE = 500  # ids in one statement; SQLite takes 32,766 parameters at the most

_NOTHING = {
    "content": "",
    "content_key": "",
    "memory_at": None,
    "actor": None,
    "project": "",
    "session_id": None,
    "session_key": None,
    "session_position": None,
    "origin_id": None,
    "source_raw_memory_id": None,
    "details": None,
}


T = TypeVar("T")


def slices(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """The values, SLICE at a time."""
    return (values[start : start + SLICE] for start in range(0, len(values), SLICE))


@dataclass(frozen=True, slots=True)
class Target:
    """Which memories of a scope are to go: one, a session's, a user's, or all (everything None)."""

    scope: Scope
    user: str | None = None
    memory_id: str | None = None
    session_id: str | None = None

    def memories(self, connection: Connection) -> list[Memory]:
        """Those that are not tombstones yet, forgotten ones included."""
        wanted = {
            "product": self.scope.product,
            "agent": self.scope.agent,
            "user": self.user,
            "memory_id": self.memory_id,
            "session_id": self.session_id,
        }
        query = select_memories().where(
            versions.c.status != "purged",
            *(memories.c[name] == value for name, value in wanted.items() if value is not None),
        )
        return [memory_from(row) for row in connection.execute(query.order_by(memories.c.seq))]


def purge(act: Act, transaction: Transaction, doomed: Sequence[Memory], review: Sequence[Memory]) -> None:
    """Turn memories into tombstones. What rests on them without going too is due for review."""
    gone = {memory.memory_id: memory for memory in doomed}
    heard = (memory for memory in doomed if memory.facts or memory.state.standing.conflicts)
    near = [id for memory in heard for id in touching(transaction, memory)]
    _bridge(act, transaction, gone)
    flag(act, transaction, alive(transaction, [memory.memory_id for memory in review]), list(gone))
    _part(transaction, gone)
    transaction.flush()
    for some in slices(doomed):
        _erase(transaction, [memory.memory_id for memory in some])
        for memory in some:
            _bury(act, transaction, memory)
    _forget_requests(transaction, act.caller.scope, set(gone))
    suppressions.forget(transaction, doomed)
    for memory in review:  # they, and whom they bear out: a link of the lineage may be gone
        near += [memory.memory_id, *touching(transaction, memory)]
    reappraise(act, transaction, [id for id in near if id not in gone])


def _bridge(act: Act, transaction: Transaction, gone: dict[str, Memory]) -> None:
    """Close the chains over memories that go. A predecessor stays superseded: by the next successor that is
    left, or by a name when none is."""
    ends = {id for memory in gone.values() for id in (*memory.state.supersedes, *memory.state.superseded_by)}
    for memory in alive(transaction, sorted(ends - gone.keys())):
        state = memory.state
        older = _across(gone, state.supersedes, "supersedes")
        newer = _across(gone, state.superseded_by, "superseded_by") or state.superseded_by
        links = tuple(Edge(memory.memory_id, "supersedes", id) for id in older if id not in state.supersedes)
        fields = ("supersedes",) if newer == state.superseded_by else ("superseded_by",)
        after = replace(state, supersedes=older, superseded_by=newer)
        act.change(transaction, memory, after, fields, links)


def _across(
    gone: dict[str, Memory], ids: Sequence[str], side: Literal["supersedes", "superseded_by"]
) -> tuple[str, ...]:
    """The ids, with what lies behind those that go in their stead. Chains have no cycles."""
    found: list[str] = []
    for id in ids:
        if id in gone:
            state = gone[id].state
            found += _across(gone, state.supersedes if side == "supersedes" else state.superseded_by, side)
        else:
            found.append(id)
    return tuple(dict.fromkeys(found))


def _part(transaction: Transaction, gone: dict[str, Memory]) -> None:
    """Tell the graphs of other users of the links that end. In its own a memory takes its links along."""
    ended: dict[str, list[Edge]] = {}
    for some in slices(list(gone)):
        touching = or_(edges.c.from_id.in_(some), edges.c.to_id.in_(some))
        columns = (edges.c.from_id, edges.c.type, edges.c.to_id, edges.c.weight)
        for row in transaction.execute(select(*columns).where(touching, edges.c.to_seq.is_(None))):
            edge = Edge(*tuple(row))
            for id in {edge.from_id, edge.to_id} - gone.keys():
                ended.setdefault(id, []).append(edge)
    for memory in alive(transaction, sorted(ended)):
        transaction.changes.append(Change(memory, unlinked=tuple(ended[memory.memory_id])))


def _unseal(transaction: Transaction, ids: Sequence[str]) -> None:
    """Destroy the reasons and salts of their events, so that the digests tell nothing any more; and a reason
    that an act gave for other memories too, which may repeat the text."""
    act = events.c.at, events.c.request_id  # the events of one act have both in common
    shared = select(*act).where(events.c.memory_id.in_(ids), events.c.reason.is_not(None))
    same_reason = events.c.reason.is_not(None) & tuple_(*act).in_(shared)
    for those in (same_reason, events.c.memory_id.in_(ids)):
        transaction.execute(update(events).where(those).values(reason=None, salt=None))


def _erase(transaction: Transaction, ids: Sequence[str]) -> None:
    _unseal(transaction, ids)
    erase(transaction, ids)
    transaction.execute(delete(conflicts).where(or_(conflicts.c.a_id.in_(ids), conflicts.c.b_id.in_(ids))))
    for table in (tokens, vectors, token_vectors, tags, outbox, fact_keys, vacated, topics, accesses):
        transaction.execute(delete(table).where(table.c.memory_id.in_(ids)))
    transaction.execute(delete(edges).where(or_(edges.c.from_id.in_(ids), edges.c.to_id.in_(ids))))
    transaction.execute(delete(versions).where(versions.c.memory_id.in_(ids)))
    transaction.execute(update(memories).where(memories.c.memory_id.in_(ids)).values(_NOTHING))


def _bury(act: Act, transaction: Transaction, memory: Memory) -> None:
    seq = act.event(transaction, memory.partition, memory.memory_id)
    buried = replace(
        memory, content="", details=None, version=memory.version + 1, state=State(status="purged")
    )
    transaction.insert(versions, [version_values(buried, seq, transaction.now)])
    queue(transaction, buried, "index", seq)
    transaction.changes.append(Change(buried))


def _forget_requests(transaction: Transaction, scope: Scope, gone: set[str]) -> None:
    """Destroy what could confirm a guess of a purged text: the salted digests of the requests that wrote
    it. A repeat of such a request writes anew."""
    table = idempotency.c
    in_scope = (table.product == scope.product) & (table.agent == scope.agent)
    kept = transaction.execute(select(*table).where(in_scope)).all()
    for row in kept:
        if any(id in str(row.outcome) for id in gone):
            this = (table.user == row.user) & (table.operation == row.operation) & (table.key == row.key)
            transaction.execute(delete(idempotency).where(in_scope, this))
