"""Transcripts of coding agents, line by line: what was said, and what a line tells of its session.

Claude Code  {"type": "user"|"assistant", "message": {"content": text or parts}, "sessionId", "cwd", …}
Codex        {"type": "response_item", "payload": {"type": "message", "role", "content": parts}}, and once
             {"type": "session_meta", "payload": {"id", "cwd", "originator", "git", …}}
Cursor       {"role", "message": {"content": text or parts}}: the whole conversation at each stop
"""

import codecs
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

import orjson

from models.provenance import Role
from models.raw_sessions import MAX_EPOCH, Mode

TranscriptHost = Literal["claude-code", "codex-cli", "cursor"]
HOSTS: tuple[TranscriptHost, ...] = get_args(TranscriptHost)

PROBED = 20  # lines that may tell whose transcript it is
MAX_LINE = 32 << 20  # bytes
MAX_MESSAGE = 4 << 20  # bytes of UTF-8

_MARKERS = {"/.claude/projects/": "claude-code", "/.codex/sessions/": "codex-cli", "/.cursor/": "cursor"}
_INTERACTIVE = frozenset({"codex-tui", "Codex Desktop", "codex_cli_rs", "codex_work_desktop"})
_UNATTENDED = frozenset({"codex_exec", "symphony-orchestrator"})
_NUMBER = re.compile(r"-?[0-9]{1,15}")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_BROKEN = re.compile("[\0\ud800-\udfff]")  # what no store of ours takes; agents cut emoji in halves
_EPOCH, _MS = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
_GZIP = b"\x1f\x8b"
_TIMES = ("timestamp", "created_at", "createdAt")


class Malformed(Exception):
    """A line that can't be read. The text says why, without any of its own."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message. `at` is epoch ms, None when the line has no time; `meta` when a person did not type it."""

    role: Role
    content: str
    at: int | None
    branch: str | None = None
    meta: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """What the first lines tell of a session."""

    session_id: str | None = None
    directory: str | None = None
    mode: Mode = "unknown"
    branch: str | None = None


def host_of(path: str) -> str | None:
    """The host that a path speaks of, when it speaks of one."""
    found = {host for marker, host in _MARKERS.items() if marker in path}
    return found.pop() if len(found) == 1 else None


def record_of(line: bytes) -> Mapping[str, Any] | None:
    """A line as a JSON object; None when it is blank or another value. Raises Malformed."""
    line = line.removeprefix(codecs.BOM_UTF8)
    if not line.strip():
        return None
    if line.startswith(_GZIP):
        raise Malformed("it is compressed; unpack the file first")
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        record = _forgiving(line)
    return record if isinstance(record, dict) else None


def said_in(host: str, record: Mapping[str, Any]) -> Said | None:
    """The message of a record; None when it is something else. Its text may be empty. Raises Malformed."""
    if host == "codex-cli":
        return _said_by_codex(record)
    message = record.get("message")
    if not isinstance(message, dict):
        return None
    role = record.get("role") if host == "cursor" else record.get("type")
    if role not in ("user", "assistant"):
        return None
    text = _text(message.get("content"), ("text",))
    if host == "cursor":
        return Said(role, text, time_of(record))
    branch = record.get("gitBranch")
    return Said(role, text.strip(), time_of(record), _name(branch), record.get("isMeta") is True)


def told_by(host: str, records: Iterable[Mapping[str, Any]]) -> Told:
    """What the records tell, the first of them that says something."""
    session_id = directory = branch = None
    mode: Mode = "unknown"
    for record in records:
        if host == "codex-cli":
            payload = record.get("payload")
            if record.get("type") != "session_meta" or not isinstance(payload, dict):
                continue
            git = payload.get("git")
            session_id = session_id or _name(payload.get("id"))
            directory = directory or _name(payload.get("cwd"))
            branch = branch or _name(git.get("branch") if isinstance(git, dict) else None)
            mode = _codex_mode(payload) if mode == "unknown" else mode
        elif host == "claude-code":
            session_id = session_id or _name(record.get("sessionId"))
            directory = directory or _name(record.get("cwd"))
            branch = branch or _name(record.get("gitBranch"))
    return Told(session_id, directory, mode, branch)


def time_of(record: Mapping[str, Any]) -> int | None:
    """The time of a record, epoch ms; None when it has none. Raises Malformed for milliseconds."""
    payload = record.get("payload")
    values = [record.get(name) for name in _TIMES]
    values.append(payload.get("timestamp") if isinstance(payload, dict) else None)
    return next((at for at in map(epoch_ms, values) if at is not None), None)


def epoch_ms(value: Any) -> int | None:
    """Seconds since 1970 (a number or its digits) or RFC 3339, as epoch ms; None for anything else. Raises
    Malformed for what can only be milliseconds."""
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= MAX_EPOCH:
            raise Malformed("its time is in milliseconds; seconds are wanted")
        return value * 1000
    return rfc3339_ms(value) if isinstance(value, str) else None


def rfc3339_ms(text: str) -> int | None:
    """A date with a time and an offset as epoch ms; None for anything else."""
    if not _RFC3339.fullmatch(text):
        return None
    try:
        found = datetime.fromisoformat(text)
        return None if found.tzinfo is None else (found - _EPOCH) // _MS
    except (ValueError, OverflowError):
        return None


def _said_by_codex(record: Mapping[str, Any]) -> Said | None:
    payload = record.get("payload")
    if record.get("type") != "response_item" or not isinstance(payload, dict):
        return None
    role = payload.get("role")
    if payload.get("type") != "message" or role not in ("user", "assistant"):
        return None
    text = _text(payload.get("content"), ("input_text", "output_text", "text"))
    return Said(role, text.strip(), time_of(record))


def _codex_mode(payload: Mapping[str, Any]) -> Mode:
    source, originator = payload.get("thread_source"), payload.get("originator")
    if source == "subagent":
        return "subagent"
    if source == "automation" or originator in _UNATTENDED:
        return "unattended"
    return "interactive" if originator in _INTERACTIVE else "unknown"


def _text(content: Any, kinds: tuple[str, ...]) -> str:
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict) and part.get("type") in kinds]
        content = "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    if not isinstance(content, str):
        return ""
    return _BROKEN.sub("\ufffd", content)


def _name(value: Any) -> str | None:
    if not isinstance(value, str) or not value.strip():
        return None
    return _BROKEN.sub("\ufffd", value)


def _forgiving(line: bytes) -> Any:
    """Half a surrogate pair is no error in JSON, though orjson takes it for one."""
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Malformed(f"it is not UTF-8: byte {error.start}") from None
    except (ValueError, RecursionError):
        raise Malformed("it is not JSON") from None
