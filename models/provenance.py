"""Where a memory comes from and how it stands: the changeable provenance axes of the history view, and
the details that each kind carries. Later views fill them; the record and its schema have them now."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from models.layers import Kind

Tier = Literal["archive", "interpretation", "testimony"]
Stage = Literal["working", "consolidated"]
MaterialType = Literal["unspecified", "document", "utterance", "observation", "summary"]
Role = Literal["user", "assistant", "system", "tool"]


def frozen(row: dict[str, Any]) -> dict[str, Any]:
    """A JSON object's fields as a frozen record takes them: tuples for lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


@dataclass(frozen=True, slots=True)
class Provenance:
    """The history view's axes. Times: epoch ms, UTC, null when it has not happened."""

    source: str | None = None
    tier: Tier = "archive"
    stage: Stage = "working"
    material_type: MaterialType = "unspecified"
    capture_context: str | None = None
    event_at: str | None = None  # as written: microseconds and offset, which `memory_at` can't hold
    consolidated_at: int | None = None
    consolidation_reason: str | None = None
    pinned_at: int | None = None
    review_due_at: int | None = None
    review_interval_days: int | None = None
    last_reviewed_at: int | None = None
    forgotten_at: int | None = None
    security_sensitive: bool = False
    sensitivity_reasons: tuple[str, ...] = ()
    topic_key: str | None = None
    expires_at: int | None = None

    def as_row(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Provenance":
        return cls(**frozen(row))


@dataclass(frozen=True, slots=True)
class MemoryDetails:
    """A curated memory as the observations view saves it. `files` are paths as the writer gave them."""

    title: str | None = None
    memory_type: str | None = None
    shared: Literal["project", "global"] = "project"
    host: str | None = None
    branch: str | None = None
    files: tuple[str, ...] = ()
    reference_time: int | None = None
    source_trust_class: Literal["user_prompt", "agent"] = "agent"


@dataclass(frozen=True, slots=True)
class MessageDetails:
    """One turn of a transcript."""

    role: Role | None = None
    host: str | None = None
    source_root: str | None = None
    session_mode: str | None = None
    transcript_id: str | None = None
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class ObservationDetails:
    """What an agent noted about its work. `content` of the record is title to facts, joined by newlines."""

    type: str
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    facts: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    branch: str | None = None
    commit_sha: str | None = None
    memory_session_id: str | None = None
    discovery_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class SummaryDetails:
    """A session summary. `content` of the record is these fields, joined by newlines."""

    memory_session_id: str | None = None
    host: str | None = None
    request: str | None = None
    completed: str | None = None
    decisions: str | None = None
    learned: str | None = None
    next_steps: str | None = None
    preferences: str | None = None
    intent: str | None = None
    topic: str | None = None
    label_source: str | None = None


Details = MemoryDetails | MessageDetails | ObservationDetails | SummaryDetails

_DETAILS: dict[Kind, type[Details]] = {
    "memory": MemoryDetails,
    "message": MessageDetails,
    "observation": ObservationDetails,
    "session_summary": SummaryDetails,
}


def details_from(kind: Kind, row: dict[str, Any] | None) -> Details | None:
    """The typed details of a kind from their JSON-ready dict."""
    if row is None:
        return None
    return _DETAILS[kind](**frozen(row))
