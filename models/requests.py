"""What may be asked: one model for each operation. Unknown arguments are refused; nothing is coerced,
except the texts of a query string. Times are epoch milliseconds, UTC."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from models import verbatim
from models.authority import Authority
from models.layers import Kind, Layer, Status
from models.provenance import Role

MAX_CONTENT_BYTES = 65_536
MAX_METADATA_BYTES = 16_384
MAX_BATCH = 1_000


def not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _content(text: str) -> str:
    if len(text.encode("utf-8")) > MAX_CONTENT_BYTES:
        raise ValueError(
            f"must be at most {MAX_CONTENT_BYTES} bytes of UTF-8; split it into several memories"
        )
    return not_blank(text)


def _unique(values: list[str]) -> list[str]:
    return list(dict.fromkeys(values))


def limit_metadata(value: dict[str, Any]) -> dict[str, Any]:
    if len(verbatim.dump(value).encode("utf-8")) > MAX_METADATA_BYTES:
        raise ValueError(f"must be at most {MAX_METADATA_BYTES} bytes of JSON")
    return value


Content = Annotated[
    str,
    Field(
        min_length=1, max_length=MAX_CONTENT_BYTES, description="The text, 1 to 65,536 bytes, kept as it is."
    ),
    AfterValidator(_content),
]
Label = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(not_blank)]
Tag = Annotated[str, Field(min_length=1, max_length=128)]
Tags = Annotated[list[Tag], Field(max_length=64), AfterValidator(_unique)]
MemoryId = Annotated[str, Field(min_length=1, max_length=64)]
EpochMs = Annotated[int, Field(ge=-62_135_596_800_000, le=253_402_300_799_999)]
AsOf = Annotated[
    EpochMs | None, Field(description="As it stood then, epoch ms; what was forgotten since stays hidden.")
]
Share = Annotated[float, Field(ge=0, le=1)]


class Request(BaseModel):
    """Base of every input: closed, strict, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    # Arguments whose parts are judged one by one by the use case, and answer for themselves.
    each_for_itself: ClassVar[frozenset[str]] = frozenset()


class GetMemory(Request):
    memory_id: Annotated[
        str, Field(min_length=1, description="Engine memory id, as an add, a search or a list gave it.")
    ]
    include: Annotated[
        list[Literal["details", "chain", "evidence", "conflicts", "links"]],
        Field(
            max_length=5,
            description=(
                "Further keys: `details` is the rest of the record (version, kind, facts, confidence_terms, "
                "…), `chain` all versions, `evidence` what it rests on, `conflicts` the open ones, `links`."
            ),
            default_factory=list,  # a plain default would be copied deeply for each request
            json_schema_extra={"default": []},
        ),
    ]
    as_of: AsOf = None


class Turn(Request):
    """One message of `messages`."""

    role: Annotated[Role, Field(description="Who spoke: user, assistant, system or tool.")]
    content: Content
    at: Annotated[EpochMs | None, Field(description="When it was said, epoch ms.")] = None
    actor: Annotated[Label | None, Field(description="The speaker's name, e.g. Melanie.")] = None


class FactGiven(Request):
    """One statement in so many words, for the rules: equal ones corroborate, different ones contradict."""

    subject: Annotated[Label, Field(description="What it is about, e.g. Ana.")]
    predicate: Annotated[Label, Field(description="The question, e.g. lives in.")]
    object: Annotated[Label, Field(description="The answer, e.g. Lisbon.")]
    single_valued: Annotated[
        bool, Field(description="The subject has one such object at a time: another one contradicts it.")
    ] = False


Facts = Annotated[
    list[FactGiven],
    Field(max_length=32, description="What the text asserts; give them where a later text may differ."),
]


