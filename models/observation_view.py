"""A record as the observations view names it: its source, type, title, times and status. All pure; times of
the record are epoch ms, those that are shown epoch seconds."""

from datetime import UTC, datetime, timedelta
from typing import Literal

from models.layers import Layer, Status
from models.memory import Memory
from models.provenance import Covered, MemoryDetails, ObservationDetails, SummaryDetails

Source = Literal["memory", "observation", "session_summary"]
ObservationType = Literal["bugfix", "feature", "refactor", "discovery", "decision", "change"]
SourceClass = Literal["user_prompt", "agent"]

SOURCES: tuple[Source, ...] = ("memory", "observation", "session_summary")
SECOND = 1_000  # ms
TITLE = 80  # characters of a first line that stands for a title
COMPRESSED, STALE, DELETED = "compressed", "stale", "deleted"  # reasons of an archived row that are a status

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BY_REASON = frozenset({COMPRESSED, STALE, DELETED, "expired"})
_STATUS: dict[Status, str] = {"negated": "rejected"}
_TYPES: dict[Layer, str] = {
    "l0_basic_info": "profile",
    "l1_raw": "raw",
    "l2_fact": "fact",
    "l3_summary": "summary",
    "l4_identity": "preference",
    "l5_knowledge": "knowledge",
    "l6_schema": "pattern",
    "l7_intention": "intention",
}
_LAYERS: dict[str, Layer] = {
    "preference": "l4_identity",
    "architecture": "l5_knowledge",
    "procedure": "l5_knowledge",
    "lesson": "l5_knowledge",
}


def layer_of(memory_type: str) -> Layer:
    """The layer that a saved memory of a type goes to."""
    return _LAYERS.get(memory_type, "l2_fact")


def details_of(memory: Memory) -> MemoryDetails:
    """A memory's details; the defaults for one that the brain view wrote."""
    return memory.details if isinstance(memory.details, MemoryDetails) else MemoryDetails()


def type_of(memory: Memory) -> str:
    """`type` of an observation, `memory_type` of a memory: the writer's word, else by its layer."""
    if isinstance(memory.details, ObservationDetails):
        return memory.details.type
    return details_of(memory).memory_type or _TYPES[memory.layer]


def title_of(memory: Memory) -> str:
    """The writer's title, else the first line of the text, cut at 80 characters."""
    details = memory.details
    given = getattr(details, "topic" if isinstance(details, SummaryDetails) else "title", None)
    return given or first_line(memory.content)


def first_line(text: str) -> str:
    """The first line that says something, cut at 80 characters."""
    return next((line for line in text.strip().splitlines() if line.strip()), "").strip()[:TITLE]


def made_at(memory: Memory) -> int:
    """When it was made, as its writer says, else when it was written; epoch ms."""
    stated = details_of(memory).created_at if memory.kind == "memory" else memory.memory_at
    return memory.gmt_created if stated is None else stated


def updated_at(memory: Memory, changed_at: int) -> int:
    """When it was changed last; when it was made, while it stands as it was written. Epoch ms."""
    return changed_at if changed_at > memory.gmt_created else made_at(memory)


def seconds(at: int) -> int:
    """Epoch seconds of epoch ms, rounded down."""
    return at // SECOND


def maybe_seconds(at: int | None) -> int | None:
    return None if at is None else seconds(at)


def rfc3339(at: int) -> str:
    """Epoch ms as an RFC 3339 text in UTC, to the second."""
    return f"{_EPOCH + timedelta(seconds=seconds(at)):%Y-%m-%dT%H:%M:%S}Z".rjust(20, "0")


def shown_status(memory: Memory) -> str:
    """The lifecycle status in this view's words."""
    status, reason = memory.state.status, memory.state.status_reason
    if status == "archived" and reason in _BY_REASON:
        return reason
    return _STATUS.get(status, status)


def source_class(memory: Memory) -> SourceClass:
    """Whether a person stood behind the save."""
    return details_of(memory).source_trust_class


def evidence_of(memory: Memory) -> tuple[str, ...]:
    """Every evidence id that its writer or somebody since gave, readable or not."""
    return tuple(dict.fromkeys((*details_of(memory).evidence, *memory.state.evidence_ids)))


def covered_by(memory: Memory) -> Covered | None:
    """The messages that it sums up as a segment of its topic."""
    details = memory.details
    return details.covered if isinstance(details, MemoryDetails | SummaryDetails) else None


def is_global(memory: Memory) -> bool:
    """Whether every project sees it."""
    return details_of(memory).shared == "global"


def in_project(memory: Memory, project: str | None) -> bool:
    """Whether a project filter, if there is one, lets it through. Observations and summaries without a
    project belong to none, and only a memory may be global."""
    if project is None:
        return True
    if memory.kind == "memory":
        return memory.project == project or is_global(memory)
    return bool(project) and memory.project == project
