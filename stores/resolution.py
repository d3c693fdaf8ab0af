"""Conflicts that are open: shown with both sides, marked by hand, and resolved."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Select, and_, func, select, update

from models.errors import ConflictNotFound, ConflictState, MemoryForgotten, invalid
from models.memory import Memory
from models.scope import Caller, Partition
from models.verdict import Rule
from stores.acts import Act, end_edges
from stores.appraisal import READABLE, alive, beaten_in, reappraise, settle
from stores.changes import Change, Edge
from stores.contest import open_conflict
from stores.ledger import Ledger
from stores.rows import VARIABLES, memory_from, select_memories
from stores.schema import conflicts, memories, versions
from stores.writer import Transaction


@dataclass(frozen=True, slots=True)
class Conflict:
    """An open conflict with its sides as they stand."""

    conflict_id: str
    rule: Rule
    reason: str | None
    opened_at: int
    seq: int
    one: Memory
    other: Memory


def open_conflicts(
    ledger: Ledger, caller: Caller, before: int | None, limit: int
) -> tuple[list[Conflict], int]:
    """The caller's open conflicts whose sides can both be read, newest first, those before event `before`;
    and how many there are in all."""
    with ledger.snapshot() as connection:
        query = _readable(caller)
        total = connection.scalar(query.with_only_columns(func.count())) or 0
        if before is not None:
            query = query.where(conflicts.c.seq < before)
        rows = connection.execute(query.order_by(conflicts.c.seq.desc()).limit(limit)).all()
        ids = [id for row in rows for id in (row.a_id, row.b_id)]
        sides: dict[str, Memory] = {}
        for start in range(0, len(ids), VARIABLES):
            wanted = memories.c.memory_id.in_(ids[start : start + VARIABLES])
            for found in connection.execute(select_memories().where(wanted)):
                memory = memory_from(found)
                sides[memory.memory_id] = memory
    return [_conflict(row, sides) for row in rows], total


def conflicts_of(ledger: Ledger, conflict_ids: Sequence[str]) -> list[Any]:
    """The rows of some conflicts, oldest first."""
    with ledger.snapshot() as connection:
        query = select(conflicts).where(conflicts.c.conflict_id.in_(list(conflict_ids)))
        return list(connection.execute(query.order_by(conflicts.c.seq)))


def mark(act: Act, transaction: Transaction, one_id: str, other_id: str, reason: str | None) -> str:
    """Open a conflict between two memories of one user that can be read. Returns its id; that of the open one
    where there is one. Raises MemoryNotFound, ConflictState or InvalidArgument."""
    if one_id == other_id:
        raise invalid("b", "must be another memory than a")
    one, other = (_side(act, transaction, memory_id) for memory_id in (one_id, other_id))
    if one.partition != other.partition:
        raise invalid("b", "is another user's: conflicts are one user's")
    conflict_id = open_conflict(act, transaction, one, other, "marked", reason)
    reappraise(act, transaction, [one_id, other_id])
    return conflict_id


def resolve(
    act: Act, transaction: Transaction, conflict_id: str, adopted: str | None, reason: str | None
) -> tuple[str, str]:
    """Close a conflict. The adopted side is current then and the other its history; with none, both stand.
    Returns the ids of both sides. Raises ConflictNotFound, ConflictState, InvalidArgument, and
    AuthorityNotAllowed when a side that would lose is of an authority beyond the caller's."""
    row = transaction.execute(select(conflicts).where(conflicts.c.conflict_id == conflict_id)).first()
    if row is None or not act.caller.reaches(Partition(row.product, row.agent, row.user)):
        raise ConflictNotFound(f"There is no conflict {conflict_id[:64]!r} here.")
    if row.resolved_at is not None:
        raise ConflictState(f"Conflict {conflict_id} was resolved already.")
    if adopted not in (None, row.a_id, row.b_id):
        raise invalid("adopted", f"must be {row.a_id} or {row.b_id}, the sides of the conflict")
    sides = [_side(act, transaction, memory_id) for memory_id in (row.a_id, row.b_id)]
    for side in sides:
        if side.memory_id != adopted:
            act.caller.check_change(side.source_authority)
    this = conflicts.c.conflict_id == conflict_id
    closed = {"resolved_at": transaction.now, "adopted": adopted, "resolution": reason}
    transaction.execute(update(conflicts).where(this).values(closed))
    between = Edge(row.a_id, "conflicts_with", row.b_id)
    seq = act.event(transaction, sides[0].partition, row.a_id, ("conflicts",))
    end_edges(transaction, (between,), seq)
    transaction.changes.append(Change(sides[0], unlinked=(between,)))
    reappraise(act, transaction, [side.memory_id for side in sides])
    _settle_sides(act, transaction, adopted, [side.memory_id for side in sides])
    return row.a_id, row.b_id


def _settle_sides(act: Act, transaction: Transaction, adopted: str | None, ids: Sequence[str]) -> None:
    sides = {memory.memory_id: memory for memory in alive(transaction, ids)}
    for memory_id in ids if adopted is None else [adopted]:
        side = sides[memory_id]
        if (lost_in := beaten_in(transaction, side)) is not None:
            raise ConflictState(
                f"Memory {memory_id} has lost conflict {lost_in} too; resolve that one first."
            )
        sides[memory_id] = act.change(transaction, side, replace(side.state, status="active"), ("status",))
    fallen = []
    if adopted is not None:
        [lost_id] = [memory_id for memory_id in ids if memory_id != adopted]
        winner, lost = sides[adopted], sides[lost_id]
        state = replace(lost.state, status="superseded", superseded_by=(adopted,))
        sides[lost_id] = act.change(transaction, lost, state, ("status", "superseded_by"))
        kept = replace(winner.state, supersedes=(*winner.state.supersedes, lost_id))
        link = Edge(adopted, "supersedes", lost_id)
        sides[adopted] = act.change(transaction, winner, kept, ("supersedes",), links=(link,))
        fallen.append(sides[lost_id])
    settle(act, transaction, list(sides.values()), fallen)


def _side(act: Act, transaction: Transaction, memory_id: str) -> Memory:
    """A side of a conflict, which has to be readable and current."""
    try:
        memory = act.find(transaction, memory_id)
    except MemoryForgotten:
        raise ConflictState(f"Memory {memory_id} was forgotten; restore it first.") from None
    if memory.state.status not in READABLE:
        raise ConflictState(f"Memory {memory_id} is {memory.state.status}, not current.")
    return memory


def _readable(caller: Caller) -> Select[Any]:
    one, other = versions.alias("one"), versions.alias("other")
    query = (
        select(conflicts)
        .join(one, and_(one.c.memory_id == conflicts.c.a_id, one.c.to_seq.is_(None)))
        .join(other, and_(other.c.memory_id == conflicts.c.b_id, other.c.to_seq.is_(None)))
        .where(
            conflicts.c.product == caller.scope.product,
            conflicts.c.agent == caller.scope.agent,
            conflicts.c.resolved_at.is_(None),
            one.c.status.in_(READABLE),
            other.c.status.in_(READABLE),
        )
    )
    return query if caller.user is None else query.where(conflicts.c.user == caller.user)


def _conflict(row: Any, sides: dict[str, Memory]) -> Conflict:
    return Conflict(
        row.conflict_id,
        row.rule,
        row.reason,
        row.opened_at,
        row.seq,
        sides[row.a_id],
        sides[row.b_id],
    )
