"""What rests on a memory: what was derived from it, and what it is evidence for. When it falls, they are
flagged, and stay so until somebody has reviewed them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sqlalchemy import Connection, or_, select

from models.memory import Memory, State
from models.standing import MAX_FALLEN
from stores.acts import Act
from stores.rows import VARIABLES, memory_from, select_memories
from stores.schema import edges, memories, versions
from stores.writer import Transaction

MAX_FLAGGED = 1_000  # memories in one act, nearest first


def dependents(connection: Connection, fallen: Sequence[Memory], limit: int | None = None) -> list[Memory]:
    """What rests on these memories, directly or on what does, nearest first; `limit` None: all."""
    seen = {memory.memory_id for memory in fallen}
    found: list[Memory] = []
    front = list(fallen)
    while front and (limit is None or len(found) < limit):
        front = [memory for memory in resting_on(connection, front) if memory.memory_id not in seen]
        front = list({memory.memory_id: memory for memory in front}.values())
        seen |= {memory.memory_id for memory in front}
        found += front
    return found[:limit]


def resting_on(connection: Connection, on: Sequence[Memory]) -> Iterator[Memory]:
    """What was derived from these memories or has them as evidence; tombstones left out."""
    ids = [memory.memory_id for memory in on]
    for start in range(0, len(ids), VARIABLES):
        some = ids[start : start + VARIABLES]
        derived = select(edges.c.from_id).where(edges.c.type == "derived_from", edges.c.to_id.in_(some))
        proved = select(edges.c.to_id).where(edges.c.type == "evidence_for", edges.c.from_id.in_(some))
        own = or_(
            memories.c.memory_id.in_(derived.where(edges.c.to_seq.is_(None))),
            memories.c.memory_id.in_(proved.where(edges.c.to_seq.is_(None))),
        )
        for row in connection.execute(select_memories().where(own, versions.c.status != "purged")):
            yield memory_from(row)


def flag_dependents(
    act: Act, transaction: Transaction, fallen: Sequence[Memory], but: str | None = None
) -> None:
    """Mark what rests on memories that are superseded, hidden or contested now: it is due for review. Not
    `but`, which has replaced them and knows."""
    for one in fallen:
        transaction.flush()
        resting = dependents(transaction.connection, [one], MAX_FLAGGED)
        flag(act, transaction, [memory for memory in resting if memory.memory_id != but], [one.memory_id])


def fell(memory: Memory) -> bool:
    """Whether what rests on this memory is due for review, now that it rests on it."""
    standing = memory.state.standing
    return memory.state.status != "active" or standing.contested or bool(standing.fallen)


def flag(act: Act, transaction: Transaction, resting: Iterable[Memory], fallen: Sequence[str]) -> None:
    """Mark memories as resting on what has fallen, by its ids."""
    for memory in resting:
        state = flagged(memory.state, fallen, transaction.now)
        act.change(transaction, memory, state, ("review_due_at",))


def flagged(state: State, fallen: Sequence[str], now: int) -> State:
    """The state of a memory that rests on what has fallen, by its ids: due for review, now (epoch ms) at the
    latest."""
    standing, provenance = state.standing, state.provenance
    ids = tuple(dict.fromkeys((*standing.fallen, *fallen)))[:MAX_FALLEN]
    due = now if provenance.review_due_at is None else min(provenance.review_due_at, now)
    return replace(
        state,
        standing=replace(standing, fallen=ids),
        provenance=replace(provenance, review_due_at=due),
    )
