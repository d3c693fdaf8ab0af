"""Where a memory comes from and how it stands: the changeable provenance axes of the history view, and
the details that each kind carries. Later views fill them; the record and its schema have them now."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from models.facts import Fact
from models.layers import Kind, Layer

Tier = Literal["archive", "interpretation", "testimony"]
Stage = Literal["working", "consolidated"]
MaterialType = Literal["unspecified", "document", "utterance", "observation", "summary"]
Role = Literal["user", "assistant", "system", "tool"]


def layer_of(material: MaterialType) -> Layer:
    """The layer that a sort of material is remembered in."""
    if material in ("utterance", "document"):
        return "l1_raw"
    return "l3_summary" if material == "summary" else "l2_fact"


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
    past_sources: tuple[str, ...] = ()  # keys that it was known by: none of them is independent of it
    contexts: int = 0  # how often its time, place or origin was set anew

    def as_row(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Provenance":
        return cls(**frozen(row))


def guarded(provenance: Provenance, reasons: tuple[str, ...]) -> Provenance:
    """With the mark of a text that claims authority or gives orders, by the rules that say so. It is never
    taken back here."""
    if not reasons:
        return provenance
    known = dict.fromkeys((*provenance.sensitivity_reasons, *reasons))
    return replace(provenance, security_sensitive=True, sensitivity_reasons=tuple(known))


@dataclass(frozen=True, slots=True)
class Covered:
    """The messages that a segment of a topic sums up, by their numbers: from one to another, both included;
    the segment's place among those of its topic, and the messages that it rests on."""

    first: int
    last: int
    segment: int = 0
    evidence: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Compressed:
    """An observation that was merged into another one: its number, the SHA-256 of its text, when it was made
    and when it was merged (epoch ms), and in which session."""

    number: int
    digest: str
    made_at: int
    session: str
    at: int


@dataclass(frozen=True, slots=True)
class MemoryDetails:
    """A curated memory as the observations view saves it. `files` are paths as the writer gave them, and so
    is `evidence`, which may name what nobody can read. `created_at` is when it was made as the writer says,
    epoch ms; None: when it was written."""

    title: str | None = None
    memory_type: str | None = None
    shared: Literal["project", "global"] = "project"
    host: str | None = None
    branch: str | None = None
    files: tuple[str, ...] = ()
    reference_time: int | None = None
    source_trust_class: Literal["user_prompt", "agent"] = "agent"
    facts: tuple[Fact, ...] = ()
    created_at: int | None = None
    evidence: tuple[str, ...] = ()
    covered: Covered | None = None


@dataclass(frozen=True, slots=True)
class MessageDetails:
    """One turn of a transcript. `ordinal` is its line there; `timed` is false when its time is that of its
    arrival; `meta` says that a person did not type it."""

    role: Role | None = None
    host: str | None = None
    source_root: str | None = None
    session_mode: str | None = None
    transcript_id: str | None = None
    branch: str | None = None
    ordinal: int | None = None
    timed: bool = True
    meta: bool = False


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
    compressed: tuple[Compressed, ...] = ()


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
    covered: Covered | None = None


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
    values = frozen(row)
    if kind == "memory":
        values["facts"] = tuple(Fact(**fact) for fact in values.get("facts", ()))
    if values.get("covered") is not None:
        values["covered"] = Covered(**frozen(values["covered"]))
    if "compressed" in values:
        values["compressed"] = tuple(Compressed(**one) for one in values["compressed"])
    return _DETAILS[kind](**values)
