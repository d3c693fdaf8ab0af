"""What may be asked of raw messages and their sessions. Times go in as epoch seconds, or as text."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from models.provenance import Role
from models.raw_sessions import MAX_EPOCH, Mode
from models.requests import Request, not_blank
from models.transcripts import MAX_MESSAGE, TranscriptHost, rfc3339_ms

INT64 = 2**63
MAX_MESSAGES = 1_000
MAX_TRANSCRIPT = 32 << 20  # bytes in a JSON body; a streamed one has no bound

_TIME = "a Unix epoch in seconds, RFC 3339, or YYYY-MM-DD"


def _root(value: str) -> str:
    if value == "cursor-outcome":
        raise ValueError("'cursor-outcome' is reserved; choose another label")
    return value


def _content(text: str) -> str:
    if len(text.encode()) > MAX_MESSAGE:
        raise ValueError(f"must be at most {MAX_MESSAGE} bytes of UTF-8")
    return text


def _created(value: Any) -> Any:
    """Epoch ms of what the writer gave."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a Unix epoch in seconds or RFC 3339")
    if isinstance(value, str):
        digits = value.strip().removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 15):
            at = rfc3339_ms(value)
            if at is None:
                raise ValueError("must be a Unix epoch in seconds, or RFC 3339 with an offset")
            return at
        value = int(value)
    if abs(value) >= MAX_EPOCH:
        raise ValueError("must be in seconds; this can only be milliseconds")
    return value * 1000


Host = Annotated[str, Field(max_length=64, pattern="^[a-z0-9][a-z0-9._-]*$")]
Root = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(not_blank), AfterValidator(_root)]
Project = Annotated[str, Field(max_length=1_024)]
SessionId = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(not_blank)]
CreatedAt = Annotated[
    int | None,
    BeforeValidator(_created),
    WithJsonSchema(
        {
            "type": ["integer", "string", "null"],
            "minimum": 1 - MAX_EPOCH,
            "maximum": MAX_EPOCH - 1,
            "maxLength": 64,
        }
    ),
]
Bound = Annotated[str | None, Field(max_length=64)]

_HOST = "Who wrote it: claude-code, codex-cli, cursor, or an application's own name in lower case."
_ROOT = "Label of where it was found, part of its identity."
_PROJECT = "The project, e.g. the folder /repo; empty when there is none."


class RawMessage(Request):
    """One message of `messages`."""

    role: Annotated[Role, Field(description="Who spoke: user, assistant, system or tool.")]
    content: Annotated[
        str,
        Field(
            max_length=MAX_MESSAGE, description="What was said, kept as it is; blank ones are only counted."
        ),
        AfterValidator(_content),
    ]
    created_at: Annotated[
        CreatedAt, Field(description="When, as epoch seconds or RFC 3339; left out: now.")
    ] = None
    ordinal: Annotated[
        int | None,
        Field(
            ge=0,
            lt=INT64,
            description="Its place in the transcript, from 0; left out: one after the message before.",
        ),
    ] = None


class AddRawMessages(Request):
    host: Annotated[Host | None, Field(description=f"{_HOST} null when it could not be told.")]
    source_root: Annotated[Root, Field(description=_ROOT)] = "local"
    project: Annotated[Project, Field(description=_PROJECT)]
    session_id: Annotated[SessionId, Field(description="The session's id, as the host gives it.")]
    session_mode: Annotated[
        Mode | None, Field(description="How it was run; two known modes contradict each other.")
    ] = None
    transcript_id: Annotated[
        SessionId | None,
        Field(
            description=(
                "What the ordinals count in, e.g. the file's name. With it the same text may come twice, and "
                "an ordinal once; without it, a text once for each role."
            )
        ),
    ] = None
    messages: Annotated[
        list[RawMessage],
        Field(min_length=1, max_length=MAX_MESSAGES, description="What was said, in its order."),
    ]
    idempotency_key: Annotated[
        str | None,
        Field(min_length=1, max_length=128, description="Makes a repeat of this call answer as the first."),
    ] = None


