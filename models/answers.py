"""What is answered: the JSON objects of the brain view, as types. They are published as schemas and the
tests check every answer against them; at run time they are plain dicts, for speed."""

from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from models.authority import Authority
from models.layers import Kind, Layer, Status
from models.links import EdgeType

_closed = with_config(ConfigDict(extra="forbid"))


class Reply(NamedTuple):
    """What a use case gives back: the body without its timing, the status where it is not the route's
    own, and for HTTP the entity tag and the seconds after which to retry."""

    body: dict[str, Any]
    status: int | None = None
    etag: str | None = None
    retry_after: int | None = None


@_closed
class MemoryFields(TypedDict):
    """A memory as it stands inside another answer: 18 fields, all always present."""

    memory_id: Annotated[str, Field(description="Engine id of this memory")]
    content: Annotated[str, Field(description="The memory text itself")]
    layer: Annotated[Layer, Field(description="Engine memory layer (l0_basic_info…l7_intention)")]
    status: Annotated[Status, Field(description="Engine lifecycle status; 'active' for a memory in use")]
    is_latest: Annotated[bool, Field(description="False when a newer version has replaced it")]
    supersedes: Annotated[list[str] | None, Field(description="Ids that this one replaced; null when none")]
    superseded_by: Annotated[list[str] | None, Field(description="Ids that replaced it; null while current")]
    tags: Annotated[list[str], Field(description="Tags on this memory; empty when it carries none")]
    custom: Annotated[dict[str, Any], Field(description="The writer's `metadata`, verbatim")]
    user_id: Annotated[str, Field(description="User namespace it was written under")]
    agent_id: Annotated[str, Field(description="Agent namespace it was written under")]
    memory_at: Annotated[
        int | None, Field(description="When the EVENT happened, epoch ms; null when not stated")
    ]
    gmt_created: Annotated[int, Field(description="When this row was written, epoch ms")]
    speculate: Annotated[str | None, Field(description="The engine's own inference about it, or null")]
    confidence: Annotated[float, Field(ge=0, le=1, description="The engine's confidence in it, 0..1")]
    source_authority: Annotated[Authority, Field(description="policy > official > team > informal")]
    source_raw_memory_id: Annotated[
        str | None, Field(description="Id of the l1_raw memory it was derived from")
    ]
    source: Annotated[
        str, Field(pattern="^(vdb|graph)$", description="The store that the content was read from")
    ]


@_closed
class Timed(TypedDict):
    """What stands once at the top of every answer of the brain view."""

    elapsed_ms: Annotated[float, Field(ge=0, description="Time inside the engine, milliseconds")]
    request_id: Annotated[str, Field(description="Quote it when reporting a problem")]


@_closed
class FactFields(TypedDict):
    subject: str
    predicate: str
    object: str
    single_valued: bool


@_closed
class Source(TypedDict):
    """A memory that agrees, or the label of a source that does."""

    memory_id: str | None
    label: str | None
    reliability: float


@_closed
class ConfidenceTerms(TypedDict):
    """What `confidence` was made of, each step 0..1: `start` is authority x kind of statement, or what the
    writer stated where that is lower; `agreed` with the independent sources that agree; `heard` with
    feedback, counted once for each key and verdict; an open conflict with an equal or higher authority caps
    it at .5."""

    authority: Authority
    statement: str
    stated: float | None
    start: float
    sources: list[Source]
    agreed: float
    feedback: dict[str, int]
    heard: float
    contested: bool


@_closed
class MemoryDetails(TypedDict):
    """The rest of the record. Times: epoch ms."""

    version: int
    kind: Kind
    number: int
    seq: int
    actor: str | None
    role: str | None
    project: str
    session_id: str | None
    session_position: int | None
    origin_id: str | None
    frame: str | None
    valid_from: int | None
    valid_until: int | None
    stated_confidence: float | None
    confidence_terms: ConfidenceTerms
    evidence_ids: list[str]
    facts: list[FactFields]
    conflicts: Annotated[list[str], Field(description="Ids of the open conflicts that it stands in")]
    status_reason: str | None
    tier: str
    stage: str
    source: str | None
    event_at: Annotated[str | None, Field(description="As written, with its offset")]
    pinned: bool
    review_due_at: int | None
    last_reviewed_at: int | None
    fallen: Annotated[list[str], Field(description="Ids of what it rests on that fell since its last review")]
    security_sensitive: bool
    sensitivity_reasons: list[str]
    speculation_rule: str | None


_Ends = TypedDict(
    "_Ends",
    {
        "from": Annotated[str, Field(description="Id of the memory that the link begins at")],
        "to": Annotated[str, Field(description="Id of the memory that the link ends at")],
    },
)


@_closed
class LinkFields(_Ends):
    type: Annotated[EdgeType, Field(description="What the first is to the second")]
    weight: float


@_closed
class ChainLink(TypedDict):
    memory_id: str
    status: Status
    memory_at: int | None
    gmt_created: int


@_closed
class Evidence(TypedDict):
    """`counted` when it is one of the independent sources that raise the confidence."""

    memory_id: str
    status: Status
    source_authority: Authority
    counted: bool


