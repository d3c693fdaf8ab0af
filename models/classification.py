"""Whether a memory may stand as current: the observations view's verdict, computed at each read and never
stored. One list of rules, in order; the first that holds decides."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from models.memory import Memory
from models.observation_view import evidence_of, source_class, type_of

Class = Literal[
    "current", "legacy_unverified", "quarantined", "expired", "superseded", "not_yet_valid", "inactive"
]

FLOOR = 0.80  # of the stated confidence
MUTABLE = frozenset({"decision", "architecture", "preference"})  # types of which a key has one current row


@dataclass(frozen=True, slots=True)
class Classification:
    name: Class
    reason: str

    @property
    def eligible(self) -> bool:
        """Whether it may stand in a context of what is current."""
        return self.name == "current"


def classify(memory: Memory | None, now: int, readable: Collection[str], *, rival: bool) -> Classification:
    """The class of a memory at `now`, epoch ms; None for a row that has vanished. `readable` has those of its
    evidence ids that name something which can be read in its scope; `rival` says that another current row has
    its project, type and key."""
    if memory is None:
        return Classification("legacy_unverified", "legacy_unverified_row_missing")
    state = memory.state
    ends = (state.valid_until, state.provenance.expires_at)
    if state.status == "quarantined":
        return Classification("quarantined", "status_quarantined")
    if any(end is not None and end <= now for end in ends):
        return Classification("expired", "validity_expired")
    if state.status == "superseded":
        return Classification("superseded", "status_superseded")
    if state.valid_from is not None and state.valid_from > now:
        return Classification("not_yet_valid", "validity_not_yet_started")
    if state.status != "active":
        return Classification("inactive", "status_inactive")
    if source_class(memory) == "user_prompt":
        return Classification("current", "current_eligible")
    missing = _unproved(memory, readable) or (
        "mutable_state_identity_missing" if rival and may_have_rivals(memory) else None
    )
    if missing is not None:
        return Classification("legacy_unverified", f"legacy_unverified_{missing}")
    return Classification("current", "current_eligible")


def may_have_rivals(memory: Memory) -> bool:
    """Whether another current row of its project, type and key would put it in doubt."""
    key = memory.state.provenance.topic_key
    keyed = type_of(memory) in MUTABLE and key is not None and bool(key.strip())
    return keyed and source_class(memory) != "user_prompt"


def _unproved(memory: Memory, readable: Collection[str]) -> str | None:
    """What a memory lacks that no person vouches for; None when it is proved."""
    state, evidence = memory.state, evidence_of(memory)
    if not evidence:
        return "provenance_missing"
    if any(one not in readable for one in evidence):
        return "provenance_malformed"
    if state.stated_confidence is None:
        return "confidence_missing"
    if state.stated_confidence < FLOOR:
        return "confidence_below_floor"
    if state.valid_from is None:
        return "validity_start_missing"
    return None
