"""Which of two memories stands when both can't: one rule for supersession, facts, conflicts and ranking."""

from dataclasses import dataclass
from typing import Literal

from models.authority import rank
from models.memory import Memory

# What becomes of a new memory against an old one: it replaces it, is filed as its history, loses to its
# authority, has the higher authority itself, or both stand. All but the first two are conflicts.
Verdict = Literal["replaces", "history", "loses", "outranks", "stands"]
Rule = Literal["later", "authority", "frame", "raw", "partial", "marked"]

CONFLICTS: frozenset[Verdict] = frozenset({"loses", "outranks", "stands"})

REASONS: dict[Rule, str] = {
    "later": "the later one stands: its authority is not lower",
    "authority": "a lower authority never replaces a higher one",
    "frame": "they hold in different frames: nothing is replaced across frames",
    "raw": "one of them is l1_raw: what was said is replaced by name only",
    "partial": "one of them asserts more than the other: to replace it would lose the rest",
    "marked": "somebody marked it",
}


@dataclass(frozen=True, slots=True)
class Ruling:
    verdict: Verdict
    rule: Rule


def judge(new: Memory, old: Memory) -> Ruling:
    """The later one replaces the earlier, by `memory_at` where both have one, else as they were written;
    unless its authority is lower: then it loses. The order in which two with times arrive never matters."""
    if _earlier(new, old):
        lower = rank(old.source_authority) < rank(new.source_authority)
        return Ruling("outranks", "authority") if lower else Ruling("history", "later")
    lower = rank(new.source_authority) < rank(old.source_authority)
    return Ruling("loses", "authority") if lower else Ruling("replaces", "later")


def judge_facts(new: Memory, old: Memory) -> Ruling:
    """The same of two memories that give different answers to one question."""
    if new.state.frame_key != old.state.frame_key:
        return Ruling("stands", "frame")
    if "l1_raw" in (new.layer, old.layer):
        return Ruling("stands", "raw")
    ruling = judge(new, old)
    asked = [{fact.key for fact in memory.facts} for memory in (new, old)]
    whole = {"replaces": asked[1] <= asked[0], "history": asked[0] <= asked[1]}
    return ruling if whole.get(ruling.verdict, True) else Ruling("stands", "partial")


def contradicts(one: Memory, other: Memory) -> bool:
    """Whether they give different answers to a question that has one answer at a time."""
    return _overlap(one, other) and any(
        mine.key == theirs.key
        and mine.object_key != theirs.object_key
        and (mine.single_valued or theirs.single_valued)
        for mine in one.facts
        for theirs in other.facts
    )


def agrees(one: Memory, other: Memory) -> bool:
    """Whether they assert a fact together, in one frame and at one time."""
    return (
        one.state.frame_key == other.state.frame_key
        and _overlap(one, other)
        and any(
            (mine.key, mine.object_key) == (theirs.key, theirs.object_key)
            for mine in one.facts
            for theirs in other.facts
        )
    )


def strength(memory: Memory) -> tuple[int, int, int, float, str]:
    """Orders the sides of a conflict: authority, then time (of the event, where it is known, and of writing),
    then confidence; the id settles what is equal in all."""
    at = memory.gmt_created if memory.memory_at is None else memory.memory_at
    return (
        rank(memory.source_authority),
        at,
        memory.gmt_created,
        memory.state.confidence,
        memory.memory_id,
    )


def proposal(one: Memory, other: Memory) -> tuple[Memory, str]:
    """Which side the rule would adopt, and why."""
    best, rest = sorted((one, other), key=strength, reverse=True)
    if best.source_authority != rest.source_authority:
        return best, f"{best.source_authority} stands above {rest.source_authority}"
    if strength(best)[1] != strength(rest)[1]:
        return best, "of equal authority, and later"
    return best, "of equal authority and time, and written later or more certain"


def _earlier(new: Memory, old: Memory) -> bool:
    """Whether the new one comes first. What is not stored yet has no `seq`, and is written last."""
    if new.memory_at is not None and old.memory_at is not None and new.memory_at != old.memory_at:
        return new.memory_at < old.memory_at
    return 0 < new.seq < old.seq


def _overlap(one: Memory, other: Memory) -> bool:
    """Whether their times of validity, the end exclusive, meet."""
    a, b = one.state, other.state
    return _before(a.valid_from, b.valid_until) and _before(b.valid_from, a.valid_until)


def _before(start: int | None, end: int | None) -> bool:
    return start is None or end is None or start < end
