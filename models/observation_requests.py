"""What may be asked of observations and session summaries. Times are epoch seconds."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from models.change_requests import Key
from models.observation_terms import (
    Coverage,
    Epoch,
    Id,
    Ids,
    Lines,
    MemoryType,
    Named,
    Paths,
    Project,
    Text,
    check_parts,
    folded,
    joined_parts,
    of_path,
)
from models.observation_view import SOURCES, ObservationType, Source
from models.raw_labels import INTENTS, MAX_TOPIC, Intent, intent_of, topic_of
from models.raw_requests import Host
from models.requests import Request, not_blank

INT64 = 2**63
_OBSERVED = ("title", "subtitle", "narrative", "facts")
SUMMARY_PARTS = ("request", "completed", "decisions", "learned", "next_steps", "preferences")


class GetObservations(Request):
    ids: Annotated[
        Ids, Field(description="Ids of one source, as a search gave them; at most 500 different ones.")
    ]
    # A text, since another one is an error of its own; not trimmed, its case counts.
    source: Annotated[
        str | None,
        Field(
            description="What the ids are of: memory, observation or session_summary; null: memory.",
            json_schema_extra={"enum": list(SOURCES)},
        ),
    ] = "memory"
    project: Annotated[
        Project, Field(description="Only rows of this project, exactly, and global memories.")
    ] = None
    include_suppressed: Annotated[
        bool | None, Field(description="Show memories too that `suppress_memory` hides.")
    ] = False


class AddObservation(Request):
    type: Annotated[
        ObservationType,
        BeforeValidator(folded),
        Field(description="bugfix, feature, refactor, discovery, decision or change."),
    ]
    title: Annotated[Text, Field(description="What it is about, in a line.")] = None
    subtitle: Annotated[Text, Field(description="A second line.")] = None
    narrative: Annotated[Text, Field(description="What happened and why.")] = None
    facts: Annotated[Lines, Field(description="Single statements that hold since.", default_factory=list)]
    concepts: Annotated[
        Lines, Field(description="Words that it belongs under, e.g. caching.", default_factory=list)
    ]
    files_read: Annotated[Paths, Field(description="Files that were read.", default_factory=list)]
    files_modified: Annotated[Paths, Field(description="Files that were changed.", default_factory=list)]
    project: Annotated[Project, Field(description="The project that it belongs to, e.g. /repo.")] = None
    branch: Annotated[Named, Field(description="The branch that was worked on.")] = None
    commit_sha: Annotated[Named, Field(description="The commit that it is about.")] = None
    memory_session_id: Annotated[str, Field(max_length=256, description="The session that noted it.")] = ""
    content_session_id: Annotated[
        Named, Field(description="The session of the conversation that it was noted in.")
    ] = None
    discovery_tokens: Annotated[
        int | None, Field(ge=0, lt=2**53, description="Tokens that it took to find this out.")
    ] = None
    created_at_epoch: Annotated[
        Epoch | None, Field(description="When it was noted, epoch seconds; default now.")
    ] = None
    idempotency_key: Key = None

    @model_validator(mode="after")
    def _says_something(self) -> "AddObservation":
        check_parts(self.content, _OBSERVED)
        return self

    @property
    def content(self) -> str:
        """Title, subtitle, narrative and facts: what is searched."""
        return joined_parts(self, _OBSERVED)


class CompressObservations(Request):
    ids: Annotated[Ids, Field(min_length=1, description="Ids of the observations to merge into one.")]
    replacement: Annotated[
        AddObservation,
        Field(description="The observation that stands for them, as `add_observation` takes it."),
    ]
    compression_session_id: Annotated[
        Named, Field(description="Who merged them; default the replacement's session.")
    ] = None
    idempotency_key: Key = None


class AddSummary(Coverage):
    request: Annotated[Text, Field(description="What was asked for.")] = None
    completed: Annotated[Text, Field(description="What was done.")] = None
    decisions: Annotated[Text, Field(description="What was decided, and why.")] = None
    learned: Annotated[Text, Field(description="What turned out.")] = None
    next_steps: Annotated[Text, Field(description="What is left to do.")] = None
    preferences: Annotated[Text, Field(description="How the user wants things.")] = None
    intent: Annotated[
        str | None,
        Field(
            max_length=256,
            description=f"The session's label: one of {', '.join(INTENTS)}; another is no label.",
        ),
    ] = None
    topic: Annotated[
        str | None,
        Field(
            max_length=8_192, description="The session's topic, 1 to 80 characters; a longer one is no label."
        ),
    ] = None
    memory_session_id: Annotated[str, Field(max_length=256, description="The session that wrote it.")] = ""
    session_id: Annotated[
        Named, Field(description="The session that it sums up, as its messages have it.")
    ] = None
    host: Annotated[
        Host, Field(description="Where that session ran, in lower case, e.g. claude-code; never guessed.")
    ] = "unknown"
    project: Annotated[Project, Field(description="That session's project, e.g. /repo.")] = None
    created_at_epoch: Annotated[
        Epoch | None, Field(description="When it was written, epoch seconds; default now.")
    ] = None
    idempotency_key: Key = None

    @model_validator(mode="after")
    def _says_something(self) -> "AddSummary":
        check_parts(self.content, SUMMARY_PARTS)
        return self

    @property
    def content(self) -> str:
        """Its parts: what is searched."""
        return joined_parts(self, SUMMARY_PARTS)


def _intent(value: str | None) -> Intent | None:
    intent = intent_of(value)
    if value is not None and intent is None:
        raise ValueError(f"must be one of {', '.join(INTENTS)}")
    return intent


def _topic(value: str | None) -> str | None:
    topic = topic_of(value)
    if value is not None and topic is None:
        raise ValueError(f"must be 1 to {MAX_TOPIC} characters, without the white space around it")
    return topic


class SetLabel(Request):
    """What is not given stays as the session's label has it; null clears."""

    id: Annotated[Id, BeforeValidator(of_path), Field(description="The session summary, by its id.")]
    intent: Annotated[
        str | None,
        Field(max_length=256, description=f"One of {', '.join(INTENTS)}; null clears it."),
        AfterValidator(_intent),
    ] = None
    topic: Annotated[
        str | None,
        Field(max_length=8_192, description="1 to 80 characters; null clears it."),
        AfterValidator(_topic),
    ] = None
    idempotency_key: Key = None

    @model_validator(mode="after")
    def _sets_something(self) -> "SetLabel":
        if not self.given:
            raise ValueError("give intent or topic; null clears it")
        return self

    @property
    def given(self) -> set[str]:
        """The parts that are to change."""
        return self.model_fields_set & {"intent", "topic"}