@_closed
class Opposition(TypedDict):
    """`against` is the id of the other side, `adopt` of the side that the rule proposes."""

    conflict_id: str
    against: str
    rule: str
    opened_at: int
    adopt: str


@_closed
class MemoryAnswer(MemoryFields, Timed):
    """The seed's object: exactly these 20 fields, unless `include` asks for more."""

    details: NotRequired[MemoryDetails]
    chain: NotRequired[
        Annotated[list[ChainLink], Field(description="Every version of it that can be read, latest first")]
    ]
    evidence: NotRequired[Annotated[list[Evidence], Field(description="What it rests on")]]
    conflicts: NotRequired[Annotated[list[Opposition], Field(description="The open ones, oldest first")]]
    links: NotRequired[
        Annotated[list[LinkFields], Field(description="Its links; in_session leads to the session")]
    ]


@_closed
class Added(TypedDict):
    """What one add did."""

    memory: Annotated[MemoryFields, Field(description="The memory as it now stands (the last of `messages`)")]
    memory_ids: Annotated[list[str], Field(description="Ids of all that were written, in order")]
    deduplicated: Annotated[bool, Field(description="True when it was united with an equal memory")]
    superseded: Annotated[list[str], Field(description="Ids that it replaced")]
    conflicts: Annotated[list[str], Field(description="Ids of the conflicts that it opened")]
    indexed: Annotated[bool, Field(description="True when search by meaning finds it now; words always do")]
    replayed: Annotated[
        NotRequired[bool], Field(description="True on a repeat with the same idempotency key")
    ]


@_closed
class AddAnswer(Added, Timed):
    pass


@_closed
class BatchAnswer(Timed):
    results: Annotated[
        list[dict[str, Any]],
        Field(description="For each item, in order: its `status` and either what the add gave or `error`"),
    ]
    replayed: NotRequired[bool]


@_closed
class Explanation(TypedDict):
    """Every term of a score. `dense` is a cosine, `words` the share of the query's word weight that stands in
    the memory, `identifier` 1 on an exact hit. `terms` are the parts of `fused`, which orders, in standard
    deviations. `relevance`, 0..1, is what the row says in itself, `floor` what the best one needed. `weights`
    names the version and the recipe. `path` are the links by which `graph` found a memory from one above,
    `version` the earlier version that is nearer to the query than the memory's own text, if one is, and
    `respelled` the words of the query, stemmed, that stand there in another spelling or script."""

    dense: float | None
    words: float
    identifier: float
    terms: dict[str, float]
    fused: float
    relevance: float
    floor: float
    weights: str
    path: NotRequired[list[LinkFields]]
    version: NotRequired[str]
    respelled: NotRequired[list[str]]


@_closed
class Neighbours(TypedDict):
    """The turns beside a memory in its session, in the order of the session."""

    before: list[MemoryFields]
    after: list[MemoryFields]


@_closed
class Hit(MemoryFields):
    score: Annotated[float, Field(ge=0, le=1, description="How relevant, 0..1, in the order of the results")]
    matched_by: Annotated[list[str], Field(description="What found it: vector, words, identifier, graph")]
    chain: Annotated[
        NotRequired[list[str]],
        Field(description="Ids of all that led up to it by being replaced, newest first; only when any did"),
    ]
    conflicts: Annotated[
        NotRequired[list[str]],
        Field(description="Ids of the open conflicts that it stands in; only when any"),
    ]
    context: Annotated[
        NotRequired[Neighbours], Field(description="The turns before and after it; only when asked for")
    ]
    explain: NotRequired[Explanation]


@_closed
class SearchAnswer(Timed):
    results: list[Hit]
    total_candidates: Annotated[int, Field(description="Memories that passed the filters")]
    abstained: Annotated[
        bool, Field(description="True when nothing stored is relevant; results is empty then")
    ]
    degraded: Annotated[bool, Field(description="True when a part of the search could not take part")]
    degraded_reason: Annotated[NotRequired[str], Field(description="Which part and why; only when degraded")]


@_closed
class ListAnswer(Timed):
    memories: list[MemoryFields]
    next_cursor: Annotated[str | None, Field(description="`cursor` of the next page; null at the end")]
    total: Annotated[int, Field(description="How many match in all")]


@_closed
class StatsAnswer(Timed):
    total: Annotated[int, Field(description="Memories that are not forgotten or purged")]
    layers: Annotated[dict[str, int], Field(description="How many of each layer")]
    statuses: Annotated[dict[str, int], Field(description="How many of each status")]
    authorities: Annotated[dict[str, int], Field(description="How many of each source authority")]
    kinds: Annotated[dict[str, int], Field(description="How many of each kind")]
    model: Annotated[str, Field(description="Name of the embedding model")]
    dimensions: Annotated[int | None, Field(description="null while the model is loading")]
    fingerprint: Annotated[str | None, Field(description="Identity of the vectors; null while loading")]
    index_lag: Annotated[int, Field(description="Memories that the vector store has not caught up with")]
    last_rebuild: Annotated[int | None, Field(description="Epoch ms; null when there was none")]
