"""The confidence in a memory, by one formula, with every contribution.

start   authority x kind of statement, or the writer's own value where that is lower
agreed  1 - (1 - start) * product of (1 - r): noisy-or over independent sources that agree (Pearl,
        Probabilistic Reasoning in Intelligent Systems, 1988, section 4.3.2), r their own start
heard   agreed + (1 - agreed) * (1 - 0.9^confirmed * 0.95^useful), times 0.5^outdated and, when it was
        called wrong, times 0.2
value   heard, and 0.5 at the most while a conflict is open with an equal authority or a higher one
"""

from dataclasses import dataclass, replace
from math import prod

from models.authority import Authority, Statement, initial_confidence
from models.memory import Memory, State
from models.standing import Standing

DRAWN = ("l3_summary", "l6_schema")  # layers whose memories are derived from their evidence
CONTESTED = 0.5
CONFIRMED, USEFUL, OUTDATED, WRONG = 0.9, 0.95, 0.5, 0.2


@dataclass(frozen=True, slots=True)
class Confidence:
    """`value`, 0..1, and what it was made of, in the order of the formula above."""

    value: float
    authority: Authority
    statement: Statement
    stated: float | None
    start: float
    agreed: float
    heard: float
    contested: bool


def statement_of(memory: Memory) -> Statement:
    """What a memory is said as. A summary or a schema is derived from what it rests on."""
    if memory.state.provenance.tier == "interpretation":
        return "interpretation"
    drawn = memory.layer in DRAWN and bool(memory.state.evidence_ids)
    return "derived" if drawn or memory.source_raw_memory_id is not None else "stated"


def confidence_of(memory: Memory) -> Confidence:
    """By the formula at the top."""
    state, standing = memory.state, memory.state.standing
    statement = statement_of(memory)
    start = start_of(memory)
    agreed = 1 - (1 - start) * prod(1 - one.reliability for one in standing.agreements)
    doubt = CONFIRMED ** standing.count("confirmed") * USEFUL ** standing.count("useful")
    heard = agreed + (1 - agreed) * (1 - doubt)
    heard *= OUTDATED ** standing.count("outdated") * WRONG ** min(1, standing.count("wrong"))
    value = min(CONTESTED, heard) if standing.contested else heard
    return Confidence(
        round(value, 6),
        memory.source_authority,
        statement,
        state.stated_confidence,
        start,
        round(agreed, 6),
        round(heard, 6),
        standing.contested,
    )


def start_of(memory: Memory) -> float:
    """What a memory says by itself: also how far it can be relied on as a source for others."""
    return initial_confidence(memory.source_authority, statement_of(memory), memory.state.stated_confidence)


def appraised(memory: Memory, standing: Standing) -> State:
    """The memory's state with this standing, and what follows from it: the confidence, whether it is a
    testimony, and that no sensitive memory is pinned for which nobody else vouches. An interpretation stays
    one, whoever agrees."""
    provenance = memory.state.provenance
    if provenance.tier != "interpretation":
        provenance = replace(provenance, tier="testimony" if standing.agreements else "archive")
    if provenance.security_sensitive and not standing.agreements:
        provenance = replace(provenance, pinned_at=None)
    state = replace(memory.state, standing=standing, provenance=provenance)
    value = confidence_of(replace(memory, state=state)).value
    return replace(state, confidence=value)