class SearchObservations(Request):
    query: Annotated[
        str,
        Field(min_length=1, max_length=8192, description="The question or words, as a person would put it."),
        AfterValidator(not_blank),
    ]
    source: Annotated[
        Source | None, Field(description="Only memories, observations or session summaries; null: all three.")
    ] = None
    project: Annotated[Project, Field(description="Only this project, exactly, and global memories.")] = None
    type: Annotated[MemoryType | None, Field(description="Only this type, e.g. bugfix or decision.")] = None
    include_suppressed: Annotated[bool, Field(description="Find suppressed memories too.")] = False
    limit: Annotated[int, Field(ge=1, le=100, description="How many results at the most.")] = 20


class ObservationTimeline(Request):
    id: Annotated[
        int | None, Field(ge=-INT64, lt=INT64, description="The anchor's id. Either this or `query`.")
    ] = None
    query: Annotated[
        str | None, Field(min_length=1, max_length=8192, description="Words whose best match is the anchor.")
    ] = None
    source: Annotated[Source, Field(description="What is shown, and what the id is of.")] = "observation"
    project: Annotated[Project, Field(description="Only this project, exactly, and global memories.")] = None
    before: Annotated[int, Field(ge=0, le=50, description="How many earlier ones at the most.")] = 5
    after: Annotated[int, Field(ge=0, le=50, description="How many later ones at the most.")] = 5

    @model_validator(mode="after")
    def _has_one_anchor(self) -> "ObservationTimeline":
        if (self.id is None) == (self.query is None):
            raise ValueError("give exactly one of id and query")
        if self.query is not None:
            not_blank(self.query)
        return self
