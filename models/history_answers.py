"""What is answered in the history view. Times are ISO 8601 texts in UTC; see `models.answers`."""

from typing import Annotated, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from models.answers import Timed
from models.authority import Authority
from models.layers import Layer
from models.provenance import MaterialType, Tier
from models.sources import Why

_closed = with_config(ConfigDict(extra="forbid"))
_Replayed = Annotated[bool, Field(description="True on a repeat with the same idempotency key")]
_Total = Annotated[int, Field(ge=0, description="How many there are in all")]
_Unpinned = Annotated[bool, Field(description="True when it lost its pin, which nobody else supports now")]


@_closed
class HistoryFields(TypedDict):
    """A memory as the history view shows it."""

    id: Annotated[str, Field(description="Id of this memory; the same in every view")]
    memory_id: Annotated[str, Field(description="The same id, by the name of the other views")]
    content: Annotated[str, Field(description="The text, as it was given")]
    source: Annotated[str | None, Field(description="Who or what it comes from, as given")]
    tier: Annotated[Tier, Field(description="archive, testimony (corroborated) or interpretation")]
    security_sensitive: Annotated[bool, Field(description="It needs corroboration to be promoted or pinned")]
    sensitivity_reasons: Annotated[list[str], Field(description="Which rules, or who, marked it")]
    frame: Annotated[str | None, Field(description="The social frame that it holds in")]
    event_at: Annotated[str | None, Field(description="When it happened, UTC; null when unknown")]
    session_id: str | None
    session_position: int | None
    material_type: MaterialType
    origin_id: Annotated[str | None, Field(description="The original that it repeats")]
    capture_context: str | None
    status: Annotated[
        str, Field(description="working, consolidated, superseded, conflicted, negated or archived")
    ]
    created_at: Annotated[str, Field(description="When it was captured")]
    consolidated_at: str | None
    consolidation_reason: str | None
    pinned: bool
    pinned_at: str | None
    review_status: Annotated[str, Field(pattern="^(current|due)$", description="due: look at it again")]
    review_due_at: str | None
    last_reviewed_at: str | None
    forgotten_at: Annotated[str | None, Field(description="null: what is forgotten is not shown")]
    forgotten_reason: str | None
    conflicts: Annotated[list[str], Field(description="Ids of the open conflicts that it stands in")]
    corroborations: Annotated[int, Field(ge=0, description="How many independent sources agree")]
    layer: Layer
    confidence: Annotated[float, Field(ge=0, le=1)]
    source_authority: Authority


@_closed
class RememberAnswer(HistoryFields, Timed):
    duplicate_of: Annotated[str | None, Field(description="Id of an earlier memory with an equal text")]
    indexed: Annotated[bool, Field(description="True when search by meaning finds it now; words always do")]
    replayed: NotRequired[_Replayed]


@_closed
class ActAnswer(Timed):
    memory: Annotated[HistoryFields, Field(description="The memory as it now stands")]
    replayed: NotRequired[_Replayed]


@_closed
class PinAnswer(ActAnswer):
    pins: Annotated[int, Field(ge=0, description="How many are pinned")]
    warning: Annotated[str | None, Field(description="Over 12 pins: not all have a place in recall")]


@_closed
class UnpinningAnswer(ActAnswer):
    unpinned: _Unpinned


@_closed
class CorroborateAnswer(ActAnswer):
    changed: Annotated[bool, Field(description="False when this source was recorded before")]


@_closed
class ForgetAnswer(Timed):
    id: str
    memory_id: str
    status: Annotated[str, Field(pattern="^forgotten$")]
    forgotten_at: str
    forgotten_reason: str
    due_for_review: Annotated[list[str], Field(description="Ids of what rests on it, at most 100")]
    replayed: NotRequired[_Replayed]


