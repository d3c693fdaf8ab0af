"""What may be asked in the history view. Order matters: the first argument that is wrong is named first."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    ModelWrapValidatorHandler,
    ValidationError,
    field_validator,
    model_validator,
)

from models.change_requests import Key
from models.errors import EvidenceRequired, FieldError, invalid
from models.folding import seen
from models.history_times import checked, moment
from models.provenance import MaterialType
from models.requests import Content, Label, MemoryId, Request, not_blank
from models.sources import source_key


def _names_something(text: str) -> str:
    if not source_key(text):
        raise ValueError("must not be blank")
    return text


def _visible(text: str) -> str:
    """What nobody sees says nothing either."""
    not_blank(seen(text))
    return text


def _trimmed(text: str) -> str:
    return _visible(text).strip()


# Plain texts with a bound; each field says what it means, and for `| None` pydantic keeps the validators.
Source = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_names_something)]
Trimmed = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_trimmed)]
Origin = Annotated[Trimmed, AfterValidator(_names_something)]
Note = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_visible)]
Session = Annotated[Label, AfterValidator(_visible)]
# The bounds are for the schema alone: `checked` says what a moment looks like, which a length does not.
_BOUNDS: dict[str, JsonValue] = {"minLength": 20, "maxLength": 32}
Moment = Annotated[str, Field(json_schema_extra=_BOUNDS), AfterValidator(checked)]
Id = Annotated[MemoryId, Field(description="The memory that it is about.")]
Reason = Annotated[Note, Field(description="Why; it stands in the audit log. Not blank.")]
OptionalReason = Annotated[Note | None, Field(description="Why; it stands in the audit log.")]
Position = Annotated[int, Field(ge=0, lt=2**63)]
Limit = Annotated[int, Field(ge=1, le=100, description="How many at the most.")]
Days = Annotated[int, Field(ge=0, le=36_500)]

TESTIMONY = "testimony is not said but earned, by independent evidence"


class Remember(Request):
    content: Annotated[Content, AfterValidator(_visible)]
    source: Annotated[
        Source | None, Field(description="Who or what it comes from, e.g. a name or a URL; kept as it is.")
    ] = None
    tier: Annotated[
        Literal["archive", "interpretation", "testimony"],
        Field(
            description="`archive`: observed; `interpretation`: your own inference, which is reviewed from "
            "time to time; `testimony` is refused, `corroborate` leads there."
        ),
    ] = "archive"
    security_sensitive: Annotated[
        bool, Field(description="It touches identity, permissions or standing orders; also found by a scan.")
    ] = False
    frame: Annotated[
        Trimmed | None, Field(description="The social frame that it holds in, e.g. team-alpha.")
    ] = None
    event_at: Annotated[
        Moment | None,
        Field(description="When it happened, ISO 8601 with seconds and offset: 2025-03-01T10:00:00+08:00."),
    ] = None
    session_id: Annotated[Session | None, Field(description="The session that it belongs to.")] = None
    session_position: Annotated[
        Position | None,
        Field(description="Its turn in the session, from 0; unique there for ever. Needs session_id."),
    ] = None
    material_type: Annotated[
        MaterialType, Field(description="What sort of material it is; utterances and documents are l1_raw.")
    ] = "unspecified"
    origin_id: Annotated[
        Origin | None, Field(description="The shared original across reposts, e.g. a document's id.")
    ] = None
    capture_context: Annotated[
        Note | None,
        Field(description='What the collection covers, e.g. "published meeting summary only".'),
    ] = None
    idempotency_key: Key = None

    @model_validator(mode="wrap")
    @classmethod
    def _in_order(cls, values: Any, handler: ModelWrapValidatorHandler["Remember"]) -> "Remember":
        """Two refusals are no matter of one field's form; they keep their place in the order."""
        try:
            request = handler(values)
        except ValidationError as error:
            wrong = {found["loc"][0] for found in error.errors(include_url=False) if found["loc"]}
            cls._refuse(values, wrong)
            raise
        cls._refuse(values, set())
        return request

    @classmethod
    def _refuse(cls, values: Any, wrong: set[Any]) -> None:
        given = values if isinstance(values, dict) else {}
        for name in cls.model_fields:
            if name in wrong:
                return
            if name == "tier" and given.get(name) == "testimony":
                raise EvidenceRequired(f"tier: {TESTIMONY}.", (FieldError("tier", TESTIMONY),))
            if name == "session_position" and given.get(name) is not None and given.get("session_id") is None:
                raise invalid(name, "needs session_id")


