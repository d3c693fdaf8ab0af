"""What may be asked of saved memories in the observations view: save, govern, suppress."""

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema, model_validator

from models.change_requests import Key, Reason
from models.layers import Layer
from models.observation_terms import MAX_IDS, Coverage, Epoch, Ids, MemoryType, Named, Paths
from models.raw_requests import Host
from models.requests import Content, Facts, MemoryId, Request, Share


class SaveMemory(Coverage):
    text: Annotated[Content, Field(description="What to remember, 1 to 65,536 bytes, kept as it is.")]
    title: Annotated[
        str | None, Field(max_length=1_024, description="In a line; default the first line of the text.")
    ] = None
    project: Annotated[
        str, Field(max_length=1024, description="The project that it belongs to, e.g. /repo; default none.")
    ] = ""
    session_id: Annotated[Named, Field(description="The session that it was learned in.")] = None
    host: Annotated[
        Host, Field(description="Where that session ran, in lower case, e.g. claude-code; never guessed.")
    ] = "unknown"
    memory_type: Annotated[
        MemoryType,
        Field(description="Sort of statement, e.g. decision, architecture, procedure, lesson or preference."),
    ] = "fact"
    layer: Annotated[
        Layer | None, Field(description="Sort of knowledge; default by memory_type, mostly l2_fact.")
    ] = None
    files: Annotated[Paths, Field(description="Files that it is about.", default_factory=list)]
    scope: Annotated[
        Literal["project", "global"], Field(description="`global`: every project of the agent sees it.")
    ] = "project"
    branch: Annotated[Named, Field(description="The branch that it holds on.")] = None
    created_at_epoch: Annotated[
        Epoch | None, Field(description="When it was made, epoch seconds; default now.")
    ] = None
    reference_time_epoch: Annotated[
        Epoch | None, Field(description="When what it tells of happened, epoch seconds; never guessed.")
    ] = None
    valid_from_epoch: Annotated[Epoch | None, Field(description="Since when it holds, epoch seconds.")] = None
    expires_at_epoch: Annotated[
        Epoch | None, Field(description="When it is to be archived, epoch seconds.")
    ] = None
    confidence: Annotated[
        Share | None, Field(description="How sure you are, 0..1; from 0.8 on it may count as current.")
    ] = None
    evidence_ids: Annotated[
        list[MemoryId],
        Field(
            max_length=64,
            description="Memory ids (of the brain view) that it rests on; kept as they are.",
            default_factory=list,
        ),
    ]
    facts: Annotated[Facts, Field(default_factory=list)]
    idempotency_key: Key = None

    @model_validator(mode="after")
    def _is_no_message(self) -> "SaveMemory":
        if self.layer == "l1_raw":
            raise ValueError("layer l1_raw is what was said, word for word: use add_raw_messages")
        return self


class GovernMemories(Request):
    ids: Annotated[Ids, Field(min_length=1, description="Ids of memories; all of them or none is changed.")]
    action: Annotated[
        Literal["delete", "reject", "stale", "acknowledge"],
        Field(
            description="`delete` and `stale` archive with that status, `reject` says it never held, "
            "`acknowledge` says it was reviewed and holds."
        ),
    ]
    reason: Reason = None
    expected_versions: Annotated[
        dict[str, int],
        WithJsonSchema({"type": "object", "maxProperties": MAX_IDS}),
        Field(
            max_length=MAX_IDS,
            description='The versions that you decided upon, by id, e.g. {"7": 2}: else nothing is changed.',
            default_factory=dict,
        ),
    ]
    dry_run: Annotated[bool, Field(description="Only say what would become of them.")] = False
    idempotency_key: Key = None

    @model_validator(mode="after")
    def _expects_of_its_own(self) -> "GovernMemories":
        known = {str(id) for id in self.ids}
        for id, version in self.expected_versions.items():
            if id not in known:
                raise ValueError(f"expected_versions has {id[:40]!r}, which is not among ids")
            if version < 1:
                raise ValueError(f"expected_versions[{id}] must be 1 or more")
        return self


class Suppress(Request):
    target: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1_024,
            description="`memory:<id>`, `topic_key:<key>`, `entity:<subject or object of a fact>`, or "
            "`pattern:<words of title or text>`.",
        ),
    ]
    idempotency_key: Key = None


class Unsuppress(Request):
    target: Annotated[str, Field(min_length=1, max_length=1_024, description="The target, as it was given.")]
    idempotency_key: Key = None
