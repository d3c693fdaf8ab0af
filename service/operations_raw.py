"""Operations on raw messages: what was said in sessions of coding agents and applications, as it was said."""

from typing import Any

from models import raw_answers, raw_requests
from service import raw_ingest, raw_sessions
from service.operation import ADDS, KIB, READS, Annotations, Operation, Route

OBSERVATIONS = frozenset({"observations"})
REPEATS = Annotations(read_only=False, destructive=False, idempotent=True)

OPERATIONS: tuple[Operation[Any], ...] = (
    Operation(
        name="list_raw_sessions",
        title="List Raw Sessions",
        description=(
            "List sessions with raw archived messages in a time window, each with a stable session_ref, a "
            "content_hash, first and last epoch, counts, a label where a summary gave one, and samples of "
            "what the user said. Use when you recap what happened in a period; use `search_raw` instead when "
            "you look for words that were said. A session is listed whole, also what lies outside the "
            "window. Nothing is changed. Sessions of unresolved or conflicted provenance are left out and "
            "named in excluded_legacy_identities; `latest` spends no slots on them. On `invalid_argument`, "
            "mend the bound that it names."
        ),
        input=raw_requests.ListRawSessions,
        output=raw_answers.RawSessionsOutput,
        route=Route("GET", "/brain/raw/sessions"),
        right="read",
        annotations=READS,
        toolsets=OBSERVATIONS,
        run=raw_sessions.list_sessions,
        timed=False,
    ),
    Operation(
        name="get_raw_messages",
        title="Get a session's raw messages",
        description=(
            "Get the messages of one raw session in the order of time, page by page. Use when you hold a "
            "session_ref, or its host, root, project and id, and need what was said; use `list_raw_sessions` "
            "instead when you do not know which session. Nothing is changed. All pages stand on the first "
            "one's moment, and carry its content_hash: pass `next_cursor` back as `cursor` until it is null. "
            "An unknown session is an empty page. `conflict_state` means that where the session comes from "
            "is in doubt: ask the user. On `host mismatch`, name the host that it tells."
        ),
        input=raw_requests.GetRawMessages,
        output=raw_answers.RawMessagesAnswer,
        route=Route("GET", "/brain/raw/messages"),
        right="read",
        annotations=READS,
        toolsets=OBSERVATIONS,
        run=raw_sessions.messages,
    ),
    Operation(
        name="search_raw",
        title="Search raw messages",
        description=(
            "Search every message of every session for a text or for all of some words, newest first. Use "
            "when you know how it was put: an error message, a name, a phrase; use `brain_memory_search` "
            "instead when you know only what it was about. Nothing in the query is an operator, and case "
            "does not matter. Nothing is changed. Each hit shows the text around the match; "
            "`brain_memory_get` with its memory_id gives the whole. Pass `next_cursor` back as `cursor`, "
            "with the same filters, until it is null. An empty list means that nobody said it: try fewer "
            "words."
        ),
        input=raw_requests.SearchRaw,
        output=raw_answers.SearchRawAnswer,
        route=Route("GET", "/brain/raw/search"),
        right="read",
        annotations=READS,
        toolsets=OBSERVATIONS,
        run=raw_sessions.search,
    ),
    Operation(
        name="add_raw_messages",
        title="Add raw messages",
        description=(
            "Store messages of a session as they were said, for the caller's product, agent and user. Use "
            "when your application or hook hands on what is said turn by turn; use `ingest_transcript` "
            "instead when a coding agent has written a transcript. What is here already is counted and not "
            "stored again: by its ordinal with a transcript_id, else by its text. Words find a message at "
            "once, meaning follows. Messages can't be changed later. `conflicts` above 0 means that nothing "
            "was stored: the transcript contradicts what it said before, and its session is left out of "
            "lists from then on."
        ),
        input=raw_requests.AddRawMessages,
        output=raw_answers.AddRawAnswer,
        route=Route("POST", "/brain/raw/messages", max_body=16 * KIB * KIB),
        right="write",
        annotations=ADDS,
        toolsets=OBSERVATIONS,
        run=raw_ingest.add_messages,
    ),
    Operation(
        name="ingest_transcript",
        title="Ingest a transcript",
        description=(
            "Store the messages of a transcript that Claude Code, Codex or Cursor wrote, JSONL, all of them "
            "or none. Use when you have such a file; use `add_raw_messages` instead when the messages come "
            "from an application of your own. To bring it again, or grown, adds only what is new. Tool calls "
            "and results are skipped. A last line that is still being written waits (`partial`): send the "
            "file again later. Status `failed` means that nothing was stored; `error` names the line, or "
            "says that the file contradicts what it said before."
        ),
        input=raw_requests.IngestTranscript,
        output=raw_answers.IngestAnswer,
        route=Route("POST", "/brain/raw/transcripts", max_body=64 * KIB * KIB),
        right="write",
        annotations=REPEATS,
        toolsets=OBSERVATIONS,
        run=raw_ingest.ingest,
        stream=raw_ingest.ingest_stream,
    ),
)