class Recall(Request):
    query: Annotated[
        str | None,
        Field(min_length=1, max_length=8192, description="The question or words; without it the newest."),
    ] = None
    limit: Annotated[
        int, Field(ge=1, le=100, description="How many memories at the most, beside the anchors.")
    ] = 10
    frame: Annotated[
        Trimmed | None,
        Field(description="Only what holds in this frame or in none; no text of another is shown."),
    ] = None

    @field_validator("query")
    @classmethod
    def _says_something(cls, query: str | None) -> str | None:
        return query if query is None else not_blank(query)


class ActOn(Request):
    """An act on one memory, and why."""

    id: Id
    reason: Reason
    idempotency_key: Key = None


class Corroborate(Request):
    """Exactly one of `source` and `memory_id` says who agrees."""

    id: Id
    source: Annotated[
        Source | None, Field(description="The label of the source that agrees, as a person would cite it.")
    ] = None
    memory_id: Annotated[MemoryId | None, Field(description="A memory that agrees, instead of a label.")] = (
        None
    )
    origin_id: Annotated[
        Origin | None, Field(description="With source: the original that it repeats, where that is known.")
    ] = None
    reason: OptionalReason = None
    idempotency_key: Key = None

    @model_validator(mode="after")
    def _one_source(self) -> "Corroborate":
        if (self.source is None) == (self.memory_id is None):
            raise invalid("source", "give exactly one of source and memory_id")
        if self.memory_id is not None and self.origin_id is not None:
            raise invalid("origin_id", "goes with source: a memory has its own")
        return self


class GetProvenance(Request):
    id: Id


class Review(Request):
    id: Id
    verdict: Annotated[
        Literal["confirm", "challenge"],
        Field(
            description="`confirm`: looked at, it holds; `challenge`: it is in doubt, look again in 7 days."
        ),
    ]
    note: Annotated[Note, Field(description="What was found; it stands in the audit log. Not blank.")]
    idempotency_key: Key = None


class DueForReview(Request):
    days: Annotated[Days, Field(description="Also what falls due in so many days.")] = 0
    limit: Limit = 20


class DueForConsolidation(Request):
    days: Annotated[Days, Field(description="Only what was captured at least so many days ago.")] = 0
    limit: Limit = 20


class MarkConflict(Request):
    a: Annotated[MemoryId, Field(description="One of the two memories.")]
    b: Annotated[MemoryId, Field(description="The other one.")]
    reason: Reason
    idempotency_key: Key = None


class SettleConflict(Request):
    id: Annotated[str, Field(min_length=1, max_length=64, description="The open conflict.")]
    reason: Reason
    adopted: Annotated[
        MemoryId | None, Field(description="The side that is current from then on; null: both stand.")
    ] = None
    idempotency_key: Key = None


class SetFrame(Request):
    id: Id
    frame: Annotated[Trimmed | None, Field(description="The frame that it holds in; null: none.")]
    reason: OptionalReason = None
    idempotency_key: Key = None


class ListFrames(Request):
    limit: Limit = 100


class SetHistoryContext(Request):
    """What is left out is kept; null clears."""

    id: Id
    source: Annotated[Source | None, Field(description="Who or what it comes from.")] = None
    event_at: Annotated[
        Moment | None, Field(description="When it happened, ISO 8601 with seconds and offset.")
    ] = None
    session_id: Annotated[Session | None, Field(description="The session that it belongs to.")] = None
    session_position: Annotated[
        Position | None, Field(description="Its turn there; one that was ever taken stays taken.")
    ] = None
    material_type: Annotated[
        MaterialType | None, Field(description="Only to one that leads to the same layer; null: unspecified.")
    ] = None
    origin_id: Annotated[Origin | None, Field(description="The shared original across reposts.")] = None
    capture_context: Annotated[Note | None, Field(description="What the collection covers.")] = None
    reason: OptionalReason = None
    idempotency_key: Key = None

    @property
    def given(self) -> set[str]:
        """The fields that are to change."""
        return self.model_fields_set - {"id", "reason", "idempotency_key"}

    @model_validator(mode="after")
    def _changes_something(self) -> "SetHistoryContext":
        if not self.given:
            raise ValueError("give at least one of source, event_at, session_id, session_position, …")
        return self


class Timeline(Request):
    frame: Annotated[Trimmed | None, Field(description="Only what holds in this frame.")] = None
    session_id: Annotated[Label | None, Field(description="Only this session.")] = None
    since: Annotated[
        Moment | None, Field(description="Events at or after this moment, ISO 8601 with offset.")
    ] = None
    until: Annotated[
        Moment | None, Field(description="Events at or before this moment, ISO 8601 with offset.")
    ] = None
    limit: Limit = 20
    cursor: Annotated[
        str | None, Field(max_length=512, description="`next_cursor` of the page before; opaque.")
    ] = None

    @model_validator(mode="after")
    def _in_order(self) -> "Timeline":
        if self.since and self.until and moment(self.since) > moment(self.until):
            raise invalid("until", "must not be before since")
        return self