class AddMemory(Request):
    content: Annotated[
        Content | None, Field(description="The text to remember. Either this or `messages`.")
    ] = None
    messages: Annotated[
        list[Turn] | None,
        Field(
            min_length=1,
            max_length=1000,
            description="A conversation's turns, in order; each becomes a message.",
        ),
    ] = None
    kind: Annotated[
        Literal["memory", "message"] | None,
        Field(description="`memory` (default) for a curated one, `message` for what was said, verbatim."),
    ] = None
    layer: Annotated[
        Layer | None,
        Field(description="Sort of knowledge; default l2_fact, for messages l1_raw."),
    ] = None
    metadata: Annotated[
        dict[str, Any],
        Field(description="Your own JSON object, given back verbatim as `custom`; at most 16 KiB."),
        AfterValidator(limit_metadata),
    ] = {}
    tags: Annotated[Tags, Field(description='Labels to filter by, e.g. ["billing"]; order kept.')] = []
    memory_at: Annotated[
        EpochMs | None, Field(description="When the remembered event happened, epoch ms; never guessed.")
    ] = None
    valid_from: Annotated[EpochMs | None, Field(description="Start of validity, epoch ms.")] = None
    valid_until: Annotated[EpochMs | None, Field(description="End of validity, epoch ms, exclusive.")] = None
    source_authority: Annotated[
        Authority, Field(description="How binding the source is: policy > official > team > informal.")
    ] = "informal"
    confidence: Annotated[
        Share | None, Field(description="Your own doubt, 0..1; only lowers what the authority gives.")
    ] = None
    frame: Annotated[
        Label | None, Field(description="The social frame that it holds in, e.g. team-alpha.")
    ] = None
    source_raw_memory_id: Annotated[
        MemoryId | None, Field(description="Id of the l1_raw memory that this one was derived from.")
    ] = None
    evidence_ids: Annotated[
        list[MemoryId], Field(max_length=64, description="Ids of memories that this one rests on.")
    ] = []
    facts: Facts = []
    actor: Annotated[Label | None, Field(description="Who said it, e.g. Melanie.")] = None
    session_id: Annotated[Label | None, Field(description="The session or conversation it belongs to.")] = (
        None
    )
    session_position: Annotated[
        int | None,
        Field(ge=0, lt=2**53, description="Turn number in the session, from 0; messages append without it."),
    ] = None
    project: Annotated[str, Field(max_length=1024, description="A further filter inside the scope.")] = ""
    origin_id: Annotated[Label | None, Field(description="The shared original across reposts.")] = None
    supersedes: Annotated[
        list[MemoryId], Field(max_length=64, description="Ids of the current memories that it replaces.")
    ] = []
    on_duplicate: Annotated[
        Literal["merge", "keep", "error"],
        Field(description="An equal active memory exists: unite them, store a second one, or refuse."),
    ] = "merge"
    on_conflict: Annotated[
        Literal["record", "error"],
        Field(description="It contradicts one that it may not replace: keep both and say so, or refuse."),
    ] = "record"
    idempotency_key: Annotated[
        Label | None, Field(description="Any unique text; the same call with it again writes nothing.")
    ] = None

    @model_validator(mode="after")
    def _agrees(self) -> "AddMemory":
        if (self.content is None) == (self.messages is None):
            raise ValueError("give exactly one of content and messages")
        if self.session_position is not None and self.session_id is None:
            raise ValueError("session_position needs session_id")
        if self.messages is not None:
            alone = {"session_position", "actor", "memory_at", "supersedes", "facts"}
            taken = alone & self.model_fields_set
            if taken or self.kind == "memory":
                name = min(taken, default="kind")
                raise ValueError(f"{name} does not go with messages: each message says its own")
        if self.facts and self.kind == "message":
            raise ValueError("facts do not go with kind message: what was said asserts nothing by itself")
        if None not in (self.valid_from, self.valid_until) and self.valid_from >= self.valid_until:  # type: ignore[operator]
            raise ValueError("valid_from must be before valid_until")
        return self


class AddBatch(Request):
    each_for_itself = frozenset({"items"})

    items: Annotated[
        list[Annotated[Any, WithJsonSchema({"type": "object", "additionalProperties": True})]],
        Field(
            min_length=1,
            max_length=MAX_BATCH,
            description="1 to 1,000 objects, each as brain_memory_add takes it.",
        ),
    ]
    atomic: Annotated[bool, Field(description="true: all or nothing; false: each answers for itself.")] = (
        False
    )
    idempotency_key: Annotated[
        Label | None, Field(description="Any unique text; the same call with it again writes nothing.")
    ] = None


class Filters(Request):
    """Which memories count. Every filter applies before the best are chosen."""

    layers: Annotated[list[Layer], Field(max_length=8, description="Any of these layers; empty: all.")] = []
    kinds: Annotated[list[Kind], Field(max_length=4, description="Any of these kinds; empty: all.")] = []
    tags: Annotated[Tags, Field(description='Tags to match whole, e.g. ["billing"].')] = []
    tags_match: Annotated[Literal["any", "all"], Field(description="Whether one tag is enough.")] = "any"
    statuses: Annotated[
        list[Status], Field(min_length=1, max_length=8, description="Any of these lifecycle statuses.")
    ] = ["active"]
    session_id: Annotated[Label | None, Field(description="Only this session.")] = None
    project: Annotated[str | None, Field(max_length=1024, description="Only this project, exactly.")] = None
    frame: Annotated[Label | None, Field(description="Only this frame, exactly.")] = None
    memory_at_from: Annotated[EpochMs | None, Field(description="Event time from, epoch ms, inclusive.")] = (
        None
    )
    memory_at_to: Annotated[EpochMs | None, Field(description="Event time to, epoch ms, inclusive.")] = None
    min_authority: Annotated[
        Authority | None, Field(description="This source authority or a higher one.")
    ] = None
    min_confidence: Annotated[Share | None, Field(description="At least this confidence, 0..1.")] = None
    metadata: Annotated[
        dict[str, Any],
        Field(description='Exact values of top-level keys of `custom`, e.g. {"team": 2}; 2 is not "2".'),
        AfterValidator(limit_metadata),
    ] = {}

    def valid_at(self) -> int | None:
        """The time, epoch ms, at which a memory must be valid; None: at any."""
        return None


class SearchMemories(Filters):
    query: Annotated[
        str,
        Field(min_length=1, max_length=8192, description="The question or words, as a person would put it."),
        AfterValidator(not_blank),
    ]
    limit: Annotated[int, Field(ge=1, le=100, description="How many results at the most.")] = 10
    explain: Annotated[bool, Field(description="Add every term of each score.")] = False
    ranking: Annotated[
        Literal["balanced", "trusted", "recent"],
        Field(description="What else than relevance counts: authority and confidence, or being new."),
    ] = "balanced"
    context: Annotated[
        int, Field(ge=0, le=5, description="Turns before and after each result in its session to add to it.")
    ] = 0
    hops: Annotated[
        int,
        Field(
            ge=0,
            le=2,
            description="Add memories linked to the best results, so many links away; up to half of `limit`.",
        ),
    ] = 0
    include_history: Annotated[
        bool, Field(description="Also find superseded memories, each beneath what replaced it.")
    ] = False
    as_of: AsOf = None
