"""The writes of the history view that move a memory on its axes: stage, anchor, sensitivity, review. Each
raises MemoryNotFound, AuthorityNotAllowed when the memory is of an authority beyond the caller's, and
ConflictState when the memory's state does not allow it."""

from dataclasses import replace
from typing import Literal

from sqlalchemy import bindparam

from models import history_clock
from models.confidence import appraised
from models.draft import Draft
from models.errors import ConflictState, CorroborationRequired, NotConsolidated
from models.injection import scan_label
from models.memory import Memory
from models.provenance import Provenance, guarded
from stores.acts import Act
from stores.amendment import bring_back
from stores.appraisal import READABLE, alive
from stores.hearing import hear
from stores.insertion import IN_PARTITION
from stores.rows import memory_from, select_memories
from stores.schema import memories
from stores.writer import Transaction

FLAGGED = "flagged"  # the reason of a mark that somebody set

_WITH_CONTENT = select_memories().where(IN_PARTITION, memories.c.content_key == bindparam("content_key"))


def earlier_equal(transaction: Transaction, draft: Draft) -> str | None:
    """The id of the first active memory of the frame that says the same as a new one."""
    product, agent, user = draft.memory.partition
    asked = {"product": product, "agent": agent, "user": user, "content_key": draft.content_key}
    found = [memory_from(row) for row in transaction.execute(_WITH_CONTENT, asked)]
    frame = draft.memory.state.frame_key
    equal = [one for one in found if one.state.status == "active" and one.state.frame_key == frame]
    return min(equal, key=lambda one: one.seq).memory_id if equal else None


def live(act: Act, transaction: Transaction, memory_id: str) -> Memory:
    """A memory that is to be changed: in reach, not forgotten, and not above the caller's authority."""
    memory = act.find(transaction, memory_id, forgotten=True)
    if memory.hidden:
        raise ConflictState(f"Memory {memory_id} was forgotten; restore it first.")
    act.caller.check_change(memory.source_authority)
    return memory


def promote(act: Act, transaction: Transaction, memory_id: str) -> Memory:
    """Working becomes consolidated; never back. Raises CorroborationRequired for a sensitive one that nobody
    else vouches for."""
    memory = live(act, transaction, memory_id)
    if memory.state.status not in READABLE:
        raise ConflictState(f"Memory {memory_id} is {memory.state.status}, not current.")
    provenance = memory.state.provenance
    if provenance.stage == "consolidated":
        return memory
    at, why = transaction.now, act.reason
    # The reason is shown beside the text from now on, and may be written to be obeyed as well.
    provenance = guarded(provenance, scan_label(why or ""))
    _check_corroborated(memory, provenance, "promoted")
    provenance = replace(provenance, stage="consolidated", consolidated_at=at, consolidation_reason=why)
    return _put(act, transaction, memory, provenance, "stage")


def pin(act: Act, transaction: Transaction, memory_id: str) -> Memory:
    """Make a memory an anchor. Raises NotConsolidated, and CorroborationRequired as `promote`."""
    memory = live(act, transaction, memory_id)
    if memory.state.status != "active":
        raise ConflictState(f"Memory {memory_id} is {memory.state.status}, not active.")
    provenance = memory.state.provenance
    if provenance.stage != "consolidated":
        raise NotConsolidated(f"Memory {memory_id} is working; only what was promoted can be pinned.")
    _check_corroborated(memory, provenance, "pinned")
    if provenance.pinned_at is not None:
        return memory
    return _put(act, transaction, memory, replace(provenance, pinned_at=transaction.now), "pinned")


def unpin(act: Act, transaction: Transaction, memory_id: str) -> Memory:
    """Take the anchor away; nothing happens when there is none."""
    memory = live(act, transaction, memory_id)
    return _put(act, transaction, memory, replace(memory.state.provenance, pinned_at=None), "pinned")


def flag(act: Act, transaction: Transaction, memory_id: str) -> tuple[Memory, bool]:
    """Mark a memory as sensitive. Says whether it lost its pin by that."""
    memory = live(act, transaction, memory_id)
    provenance = memory.state.provenance
    reasons = tuple(dict.fromkeys((*provenance.sensitivity_reasons, FLAGGED)))
    provenance = replace(provenance, security_sensitive=True, sensitivity_reasons=reasons)
    marked = _put(act, transaction, memory, provenance, "security_sensitive")
    return marked, lost_pin(memory, marked)


def clear(act: Act, transaction: Transaction, memory_id: str) -> Memory:
    """Take the mark away, with its reasons."""
    memory = live(act, transaction, memory_id)
    provenance = replace(memory.state.provenance, security_sensitive=False, sensitivity_reasons=())
    return _put(act, transaction, memory, provenance, "security_sensitive")


def lost_pin(before: Memory, after: Memory) -> bool:
    """Whether a memory was pinned and is not any more."""
    pinned = [one.state.provenance.pinned_at is not None for one in (before, after)]
    return pinned == [True, False]


def review(
    act: Act, transaction: Transaction, memory_id: str, verdict: Literal["confirm", "challenge"]
) -> Memory:
    """Hear what a review found, as feedback is heard, and set the clock. Raises ConflictState for a memory
    that asks for no review."""
    memory = live(act, transaction, memory_id)
    if not history_clock.asks(memory.state.provenance, memory.state.standing):
        raise ConflictState(f"Memory {memory_id} asks for no review: it is no interpretation.")
    hear(act, transaction, memory, "confirmed" if verdict == "confirm" else "outdated")
    [heard] = alive(transaction, [memory_id])
    if verdict == "confirm":
        return heard
    doubted = history_clock.challenged(heard.state.provenance, transaction.now)
    return _put(act, transaction, heard, doubted, "review_due_at")


def restore(act: Act, transaction: Transaction, memory_id: str) -> None:
    """Bring a forgotten memory back, as what its chain and its facts allow."""
    memory = act.find(transaction, memory_id, forgotten=True)
    act.caller.check_change(memory.source_authority)
    if memory.state.status != "forgotten":
        undo = "; brain_memory_restore undoes that" if memory.state.status in ("archived", "negated") else ""
        raise ConflictState(f"Memory {memory_id} is {memory.state.status}, not forgotten{undo}.")
    bring_back(act, transaction, memory, act.reason)


def _check_corroborated(memory: Memory, provenance: Provenance, done: str) -> None:
    if provenance.security_sensitive and not memory.state.standing.agreements:
        before = memory.state.provenance.security_sensitive
        given = "Memory" if before else "With a reason that gives orders memory"
        raise CorroborationRequired(
            f"{given} {memory.memory_id} is security_sensitive and can't be {done} before an independent "
            "source corroborates it."
        )


def _put(act: Act, transaction: Transaction, memory: Memory, provenance: Provenance, field: str) -> Memory:
    placed = replace(memory, state=replace(memory.state, provenance=provenance))
    return act.change(transaction, memory, appraised(placed, memory.state.standing), (field,))