@_closed
class Corroboration(TypedDict):
    """One source that was named as agreeing. What is forgotten shows its id only."""

    memory_id: Annotated[str | None, Field(description="The memory that agrees; null for a bare label")]
    source: str | None
    origin_id: str | None
    at: Annotated[str | None, Field(description="When it was named, for a label")]
    counted: bool
    why: Annotated[Why | None, Field(description="Why it counts or not; null when the memory is not current")]


@_closed
class ProvenanceAnswer(Timed):
    id: str
    memory_id: str
    tier: Tier
    source: str | None
    origin_id: str | None
    source_known: Annotated[bool, Field(description="False: one of those who agree may be its own source")]
    material_type: MaterialType
    capture_context: str | None
    event_at_as_written: str | None
    independent: Annotated[int, Field(ge=0, description="How many independent sources count")]
    corroborations: list[Corroboration]
    independence_verified: Annotated[bool, Field(description="Always false: labels are what callers say")]
    security_sensitive: bool
    may_be_pinned: Annotated[bool, Field(description="Whether the gate for sensitive memories is open")]


@_closed
class Stale(TypedDict):
    id: str
    content: str
    frame: str | None
    tier: Tier
    pinned: Annotated[bool, Field(description="An anchor that has lost its place until it is reviewed")]
    review_due_at: str


@_closed
class Contradiction(TypedDict):
    """Ids only: a side may hold in another frame."""

    id: str
    sides: Annotated[list[str], Field(min_length=2, max_length=2)]
    rule: str
    opened_at: str


@_closed
class Recalled(HistoryFields):
    score: Annotated[float | None, Field(description="How relevant, 0..1; null without a query")]


@_closed
class Totals(TypedDict):
    """How many there are in all; the lists are cut."""

    anchors: int
    stale_interpretations: int
    conflicts: int


@_closed
class RecallAnswer(Timed):
    anchors: Annotated[list[HistoryFields], Field(description="Pinned memories, 12 at the most")]
    memories: Annotated[list[Recalled], Field(description="The best of the others, best first")]
    stale_interpretations: Annotated[list[Stale], Field(description="Due for review, most overdue first")]
    conflicts: Annotated[list[Contradiction], Field(description="Open ones of what is shown, newest first")]
    totals: Totals
    abstained: Annotated[bool, Field(description="True when nothing stored is relevant")]
    degraded: Annotated[bool, Field(description="True when a part of the search could not take part")]
    degraded_reason: NotRequired[str]


@_closed
class DueAnswer(Timed):
    memories: Annotated[list[HistoryFields], Field(description="Most overdue first")]
    total: _Total


@_closed
class Queued(HistoryFields):
    group: Annotated[int | None, Field(description="The same for related memories; null for one alone")]


@_closed
class QueueAnswer(Timed):
    memories: Annotated[list[Queued], Field(description="Oldest first")]
    total: _Total


@_closed
class MarkAnswer(Timed):
    id: Annotated[str, Field(description="The open conflict between the two; the same in both orders")]
    sides: Annotated[list[str], Field(min_length=2, max_length=2)]
    replayed: NotRequired[_Replayed]


@_closed
class SettleAnswer(MarkAnswer):
    adopted: Annotated[str | None, Field(description="The side that is current; null: both stand")]
    memories: Annotated[list[HistoryFields], Field(description="Both sides as they now stand")]


@_closed
class FrameCount(TypedDict):
    frame: Annotated[str | None, Field(description="As it was first spelled; null: no frame")]
    memories: Annotated[int, Field(ge=1, description="How many hold in it")]


@_closed
class FramesAnswer(Timed):
    frames: Annotated[list[FrameCount], Field(description="Those with most memories first")]
    total: _Total


@_closed
class TimelineAnswer(Timed):
    memories: Annotated[
        list[HistoryFields], Field(description="Earliest event first; of unknown time last, as captured")
    ]
    next_cursor: Annotated[str | None, Field(description="For the next page; null on the last")]
    total: _Total
    unknown: Annotated[int, Field(ge=0, description="How many are of unknown time; a span leaves them out")]