class IngestTranscript(Request):
    content: Annotated[
        str | None,
        Field(
            max_length=MAX_TRANSCRIPT,
            description=(
                "The transcript's lines, JSONL. Over HTTP a body of application/x-ndjson is read as it comes "
                "instead, with the other arguments in the query string."
            ),
        ),
    ] = None
    host: Annotated[
        TranscriptHost, Field(description="Whose transcript it is: claude-code, codex-cli or cursor.")
    ]
    source_root: Annotated[Root, Field(description=_ROOT)] = "local"
    project: Annotated[
        Project | None, Field(description="The project; left out: the folder that the transcript names.")
    ] = None
    session_id: Annotated[
        SessionId | None,
        Field(description="The session's id where the transcript names none; what it names itself wins."),
    ] = None
    transcript_id: Annotated[
        SessionId | None,
        Field(description="What tells it from others, e.g. the file's name; else the session."),
    ] = None
    session_mode: Annotated[
        Mode | None, Field(description="How it was run, where the transcript does not say.")
    ] = None
    branch: Annotated[
        str | None, Field(max_length=256, description="The branch, where the transcript does not say.")
    ] = None
    modified_at_epoch: Annotated[
        int | None,
        Field(
            gt=-MAX_EPOCH,
            lt=MAX_EPOCH,
            description="When the file last changed, epoch seconds: within 60 s, a last line cut off waits.",
        ),
    ] = None
    first_line: Annotated[
        int,
        Field(ge=0, lt=INT64, description="The number of the first line given here, for what was appended."),
    ] = 0


class _Selected(Request):
    session_ref: Annotated[
        str | None,
        Field(max_length=8_192, description="The session, as a list of sessions gave it; or the four names."),
    ] = None
    host: Annotated[Host | None, Field(description="Who wrote it; left out: whoever did.")] = None
    source_root: Annotated[Root, Field(description=_ROOT)] = "local"
    project: Annotated[Project, Field(description=_PROJECT)] = ""
    session_id: Annotated[
        SessionId | None, Field(description="The session's id; needed without session_ref.")
    ] = None


class GetRawMessages(_Selected):
    limit: Annotated[
        int,
        Field(ge=-INT64, lt=INT64, description="Messages a page, 1 to 2,000; others count as the nearest."),
    ] = 500
    cursor: Annotated[
        str | None,
        Field(max_length=1_024, description="`next_cursor` of the page before, with the same session."),
    ] = None


class SearchRaw(Request):
    query: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1_000,
            description='A text, or words in any order. No operators: * and " are text.',
        ),
        AfterValidator(not_blank),
    ]
    project: Annotated[Project | None, Field(description="Only this project, exactly.")] = None
    branch: Annotated[str | None, Field(max_length=256, description="Only this branch, exactly.")] = None
    role: Annotated[Role | None, Field(description="Only what this role said.")] = None
    since: Annotated[Bound, Field(description=f"Not before: {_TIME}, from 00:00:00 UTC.")] = None
    until: Annotated[Bound, Field(description=f"Not after: {_TIME}, that day included.")] = None
    limit: Annotated[int, Field(ge=1, le=100, description="Messages a page.")] = 20
    cursor: Annotated[
        str | None,
        Field(max_length=512, description="`next_cursor` of the page before, with the same filters."),
    ] = None


class ListRawSessions(Request):
    since: Annotated[
        Bound, Field(description=f"Only sessions with messages at or after this time: {_TIME}.")
    ] = None
    until: Annotated[
        Bound,
        Field(description=f"Only sessions with messages at or before this time: {_TIME}, that day included."),
    ] = None
    latest: Annotated[
        int | None, Field(ge=-INT64, lt=INT64, description="Return only the newest N sessions, at least 1.")
    ] = None
    sample: Annotated[
        int | None,
        Field(
            ge=-INT64,
            lt=INT64,
            description="Texts of the user's first N messages in each session, up to 100; default none.",
        ),
    ] = None
    project: Annotated[Project | None, Field(description="Only this project, exactly.")] = None


IngestStatus = Literal["ok", "partial", "duplicate_only", "failed"]
