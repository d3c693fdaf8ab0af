"""What is answered to an agent that is about to work. See `models.answers`."""

from typing import Annotated, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from models.answers import MemoryFields, Timed
from models.layers import Layer

_closed = with_config(ConfigDict(extra="forbid"))

Section = Literal["profile", "memories", "conflicts"]
Reason = Literal["budget", "repeated", "security_sensitive"]


@_closed
class Chosen(TypedDict):
    memory_id: str
    section: Annotated[Section, Field(description="Where in the block it stands")]
    tokens: Annotated[int, Field(ge=1, description="What its lines take")]
    quoted: Annotated[bool, Field(description="True when its text may claim authority or give orders")]


@_closed
class Dropped(TypedDict):
    memory_id: str
    section: Annotated[Section, Field(description="Where in the block it would have stood")]
    tokens: Annotated[int, Field(ge=1, description="What its lines would have taken")]
    reason: Annotated[
        Reason,
        Field(
            description="budget: no room left for the whole of it; repeated: another one says the same; "
            "security_sensitive: such text gets no place unless the query finds it, and is then quoted"
        ),
    ]


@_closed
class ContextAnswer(Timed):
    block: Annotated[str, Field(description="Ready for a prompt; empty when nothing was chosen")]
    tokens: Annotated[int, Field(ge=0, description="What the block takes by the tokenizer")]
    tokenizer: Annotated[
        str,
        Field(description="The embedding model whose tokenizer counted; `estimate` while it is not there"),
    ]
    chosen: Annotated[list[Chosen], Field(description="In the order of the block")]
    dropped: Annotated[list[Dropped], Field(description="What was left out")]
    abstained: Annotated[bool, Field(description="True when nothing stored is relevant to the query")]
    truncated: Annotated[bool, Field(description="True when the profile has more than `limit`")]
    degraded: Annotated[bool, Field(description="True when a part of the search could not take part")]
    degraded_reason: Annotated[NotRequired[str], Field(description="Which part and why; only when degraded")]


@_closed
class Due(TypedDict):
    """A group that is due. Its memories are one user's, of one frame, the oldest first."""

    reason: Annotated[
        Literal["session", "topic"],
        Field(description="session: turns of one conversation; topic: near in meaning, or linked"),
    ]
    suggested_layer: Annotated[Layer, Field(description="Which layer to write the summary to")]
    memory_ids: Annotated[list[str], Field(description="Name them as the summary's evidence_ids")]
    user_id: str
    session_id: str | None
    frame: str | None
    since: Annotated[int, Field(description="When its first memory was written, epoch ms")]
    until: Annotated[int, Field(description="When its last memory was written, epoch ms")]
    memories: Annotated[
        NotRequired[list[MemoryFields]], Field(description="The same, in full; only for detail=full")
    ]


@_closed
class ConsolidationAnswer(Timed):
    groups: Annotated[list[Due], Field(description="Those that have waited longest first")]
    truncated: Annotated[bool, Field(description="True when there is more than what is shown")]
