"""Feedback: what callers say of a memory, heard once from each key."""

from dataclasses import replace

from models import history_clock
from models.confidence import appraised
from models.errors import ConflictState
from models.memory import Memory
from models.standing import MAX_VOICES, Verdict, Voice
from stores.acts import Act
from stores.amendment import bring_back
from stores.appraisal import READABLE, alive, settle
from stores.writer import Transaction

KEYLESS = ""  # the name of the voice of callers without a key


def hear(act: Act, transaction: Transaction, memory: Memory, verdict: Verdict) -> bool:
    """Take feedback on a memory.

        useful     raises the confidence a little; whoever may write may say so
        confirmed  raises it, and is a review: what was flagged is cleared, a negated memory is back
        outdated   halves it and makes the memory due for review
        wrong      negates the memory, as far as it is in use

    False when this key has said the same before and nothing changes. Raises ConflictState, or
    AuthorityNotAllowed when the memory is of an authority beyond the caller's."""
    if verdict != "useful":
        act.caller.check_change(memory.source_authority)
    before = memory
    if verdict == "confirmed" and memory.state.status == "negated":
        bring_back(act, transaction, memory, None)
        [memory] = alive(transaction, [memory.memory_id])
    state = memory.state
    standing, provenance = state.standing, state.provenance
    voice = Voice(verdict, act.caller.key_id or KEYLESS)
    taken_back = _OPPOSITE[verdict]
    voices = tuple(
        one for one in standing.voices if one.key_id != voice.key_id or one.verdict not in taken_back
    )
    if voice not in voices and len(voices) < MAX_VOICES:
        voices = (*voices, voice)
    standing = replace(standing, voices=voices)
    news = standing != state.standing or standing.fallen or provenance.review_due_at is not None
    if verdict == "confirmed" and news:
        standing = replace(standing, fallen=())
        provenance = history_clock.confirmed(provenance, transaction.now)
    elif verdict == "outdated" and provenance.review_due_at is None:
        provenance = replace(provenance, review_due_at=transaction.now)
    state = replace(state, provenance=provenance)
    if verdict == "wrong":
        if provenance.pinned_at is not None:
            raise ConflictState(f"Memory {memory.memory_id} is pinned; unpin it first.")
        if state.status in READABLE:
            state = replace(state, status="negated", status_reason="called wrong")
        elif state.status != "negated":
            raise ConflictState(f"Memory {memory.memory_id} is {state.status}, not in use.")
    state = appraised(replace(memory, state=state), standing)
    changed = act.change(transaction, memory, state, ("confidence", "status"))
    if state.status != memory.state.status:
        settle(act, transaction, [changed], [changed])
    return changed != before


# What a key says in the end counts: the one takes the other back.
_OPPOSITE: dict[Verdict, tuple[Verdict, ...]] = {
    "confirmed": ("outdated", "wrong"),
    "useful": (),
    "outdated": ("confirmed",),
    "wrong": ("confirmed", "useful"),
}
