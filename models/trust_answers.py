"""What is answered about trust: conflicts, their resolution, feedback."""

from typing import Annotated, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from models.answers import MemoryFields, Timed

_closed = with_config(ConfigDict(extra="forbid"))
_Replayed = Annotated[bool, Field(description="True on a repeat with the same idempotency key")]


@_closed
class Proposal(TypedDict):
    """What the rule would do. It does nothing by itself."""

    adopt: Annotated[str, Field(description="Id of the side that would be current")]
    because: Annotated[str, Field(description="Why: authority, then time, then confidence")]


@_closed
class ConflictFields(TypedDict):
    conflict_id: str
    rule: Annotated[
        str, Field(description="What opened it: authority, frame, raw, partial, or marked by somebody")
    ]
    because: Annotated[str, Field(description="The rule in a sentence")]
    reason: Annotated[str | None, Field(description="The words of whoever marked it")]
    opened_at: Annotated[int, Field(description="Epoch ms")]
    sides: Annotated[list[MemoryFields], Field(min_length=2, max_length=2, description="Both, as they stand")]
    proposal: Proposal


@_closed
class ConflictsAnswer(Timed):
    conflicts: Annotated[list[ConflictFields], Field(description="Open ones, newest first")]
    next_cursor: Annotated[str | None, Field(description="For the next page; null on the last")]
    total: Annotated[int, Field(description="How many are open")]


@_closed
class ResolveAnswer(Timed):
    conflict_id: str
    adopted: Annotated[str | None, Field(description="Id of the side that is current; null when both stand")]
    sides: Annotated[list[MemoryFields], Field(description="Both, as they stand now")]
    replayed: NotRequired[_Replayed]


@_closed
class FeedbackAnswer(Timed):
    memory: Annotated[MemoryFields, Field(description="The memory as it now stands")]
    changed: Annotated[bool, Field(description="False when this key had said the same before")]
    replayed: NotRequired[_Replayed]
