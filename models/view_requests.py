"""What may be asked about memories in their context: lists, counts, history, links, profile, intentions,
scopes."""

from typing import Annotated, Literal

from pydantic import Field

from models.authority import Authority
from models.layers import Kind, Layer, Status
from models.links import EdgeType, LinkType
from models.requests import AsOf, EpochMs, Label, MemoryId, Request, Tag

Limit = Annotated[int, Field(ge=1, le=100, description="How many in each list at the most.")]


class GetHistory(Request):
    memory_id: Annotated[MemoryId, Field(description="Any memory of the chain.")]


class GetRelated(Request):
    memory_id: Annotated[MemoryId, Field(description="The memory to start from.")]
    hops: Annotated[int, Field(ge=1, le=3, description="How many links away at the most.")] = 1
    types: Annotated[
        list[EdgeType],
        Field(
            default_factory=list,
            max_length=11,
            description='Only links of these types, e.g. ["evidence_for"]; empty: all.',
        ),
    ]
    limit: Annotated[
        int, Field(ge=1, le=2000, description="How many memories at the most, the nearest first.")
    ] = 100


class Link(Request):
    """Which link, for setting and for taking away."""

    from_id: Annotated[MemoryId, Field(description="The memory that the link begins at.")]
    type: Annotated[
        LinkType,
        Field(description="What the first is to the second, e.g. `explains`: from explains to."),
    ]
    to_id: Annotated[MemoryId, Field(description="The memory that the link ends at; another one.")]
    idempotency_key: Annotated[
        Label | None, Field(description="Any unique text; the same call with it again changes nothing more.")
    ] = None


class GetProfile(Request):
    limit: Limit = 20


class GetIntentions(Request):
    due_before: Annotated[
        EpochMs | None,
        Field(description="Due are those that end at or before this, epoch ms; default: in seven days."),
    ] = None
    limit: Limit = 20


class ListScopes(Request):
    limit: Annotated[
        int, Field(ge=1, le=10_000, description="How many users at the most, in the order of the names.")
    ] = 1000


class ListMemories(Request):
    layer: Annotated[Layer | None, Field(description="Only this layer.")] = None
    status: Annotated[Status, Field(description="Only this lifecycle status.")] = "active"
    tag: Annotated[Tag | None, Field(description="Only memories with this tag, whole.")] = None
    authority: Annotated[Authority | None, Field(description="Only this source authority.")] = None
    kind: Annotated[Kind | None, Field(description="Only this kind.")] = None
    session_id: Annotated[Label | None, Field(description="Only this session.")] = None
    updated_since: Annotated[
        EpochMs | None, Field(description="Changed at or after this time, epoch ms.")
    ] = None
    as_of: AsOf = None
    order: Annotated[
        Literal["newest", "oldest"], Field(description="By the order in which they were written.")
    ] = "newest"
    limit: Annotated[int, Field(ge=1, le=100, description="How many on a page at the most.")] = 20
    cursor: Annotated[
        str | None, Field(max_length=512, description="`next_cursor` of the page before; opaque.")
    ] = None


class GetStats(Request):
    pass
