"""What is answered about memories in their context. See `models.answers`."""

from typing import Annotated, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from models.answers import FactFields, LinkFields, MemoryFields, Timed

_closed = with_config(ConfigDict(extra="forbid"))


# In this form, since `from` is a word of Python's.
_Span = TypedDict(
    "_Span",
    {
        "from": Annotated[int, Field(description="Since when it stood so, epoch ms")],
        "to": Annotated[int | None, Field(description="Until when, epoch ms; null when it stands so now")],
    },
)


@_closed
class Version(MemoryFields, _Span):
    """A memory as it stood. The text, tags and `custom` of a forgotten one are empty."""

    version: Annotated[int, Field(ge=1, description="Counts the stored changes of this memory, from 1")]


@_closed
class Event(TypedDict):
    seq: Annotated[int, Field(description="The event's place in the order of all writes")]
    at: Annotated[int, Field(description="Epoch ms")]
    action: Annotated[str, Field(description="The operation that did it, or `expire`")]
    memory_id: str
    key_id: Annotated[str | None, Field(description="The key that was used; null without keys")]
    fields: Annotated[list[str], Field(description="Names of the fields that it touched")]


@_closed
class HistoryAnswer(Timed):
    versions: Annotated[
        list[Version], Field(description="The latest memory first; of each, its versions, the latest first")
    ]
    events: Annotated[list[Event], Field(description="What was done to them, latest first")]
    truncated: Annotated[bool, Field(description="True when the chain is longer than what is shown")]


@_closed
class Node(MemoryFields):
    hops: Annotated[int, Field(ge=1, description="How many links away it is")]


@_closed
class FactOf(FactFields):
    memory_id: Annotated[str, Field(description="The memory that asserts it")]


@_closed
class RelatedAnswer(Timed):
    nodes: Annotated[
        list[Node], Field(description="The memories that were reached, nearest first; not the one asked for")
    ]
    edges: Annotated[
        list[LinkFields],
        Field(
            description="The links among them and to the one asked for; in_session: of one session, asserts: "
            "of facts about one thing"
        ),
    ]
    facts: Annotated[list[FactOf], Field(description="What they, and the one asked for, assert")]
    truncated: Annotated[bool, Field(description="True when there is more than what is shown")]


@_closed
class LinkAnswer(LinkFields, Timed):
    created: Annotated[bool, Field(description="False when the link was there already")]
    replayed: NotRequired[bool]


@_closed
class UnlinkAnswer(LinkFields, Timed):
    removed: Annotated[bool, Field(description="False when there was no such link")]
    replayed: NotRequired[bool]


@_closed
class ProfileEntry(MemoryFields):
    conflicts: Annotated[list[str], Field(description="Ids of the open conflicts that it stands in")]


@_closed
class ProfileAnswer(Timed):
    """Active memories; each list best first: authority, confidence, newest."""

    l0: Annotated[list[ProfileEntry], Field(description="Basic facts about the user")]
    l4: Annotated[list[ProfileEntry], Field(description="Identity, preferences, standing anchors")]
    pinned: Annotated[list[ProfileEntry], Field(description="Pinned memories of any layer")]
    l6: Annotated[list[ProfileEntry], Field(description="Patterns drawn from several memories")]
    truncated: Annotated[bool, Field(description="True when a list was cut at `limit`")]


@_closed
class Intention(MemoryFields):
    valid_until: Annotated[int | None, Field(description="When it ends, epoch ms; null when never")]


@_closed
class IntentionsAnswer(Timed):
    due: Annotated[
        list[Intention], Field(description="Active, ending at or before due_before; soonest first")
    ]
    active: Annotated[list[Intention], Field(description="Active, ending later or never; soonest first")]
    expired: Annotated[list[Intention], Field(description="Past their end; latest first")]
    due_before: Annotated[int, Field(description="Epoch ms, as asked or by default")]
    truncated: Annotated[bool, Field(description="True when a list was cut at `limit`")]


@_closed
class ScopeUser(TypedDict):
    user_id: str
    memories: Annotated[int, Field(ge=1, description="How many, forgotten ones left out")]


@_closed
class ScopeAgent(TypedDict):
    agent_id: str
    memories: Annotated[int, Field(ge=1, description="How many of the users that are shown")]
    users: list[ScopeUser]


@_closed
class ScopesAnswer(Timed):
    agents: Annotated[list[ScopeAgent], Field(description="Those that have memories, by name")]
    truncated: Annotated[bool, Field(description="True when there are more users than `limit`")]
