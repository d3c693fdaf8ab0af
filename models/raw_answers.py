"""What is answered about raw messages and their sessions. Times: epoch seconds."""

from typing import Annotated, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from models.answers import Timed
from models.provenance import Role
from models.raw_requests import IngestStatus
from models.raw_sessions import Mode

_closed = with_config(ConfigDict(extra="forbid"))

_Count = Annotated[int, Field(ge=0)]
_Int64 = Annotated[int, Field(json_schema_extra={"format": "int64"})]
_Uint = Annotated[int, Field(ge=0, json_schema_extra={"format": "uint"})]
_Ref = Annotated[str | None, Field(description="The session's stable name; null without a host")]


@_closed
class AddRawAnswer(Timed):
    inserted: Annotated[_Count, Field(description="Messages that are new")]
    duplicates: Annotated[_Count, Field(description="Messages that were here already")]
    empty: Annotated[_Count, Field(description="Blank messages, which are not stored")]
    conflicts: Annotated[
        _Count, Field(description="Messages that contradict the transcript: then nothing was stored")
    ]
    session_ref: _Ref
    replayed: NotRequired[bool]


@_closed
class IngestAnswer(Timed):
    scanned_lines: Annotated[_Count, Field(description="Lines that were read")]
    inserted: Annotated[_Count, Field(description="Messages that are new")]
    duplicates: Annotated[_Count, Field(description="Messages that were here already")]
    skipped: Annotated[_Count, Field(description="Lines that are no message")]
    empty: Annotated[_Count, Field(description="Messages without text")]
    parse_errors: Annotated[_Count, Field(description="Lines that can't be read: then nothing was stored")]
    status: Annotated[IngestStatus, Field(description="What became of it")]
    session_ref: _Ref
    error: Annotated[str | None, Field(description="Why it failed, with the number of the line, from 1")]


@_closed
class RawMessageFields(TypedDict):
    """A message of a session."""

    id: Annotated[int, Field(description="Number among the scope's messages")]
    memory_id: Annotated[str, Field(description="Engine id of the memory")]
    role: Role | None
    content: str
    created_at_epoch: int
    ordinal: Annotated[int | None, Field(description="Place in its transcript; null without one")]
    transcript_id: str | None
    branch: str | None
    meta: Annotated[bool, Field(description="True when a person did not type it")]


@_closed
class RawMessagesAnswer(Timed):
    session_ref: _Ref
    host: str | None
    source_root: str
    project: str
    session_id: str
    session_mode: Mode
    content_hash: Annotated[
        str | None, Field(description="Of the whole session as it stood at the first page; null when unknown")
    ]
    total: Annotated[_Count, Field(description="Messages in all pages")]
    messages: list[RawMessageFields]
    next_cursor: Annotated[str | None, Field(description="Pass it back for the next page; null on the last")]


@_closed
class RawHit(TypedDict):
    """A message that was found."""

    id: Annotated[int, Field(description="Number among the scope's messages")]
    memory_id: Annotated[str, Field(description="Engine id of the memory, which has the whole text")]
    role: Role | None
    snippet: Annotated[str, Field(description="The text around the match, 300 characters at the most")]
    created_at_epoch: int
    project: str
    branch: str | None
    session_id: str | None
    session_ref: _Ref


@_closed
class SearchRawAnswer(Timed):
    messages: list[RawHit]
    next_cursor: Annotated[str | None, Field(description="Pass it back for the next page; null on the last")]


@with_config(ConfigDict(extra="forbid", title="ExcludedSessionIdentityOutput"))
class ExcludedSessionIdentityOutput(TypedDict):
    source_root: str
    project: str
    session_id: str
    host: NotRequired[str | None]


@with_config(ConfigDict(extra="forbid", title="RawSessionOutput"))
class RawSessionOutput(TypedDict):
    session_ref: str
    host: str
    session_mode: str
    source_root: str
    project: str
    session_id: str
    first_epoch: _Int64
    last_epoch: _Int64
    message_count: _Int64
    user_message_count: _Int64
    assistant_message_count: _Int64
    content_hash: str
    user_message_samples: list[str]
    mmdd: str | None
    session_intent: str | None
    session_topic: str | None
    display_label: str | None
    session_intent_source: str | None


@with_config(ConfigDict(extra="forbid", title="RawSessionsOutput"))
class RawSessionsOutput(TypedDict):
    sample: _Int64
    count: _Uint
    excluded_legacy_rows: _Uint
    excluded_legacy_sessions: _Uint
    excluded_legacy_identities: list[ExcludedSessionIdentityOutput]
    sessions: list[RawSessionOutput]
    since_epoch: NotRequired[_Int64 | None]
    until_epoch: NotRequired[_Int64 | None]
    latest: NotRequired[_Int64 | None]
    project: NotRequired[str | None]
