"""What may be asked of memories that exist: change, replace, hide, bring back, destroy."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from models.requests import (
    AddMemory,
    Content,
    EpochMs,
    Facts,
    Label,
    MemoryId,
    Request,
    Share,
    Tags,
    limit_metadata,
)

ExpectedVersion = Annotated[
    int | None,
    Field(ge=1, lt=2**53, description="Refuse (412) unless the memory is at this version; HTTP: If-Match."),
]
Key = Annotated[
    Label | None, Field(description="Any unique text; the same call with it again changes nothing more.")
]
Reason = Annotated[
    str | None, Field(min_length=1, max_length=1024, description="Why; kept with the memory's state.")
]


class UpdateMemory(Request):
    """What is not given stays as it is. `null` clears validity, doubt and frame."""

    memory_id: Annotated[MemoryId, Field(description="The memory to change.")]
    content: Annotated[
        Content | None, Field(description="New text: makes a new memory that supersedes this one.")
    ] = None
    metadata: Annotated[
        dict[str, Any] | None,
        Field(description="Replaces the whole metadata object; at most 16 KiB."),
        AfterValidator(lambda value: value if value is None else limit_metadata(value)),
    ] = None
    tags: Annotated[Tags | None, Field(description="Replaces all tags.")] = None
    valid_from: Annotated[EpochMs | None, Field(description="Start of validity, epoch ms.")] = None
    valid_until: Annotated[EpochMs | None, Field(description="End of validity, epoch ms.")] = None
    confidence: Annotated[Share | None, Field(description="Your own doubt, 0..1; null takes it back.")] = None
    facts: Annotated[
        Facts | None, Field(description="With content: what it asserts. Those of the old text are dropped.")
    ] = None
    frame: Annotated[Label | None, Field(description="The social frame; not inside a chain.")] = None
    expected_version: ExpectedVersion = None
    idempotency_key: Key = None

    @model_validator(mode="after")
    def _changes_something(self) -> "UpdateMemory":
        if not self.given:
            raise ValueError(
                "give at least one of content, metadata, tags, valid_from, valid_until, confidence"
            )
        if "facts" in self.given and "content" not in self.given:
            raise ValueError("facts go with content: they are what the text asserts")
        for name in ("content", "metadata", "tags", "facts"):
            if name in self.given and getattr(self, name) is None:
                raise ValueError(f"{name} can't be null; leave it out to keep it")
        return self

    @property
    def given(self) -> set[str]:
        """The fields that are to change."""
        return self.model_fields_set - {"memory_id", "expected_version", "idempotency_key"}


class SupersedeMemories(AddMemory):
    """A new memory, as add takes it, that replaces others."""

    supersedes: Annotated[
        list[MemoryId],
        Field(min_length=1, max_length=64, description="Ids of the current memories that it replaces."),
    ]
    reason: Reason = None

    @model_validator(mode="after")
    def _one_memory(self) -> "SupersedeMemories":
        if self.messages is not None or self.kind == "message":
            raise ValueError("messages replace nothing: give content")
        if self.on_duplicate != "merge":
            raise ValueError("on_duplicate does not go with supersedes")
        return self


class DeleteMemory(Request):
    memory_id: Annotated[MemoryId, Field(description="The memory to hide.")]
    mode: Annotated[
        Literal["forget", "archive"],
        Field(description="`forget` hides the text everywhere; `archive` keeps it readable by id."),
    ] = "forget"
    reason: Reason = None
    revive: Annotated[bool, Field(description="Make the memories that it had superseded current again.")] = (
        False
    )
    expected_version: ExpectedVersion = None
    idempotency_key: Key = None


class RestoreMemory(Request):
    memory_id: Annotated[MemoryId, Field(description="The archived, negated or forgotten memory.")]
    reason: Reason = None
    expected_version: ExpectedVersion = None
    idempotency_key: Key = None


class Purge(Request):
    """Exactly one target."""

    memory_id: Annotated[MemoryId | None, Field(description="One memory.")] = None
    session_id: Annotated[Label | None, Field(description="All memories of a session.")] = None
    user_id: Annotated[Label | None, Field(description="All memories of a user of this agent.")] = None
    all: Annotated[Literal[True] | None, Field(description="Everything of this product and agent.")] = None
    confirm: Annotated[
        Label | None, Field(description="With `all`: the agent's name, so that nobody does it by mistake.")
    ] = None
    dry_run: Annotated[bool, Field(description="Only say what would go.")] = False
    cascade: Annotated[
        bool, Field(description="Purge also what was derived from it or rests on it as evidence.")
    ] = False
    wait: Annotated[
        bool, Field(description="Answer when the text is out of every file, not only hidden.")
    ] = False

    @model_validator(mode="after")
    def _one_target(self) -> "Purge":
        targets = [
            name for name in ("memory_id", "session_id", "user_id", "all") if getattr(self, name) is not None
        ]
        if len(targets) != 1:
            raise ValueError("give exactly one of memory_id, session_id, user_id and all")
        if (self.all is None) != (self.confirm is None):
            raise ValueError("confirm goes with all, and all needs it: the agent's name")
        return self
