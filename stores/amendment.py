"""The writes that change what is there: replace, edit in place, hide, bring back. Chains have no cycles,
since only a new memory supersedes, and one head, since only a head can be superseded."""

from dataclasses import replace
from typing import Literal

from models.authority import rank
from models.draft import Draft
from models.errors import ConflictState, ImmutableLayer, LowerAuthority, invalid
from models.memory import Memory, State
from stores.acts import Act
from stores.changes import Edge
from stores.insertion import Stored, insert_memory
from stores.writer import Transaction

RESTORABLE = frozenset({"archived", "negated", "forgotten"})


def supersede(act: Act, transaction: Transaction, draft: Draft) -> Stored:
    """Store a draft as the new head of the chains of the memories that its state says it supersedes. Raises
    MemoryNotFound, ConflictState, LowerAuthority, ImmutableLayer or InvalidArgument; then nothing is
    written."""
    olds = [act.find(transaction, memory_id) for memory_id in draft.memory.state.supersedes]
    for index, old in enumerate(olds):
        _check_replaceable(old, draft.memory, f"supersedes[{index}]")
    stored = insert_memory(act, transaction, draft)
    for old in olds:
        state = replace(old.state, status="superseded", superseded_by=(stored.memory_id,))
        act.change(transaction, old, state, ("status", "superseded_by"))
    return stored


def _check_replaceable(old: Memory, new: Memory, field: str) -> None:
    if old.partition != new.partition:
        raise invalid(field, "is another user's; write as that user to replace it")
    if old.layer == "l1_raw":
        raise ImmutableLayer(f"{field}: {old.memory_id} is l1_raw, what was said.")
    if old.state.superseded_by:
        head = ", ".join(old.state.superseded_by)
        raise ConflictState(f"{field}: {old.memory_id} was superseded by {head}; supersede that one.")
    if old.state.status != "active":
        raise ConflictState(f"{field}: {old.memory_id} is {old.state.status}; restore it first.")
    if old.state.frame != new.state.frame:
        raise ConflictState(f"{field}: {old.memory_id} holds in another frame, {old.state.frame!r}.")
    if rank(new.source_authority) < rank(old.source_authority):
        raise LowerAuthority(
            f"{field}: {old.memory_id} is {old.source_authority}, the new memory {new.source_authority}."
        )


def edit(act: Act, transaction: Transaction, memory: Memory, state: State, fields: tuple[str, ...]) -> None:
    """Change tags, metadata, validity, doubt or frame in place. Raises ConflictState."""
    if state.frame != memory.state.frame and (memory.state.supersedes or memory.state.superseded_by):
        raise ConflictState(f"Memory {memory.memory_id} is in a chain; its frame can't change.")
    act.change(transaction, memory, state, fields)


def hide(
    act: Act,
    transaction: Transaction,
    memory: Memory,
    mode: Literal["forget", "archive"],
    reason: str | None,
    *,
    revive: bool,
) -> tuple[str, ...]:
    """Forget or archive a memory. Returns the ids that `revive` made current again: none, where something
    newer stands. Raises ConflictState."""
    if memory.state.provenance.pinned_at is not None:
        raise ConflictState(f"Memory {memory.memory_id} is pinned; unpin it first.")
    forgotten_at = transaction.now if mode == "forget" else None
    state = replace(
        memory.state,
        status="forgotten" if mode == "forget" else "archived",
        status_reason=reason,
        provenance=replace(memory.state.provenance, forgotten_at=forgotten_at),
    )
    revived = _revive(act, transaction, memory) if revive and memory.is_latest else ()
    ended = tuple(Edge(memory.memory_id, "supersedes", old) for old in revived)
    if revived:
        left = tuple(id for id in state.supersedes if id not in revived)
        state = replace(state, supersedes=left)
    act.change(transaction, memory, state, ("status",), unlinks=ended)
    return revived


def _revive(act: Act, transaction: Transaction, head: Memory) -> tuple[str, ...]:
    """Make the direct predecessors of a head active again; those that were hidden since stay so."""
    revived: list[str] = []
    for memory_id in head.state.supersedes:
        old = act.find(transaction, memory_id, forgotten=True)
        if old.state.status == "superseded":
            left = tuple(id for id in old.state.superseded_by if id != head.memory_id)
            state = replace(old.state, status="superseded" if left else "active", superseded_by=left)
            act.change(transaction, old, state, ("status", "superseded_by"))
            revived.append(memory_id)
    return tuple(revived)


def bring_back(act: Act, transaction: Transaction, memory: Memory, reason: str | None) -> None:
    """Make an archived, negated or forgotten memory what its chain allows: active, or superseded where
    something newer stands. Raises ConflictState."""
    if memory.state.status not in RESTORABLE:
        raise ConflictState(
            f"Memory {memory.memory_id} is {memory.state.status}; there is nothing to restore."
        )
    state = replace(
        memory.state,
        status="superseded" if memory.state.superseded_by else "active",
        status_reason=reason,
        provenance=replace(memory.state.provenance, forgotten_at=None),
    )
    act.change(transaction, memory, state, ("status",))
