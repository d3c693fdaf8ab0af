"""What the observations view answers. The details of `get_observations` are to the letter what its contract
publishes, without words of ours; times are epoch seconds."""

from typing import Annotated, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypeAliasType, TypedDict

from models.answers import Timed

_closed = with_config(ConfigDict(extra="forbid"))
Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]
Double = Annotated[float, Field(json_schema_extra={"format": "double"})]
_Replayed = Annotated[bool, Field(description="True on a repeat with the same idempotency key")]


@_closed
class MemoryTemporalFactOutput(TypedDict):
    project: str
    subject: str
    predicate: str
    object: str
    learned_at_epoch: Int64
    confidence: Double
    status: str
    valid_from_epoch: NotRequired[Int64 | None]
    valid_to_epoch: NotRequired[Int64 | None]


@_closed
class TopicTraceOutput(TypedDict):
    id: Int64
    topic_key: str
    title: str
    summary: str
    status: str
    segment_index: Int64
    covered_from_event_id: Int64
    covered_to_event_id: Int64
    evidence_event_ids: list[Int64]
    created_at_epoch: Int64
    updated_at_epoch: Int64
    files: NotRequired[list[str] | None]


@_closed
class MemoryDetailOutput(TypedDict):
    id: Int64
    project: str
    title: str
    text: str
    memory_type: str
    created_at_epoch: Int64
    updated_at_epoch: Int64
    status: str
    scope: str
    classification: str
    classification_reason: str
    current_context_eligible: bool
    session_id: NotRequired[str | None]
    topic_key: NotRequired[str | None]
    files: NotRequired[str | None]
    branch: NotRequired[str | None]
    temporal_facts: NotRequired[list[MemoryTemporalFactOutput] | None]
    topic_trace: NotRequired[list[TopicTraceOutput] | None]


@_closed
class CompressedObservationSourceOutput(TypedDict):
    compressed_observation_id: Int64
    source_observation_id: Int64
    source_hash: str
    source_created_at_epoch: Int64
    compression_session_id: str
    created_at_epoch: Int64


@_closed
class ObservationDetailOutput(TypedDict):
    id: Int64
    memory_session_id: str
    type: str
    created_at: str
    created_at_epoch: Int64
    status: str
    title: NotRequired[str | None]
    subtitle: NotRequired[str | None]
    narrative: NotRequired[str | None]
    facts: NotRequired[str | None]
    concepts: NotRequired[str | None]
    files_read: NotRequired[str | None]
    files_modified: NotRequired[str | None]
    discovery_tokens: NotRequired[Int64 | None]
    project: NotRequired[str | None]
    last_accessed_epoch: NotRequired[Int64 | None]
    content_session_id: NotRequired[str | None]
    branch: NotRequired[str | None]
    commit_sha: NotRequired[str | None]
    compressed_sources: NotRequired[list[CompressedObservationSourceOutput] | None]


@_closed
class SessionSummaryDetailOutput(TypedDict):
    id: Int64
    memory_session_id: str
    created_at: str
    created_at_epoch: Int64
    project: NotRequired[str | None]
    request: NotRequired[str | None]
    completed: NotRequired[str | None]
    decisions: NotRequired[str | None]
    learned: NotRequired[str | None]
    next_steps: NotRequired[str | None]
    preferences: NotRequired[str | None]


DetailOutput = TypeAliasType(
    "DetailOutput", MemoryDetailOutput | ObservationDetailOutput | SessionSummaryDetailOutput
)


@_closed
class ObservationDetailsOutput(TypedDict):
    details: list[DetailOutput]


@_closed
class Written(Timed):
    """A row that was stored. `id` is the number that the observations view calls it by."""

    id: Annotated[int, Field(description="Its id among its kind, for `get_observations`")]
    memory_id: Annotated[str, Field(description="Its id in the brain view")]
    status: Annotated[str, Field(description="`active`, or `quarantined` when its text gives orders")]
    sensitivity_reasons: Annotated[
        list[str], Field(description="Rules that mark its text; empty for most texts")
    ]
    indexed: Annotated[bool, Field(description="True when search by meaning finds it now; words always do")]
    replayed: NotRequired[_Replayed]


@_closed
class CompressAnswer(Written):
    compressed: Annotated[list[int], Field(description="Ids of the observations that it stands for now")]


@_closed
class SummaryAnswer(Written):
    session_intent: Annotated[str | None, Field(description="The session's label now, a code; null for none")]
    session_topic: Annotated[str | None, Field(description="The session's label now, secrets redacted")]
    session_intent_source: Annotated[
        str | None, Field(description="`summary`, `override`, or null without a label")
    ]


@_closed
class LabelAnswer(Timed):
    id: Annotated[int, Field(description="The session summary")]
    session_intent: Annotated[str | None, Field(description="The code that stands now")]
    session_topic: Annotated[str | None, Field(description="The topic that stands now, secrets redacted")]
    session_intent_source: Annotated[str, Field(description="Always `override`")]
    replayed: NotRequired[_Replayed]


@_closed
class SaveAnswer(Written):
    project: str
    version: Annotated[int, Field(description="For `expected_versions` of `govern_memory`")]
    topic_key: str | None
    superseded: Annotated[list[int], Field(description="Ids that the replaced memories have now")]
    conflicts: Annotated[list[str], Field(description="Ids of the conflicts that it opened")]


@_closed
class Governed(TypedDict):
    id: int
    memory_id: str
    status: Annotated[str, Field(description="The status then; with `dry_run` the one that it would have")]
    version: Annotated[int, Field(description="The version then; with `dry_run` the present one")]


@_closed
class GovernAnswer(Timed):
    action: str
    dry_run: bool
    memories: Annotated[list[Governed], Field(description="By id, ascending")]
    replayed: NotRequired[_Replayed]


@_closed
class SuppressionAnswer(Timed):
    target: str
    suppressed: Annotated[bool, Field(description="Whether it hides rows now")]
    changed: Annotated[bool, Field(description="False when it was so before")]
    replayed: NotRequired[_Replayed]


@_closed
class Compact(TypedDict):
    """A row in few words; `get_observations` with its `id` and `source` has the rest."""

    id: int
    source: Annotated[str, Field(description="For `get_observations`, with the id")]
    memory_id: Annotated[str, Field(description="Its id in the brain view")]
    title: str
    type: Annotated[str, Field(description="`type` of an observation, `memory_type` of a memory")]
    project: Annotated[str | None, Field(description="null when it belongs to none")]
    status: str
    created_at_epoch: Annotated[int, Field(description="Epoch seconds")]
    classification: NotRequired[Annotated[str, Field(description="Of memories: `current`, or why it is not")]]


@_closed
class Result(Compact):
    score: Annotated[float, Field(ge=0, le=1, description="How well it answers; compare within one answer")]
    matched_by: Annotated[list[str], Field(description="What found it: vector, words, identifier")]


@_closed
class SearchObservationsAnswer(Timed):
    results: Annotated[list[Result], Field(description="Best first")]
    degraded: Annotated[bool, Field(description="True when only words could be searched")]
    degraded_reason: NotRequired[Annotated[str, Field(description="Why")]]


@_closed
class TimelineAnswer(Timed):
    anchor: Annotated[Compact | None, Field(description="null when the query found nothing")]
    before: Annotated[list[Compact], Field(description="Earlier ones, in the order of (time, id)")]
    after: Annotated[list[Compact], Field(description="Later ones, in the order of (time, id)")]
