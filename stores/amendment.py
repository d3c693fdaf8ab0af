"""The writes that change what is there: replace, edit in place, hide, bring back. Chains have no cycles,
since only a new memory supersedes, and one head, since only a head can be superseded."""

from dataclasses import replace
from typing import Literal

from models.draft import Draft
from models.errors import ConflictState, invalid
from models.layers import Status
from models.memory import Memory, State
from models.quarantine import status_with
from models.verdict import judge
from stores.acts import Act
from stores.appraisal import READABLE, alive, beaten_in, reappraise, settle, touching
from stores.changes import Edge
from stores.contest import Contest, confront, rejoin
from stores.insertion import Stored, insert_memory
from stores.writer import Transaction

RESTORABLE = frozenset({"archived", "negated", "forgotten"})


def supersede(act: Act, transaction: Transaction, draft: Draft) -> Stored:
    """Store a draft against the memories that its state says it supersedes, and those whose facts it denies.
    Where the rule lets it, it is the new head of their chains; else it is filed as history, or a conflict is
    opened. Raises MemoryNotFound, ConflictState, LowerAuthority or InvalidArgument; then nothing is
    written."""
    olds = [act.find(transaction, memory_id) for memory_id in draft.memory.state.supersedes]
    for index, old in enumerate(olds):
        _check_replaceable(old, draft.memory, f"supersedes[{index}]")
    memory = replace(draft.memory, state=replace(draft.memory.state, supersedes=()))
    contest = Contest.of(transaction, memory, [(old, judge(memory, old)) for old in olds])
    contest.check(draft.on_conflict)
    memory = replace(memory, state=contest.state())
    stored = insert_memory(act, transaction, replace(draft, memory=memory))
    if not (contest.named or contest.denied or contest.agreeing):
        return stored
    [memory] = alive(transaction, [stored.memory_id])
    conflicts = contest.carry_out(act, transaction, memory)
    superseded = tuple(old.memory_id for old in contest.replaced)
    return replace(stored, superseded=superseded, conflicts=conflicts)


def _check_replaceable(old: Memory, new: Memory, field: str) -> None:
    if old.partition != new.partition:
        raise invalid(field, "is another user's; write as that user to replace it")
    if old.state.superseded_by:
        head = ", ".join(old.state.superseded_by)
        raise ConflictState(f"{field}: {old.memory_id} was superseded by {head}; supersede that one.")
    if old.state.status != "active":
        raise ConflictState(f"{field}: {old.memory_id} is {old.state.status}; restore it first.")
    if old.state.frame_key != new.state.frame_key:
        raise ConflictState(f"{field}: {old.memory_id} holds in another frame, {old.state.frame!r}.")


def edit(act: Act, transaction: Transaction, memory: Memory, state: State, fields: tuple[str, ...]) -> None:
    """Change tags, metadata, validity, doubt or frame in place. Raises ConflictState, or AuthorityNotAllowed
    when the memory is of an authority beyond the caller's."""
    act.caller.check_change(memory.source_authority)
    before = memory.state
    if state.frame_key != before.frame_key and (before.supersedes or before.superseded_by):
        raise ConflictState(f"Memory {memory.memory_id} is in a chain; its frame can't change.")
    moved = bool(memory.facts) and _place(state) != _place(before)
    agreed = list(touching(transaction, memory)) if moved else []  # where it held until now
    changed = act.change(transaction, memory, state, fields)
    if moved or state.stated_confidence != before.stated_confidence:
        reappraise(act, transaction, agreed)
        settle(act, transaction, [changed])
    if moved:
        [changed] = alive(transaction, [memory.memory_id])
        confront(act, transaction, changed)


def _place(state: State) -> tuple[str | None, int | None, int | None]:
    """Where and when a memory's facts hold."""
    return state.frame_key, state.valid_from, state.valid_until


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
    newer stands. Raises ConflictState, or AuthorityNotAllowed when the memory is of an authority beyond the
    caller's."""
    act.caller.check_change(memory.source_authority)
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
    hidden = act.change(transaction, memory, state, ("status",), unlinks=ended)
    fell = memory.state.status in READABLE
    settle(act, transaction, [hidden], [hidden] if fell else [])
    for one in alive(transaction, revived):
        settle(act, transaction, [one])
        if one.state.status == "active":
            rejoin(act, transaction, one.memory_id)
    return revived


def _revive(act: Act, transaction: Transaction, head: Memory) -> tuple[str, ...]:
    """Make the direct predecessors of a head active again; those that were hidden since stay so."""
    revived: list[str] = []
    for memory_id in head.state.supersedes:
        old = act.find(transaction, memory_id, forgotten=True)
        if old.state.status == "superseded":
            act.caller.check_change(old.source_authority)  # it may have been replaced by a decision
            left = tuple(id for id in old.state.superseded_by if id != head.memory_id)
            state = replace(old.state, status="superseded" if left else "active", superseded_by=left)
            act.change(transaction, old, state, ("status", "superseded_by"))
            revived.append(memory_id)
    return tuple(revived)


def bring_back(act: Act, transaction: Transaction, memory: Memory, reason: str | None) -> None:
    """Make an archived, negated or forgotten memory what its chain and its facts allow: active, superseded
    where something newer stands, or conflicted; or quarantined, as it was for its text. What was flagged
    meanwhile stays so. Raises ConflictState, or AuthorityNotAllowed when the memory is of an authority beyond
    the caller's."""
    act.caller.check_change(memory.source_authority)
    status = memory.state.status
    won = status == "conflicted" and beaten_in(transaction, memory) is None  # since the other side is gone
    if status not in RESTORABLE and not won:
        raise ConflictState(f"Memory {memory.memory_id} is {status}; there is nothing to restore.")
    state = replace(
        memory.state,
        status="superseded" if memory.state.superseded_by else _status_by_text(memory),
        status_reason=reason,
        provenance=replace(memory.state.provenance, forgotten_at=None),
    )
    back = act.change(transaction, memory, state, ("status",))
    settle(act, transaction, [back])
    if back.state.status == "active":
        rejoin(act, transaction, back.memory_id)


def _status_by_text(memory: Memory) -> Status:
    """Active, or quarantined: hiding a memory and bringing it back sets nothing free."""
    return status_with(memory.kind, "active", memory.state.provenance.sensitivity_reasons)
