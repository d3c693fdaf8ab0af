"""An act: who does what. It finds the memories that it is about, changes their state as new versions, and
records each change as an event."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import bindparam, or_, select, update

from models.errors import MemoryForgotten, MemoryNotFound, VersionConflict
from models.memory import Memory, State
from models.scope import Caller, Partition
from stores.changes import Change, Edge
from stores.inserts import insert_edges, requeue
from stores.raw_places import show
from stores.rows import memory_from, select_memories, tag_values, version_values
from stores.schema import edges, memories, tags, tokens, vectors, versions
from stores.words import ANALYZER
from stores.writer import Transaction

_BY_ID = select_memories().where(memories.c.memory_id == bindparam("memory_id"))


@dataclass(frozen=True, slots=True)
class Act:
    """What a caller does. `fingerprint` names the model whose vectors count now, if there is one. `reason` is
    the caller's own, and stands in every event of the act."""

    caller: Caller
    operation: str
    fingerprint: str | None
    reason: str | None = None

    def event(
        self,
        transaction: Transaction,
        partition: Partition,
        memory_id: str | None,
        fields: tuple[str, ...] = (),
        changed: Mapping[str, Any] | None = None,
    ) -> int:
        """Record the act on a memory, with a digest of what the `changed` fields hold since. Returns the
        event's `seq`."""
        return transaction.event(
            self.operation,
            partition,
            memory_id,
            key_id=self.caller.key_id,
            request_id=self.caller.request_id,
            fields=fields,
            reason=self.reason,
            changed=changed,
        )

    def find(
        self,
        transaction: Transaction,
        memory_id: str,
        expected_version: int | None = None,
        *,
        forgotten: bool = False,
    ) -> Memory:
        """A memory in the caller's reach, as this write sees it. Raises MemoryNotFound, VersionConflict,
        and, unless `forgotten` ones are wanted, MemoryForgotten."""
        row = transaction.execute(_BY_ID, {"memory_id": memory_id}).first()
        memory = None if row is None else memory_from(row)
        if memory is None or not self.caller.reaches(memory.partition) or memory.state.status == "purged":
            raise MemoryNotFound(f"There is no memory {memory_id[:64]!r} here.")
        if memory.hidden and not forgotten:
            raise MemoryForgotten(f"Memory {memory_id} was forgotten.")
        if expected_version not in (None, memory.version):
            raise VersionConflict(
                f"Memory {memory_id} is at version {memory.version}, not {expected_version}."
            )
        return memory

    def change(
        self,
        transaction: Transaction,
        memory: Memory,
        state: State,
        fields: tuple[str, ...],
        links: tuple[Edge, ...] = (),
        unlinks: tuple[Edge, ...] = (),
    ) -> Memory:
        """Store another state as the next version, with edges that begin or end with it. Nothing happens
        when nothing differs."""
        if state == memory.state and not links and not unlinks:
            return memory
        differing = _differing(memory.state, state)
        seq = self.event(transaction, memory.partition, memory.memory_id, fields, differing)
        changed = memory.with_state(memory.version + 1, state)
        current = (versions.c.memory_id == memory.memory_id) & versions.c.to_seq.is_(None)
        transaction.execute(update(versions).where(current).values(to_seq=seq))
        transaction.insert(versions, [version_values(changed, seq, transaction.now)])
        transaction.insert(tags, tag_values(changed))
        insert_edges(transaction, links, seq)
        end_edges(transaction, unlinks, seq)
        requeue(transaction, changed, "index", seq)
        if memory.hidden and not changed.hidden:
            counting = self.fingerprint if transaction.counts(self.fingerprint) else None
            shown = _whole(transaction, changed, counting)
            if shown.vectors is None:  # forgotten before it was embedded, or by another model
                requeue(transaction, changed, "embed", seq)
            transaction.changes.append(shown)
        else:
            transaction.changes.append(Change(changed, edges=links, unlinked=unlinks))
        tell_others(transaction, changed, links)
        if memory.kind == "message" and memory.hidden != changed.hidden:
            show(transaction, changed)
        return changed


def _differing(before: State, after: State) -> dict[str, Any]:
    """What the fields that differ hold after; JSON-ready. None stands for the default."""
    old, new = before.as_row(), after.as_row()
    return {name: new.get(name) for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def tell_others(transaction: Transaction, memory: Memory, links: Iterable[Edge]) -> None:
    """Let the graphs of other users know of a memory's new links with theirs. Chains are one user's."""
    for edge in links:
        if edge.type != "supersedes":
            id = edge.to_id if edge.from_id == memory.memory_id else edge.from_id
            row = transaction.execute(_BY_ID, {"memory_id": id}).first()
            other = memory if row is None else memory_from(row)
            if other.partition != memory.partition:
                transaction.changes.append(Change(other, edges=(edge,)))


def end_edges(transaction: Transaction, links: Iterable[Edge], seq: int) -> None:
    """Edges that hold no more from event `seq` on."""
    for edge in links:
        this = (
            (edges.c.from_id == edge.from_id)
            & (edges.c.type == edge.type)
            & (edges.c.to_id == edge.to_id)
            & edges.c.to_seq.is_(None)
        )
        transaction.execute(update(edges).where(this).values(to_seq=seq))


def _whole(transaction: Transaction, memory: Memory, fingerprint: str | None) -> Change:
    """A memory that comes back into sight, with all that memory held of it before."""
    id = memory.memory_id
    present = (tokens.c.memory_id == id) & (tokens.c.analyzer == ANALYZER)
    terms = transaction.scalar(select(tokens.c.terms).where(present))
    rows = transaction.execute(
        select(vectors.c.vector)
        .where(vectors.c.memory_id == id, vectors.c.fingerprint == fingerprint)
        .order_by(vectors.c.chunk)
    )
    chunks = [np.frombuffer(blob, "<f4") for (blob,) in rows]
    touching: Any = or_(edges.c.from_id == id, edges.c.to_id == id)
    links = transaction.execute(
        select(edges.c.from_id, edges.c.type, edges.c.to_id, edges.c.weight).where(
            touching, edges.c.to_seq.is_(None)
        )
    )
    return Change(
        memory,
        None if terms is None else tuple(filter(None, terms.split("\n"))),
        np.stack(chunks) if chunks else None,
        tuple(Edge(*tuple(row)) for row in links),
    )
