"""Files of transcripts on this machine: which there are, whose they are, and how the owner gets them."""

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import httpx

from models.transcripts import HOSTS, Malformed, Said, Told, host_of
from service.arguments import JSON_LINES
from service.raw_cursors import ADVANCE, FIND
from service.transcripts import probe, read_transcript

TRANSCRIPTS = "/brain/raw/transcripts"
PIECE = 1 << 20  # bytes that are read and sent at once
DEFAULT_ROOTS = (("claude-code", "~/.claude/projects"), ("codex-cli", "~/.codex/sessions"))
_DECLARED = re.compile(rf"({'|'.join(HOSTS)}):([^=]+)=(.+)", re.DOTALL)
_COUNTS = ("scanned_lines", "inserted", "duplicates", "skipped", "empty")

Document = dict[str, Any]
Advance = Callable[[int], None]  # told how many bytes more are done


class Unusable(Exception):
    """A root that can't be taken. The text names it and the next move."""


class Refused(Exception):
    """The owner's refusal of a file, as a problem document."""

    def __init__(self, document: Document):
        super().__init__(f"{document.get('detail')} ({document.get('code')})")
        self.document = document


@dataclass(frozen=True, slots=True)
class Root:
    """A file, or a folder of files, of one host."""

    host: str
    label: str
    path: Path

    def files(self) -> Iterator[Path]:
        """Its transcripts in the order of their names; those of subagents are part of others."""
        if self.path.is_file():
            yield self.path
            return
        for path in sorted(self.path.rglob("*.jsonl")):
            if "subagents" not in path.relative_to(self.path).parts[:-1] and path.is_file():
                yield path


def roots_of(paths: Sequence[str], host: str | None, label: str | None, home: Path) -> list[Root]:
    """What to look through: the paths, each of which may be HOST:LABEL=PATH, else where agents keep theirs.
    Raises Unusable."""
    if not paths:
        if label is not None or host is not None:
            raise Unusable("--host and --root go with a PATH; name one.")
        known = ((name, home / path.removeprefix("~/")) for name, path in DEFAULT_ROOTS)
        return [Root(name, "local", path) for name, path in known if path.is_dir()]
    return [_root(path, host, label) for path in paths]


def _root(text: str, host: str | None, label: str | None) -> Root:
    declared = _DECLARED.fullmatch(text)
    if declared is not None:
        host, label, text = declared.groups()
    path = Path(text).expanduser().absolute()
    if not (path.is_file() or path.is_dir()):
        raise Unusable(f"{path}: there is no such file or folder.")
    host = host or host_of(f"{path.as_posix()}/")
    if host is None:
        raise Unusable(f"{path}: can't tell whose transcripts these are; say --host {'|'.join(HOSTS)}.")
    if host not in HOSTS:
        raise Unusable(f"--host {host}: there are parsers for {', '.join(HOSTS)}.")
    if host == "cursor" and (label is not None or not path.is_file()):
        raise Unusable("Cursor keeps no folder of transcripts to go through; name one file, without --root.")
    if label is not None and (label == "cursor-outcome" or not label.strip() or len(label) > 128):
        raise Unusable(
            f"--root {label}: that label is reserved, blank or over 128 characters; choose another."
        )
    return Root(host, label or "local", path)


@dataclass(frozen=True, slots=True)
class File:
    """A transcript as it is at a moment: of what is appended later nothing is read."""

    root: Root
    path: Path
    size: int
    modified: int  # epoch seconds
    told: Told
    project: str

    @classmethod
    def opened(cls, root: Root, path: Path, project: str | None) -> "File":
        """Raises OSError."""
        found = path.stat()
        with path.open("rb") as stream:
            told = probe(stream, root.host)
        named = _project(root, path, told) if project is None else project
        return cls(root, path, found.st_size, int(found.st_mtime), told, named)

    @property
    def names(self) -> Document:
        """Which transcript it is."""
        return {
            "host": self.root.host,
            "source_root": self.root.label,
            "project": self.project[:1_024],
            "session_id": (self.told.session_id or self.path.stem)[:256],
            "transcript_id": self.path.stem[:256],
        }


def _project(root: Root, path: Path, told: Told) -> str:
    """The work tree that the session was in, else the folder of the file, which is named after it."""
    if told.directory is None:
        return path.parent.name if root.host == "claude-code" else ""
    directory = Path(told.directory)
    above = (one for one in (directory, *directory.parents) if (one / ".git").exists())
    return str(next(above, told.directory))


@dataclass(slots=True)
class Summary:
    """What became of files, in numbers, and why some failed."""

    files: int = 0
    unchanged_files: int = 0
    partial_files: int = 0
    failed_files: int = 0
    scanned_lines: int = 0
    ingested_messages: int = 0
    duplicate_messages: int = 0
    skipped_messages: int = 0
    empty_messages: int = 0
    errors: list[Document] = field(default_factory=list)

    def add(self, file: Path, answer: Document) -> None:
        """Count an answer."""
        self.files += 1
        self.partial_files += answer["status"] == "partial"
        self.unchanged_files += answer["status"] == "unchanged"
        scanned, inserted, duplicates, skipped, empty = (answer[name] for name in _COUNTS)
        self.scanned_lines += scanned
        self.ingested_messages += inserted
        self.duplicate_messages += duplicates
        self.skipped_messages += skipped
        self.empty_messages += empty
        if answer["status"] == "failed":
            self.fail(file, answer["error"], counted=True)

    def fail(self, file: Path, why: str, *, counted: bool = False) -> None:
        self.files += not counted
        self.failed_files += 1
        self.errors.append({"file": str(file), "error": why})


def look_at(file: File, now: int) -> Document:
    """What would be read of a file, `now` in epoch seconds; nothing is sent."""

    def keep(_ordinal: int, _said: Said, _branch: str | None) -> None:
        pass

    with file.path.open("rb") as stream:
        found = read_transcript(stream, file.root.host, 0, keep, recent=now - file.modified <= 60)
    status = "failed" if found.error else "partial" if found.partial else "ok"
    return {
        "scanned_lines": found.scanned,
        "inserted": 0 if found.error else found.messages,
        "duplicates": 0,
        "skipped": found.skipped,
        "empty": found.empty,
        "status": status,
        "error": found.error,
    }


async def send(http: httpx.AsyncClient, file: File, *, resume: bool, advance: Advance) -> Document:
    """Have the owner take a file in, from where it stopped the last time. Raises Refused, OSError or
    httpx.RequestError."""
    with file.path.open("rb") as stream:
        names, read, lines = (
            await _resumed(http, file, stream) if resume else (file.names, hashlib.sha256(), 0)
        )
        start = stream.tell()
        advance(start)
        if start and start == file.size:
            return dict.fromkeys(_COUNTS, 0) | {"status": "unchanged", "error": None}
        last = b""

        async def rest() -> AsyncIterator[bytes]:
            nonlocal last
            left = file.size - start
            while left > 0 and (piece := stream.read(min(PIECE, left))):
                left -= len(piece)
                last = piece[-1:]
                read.update(piece)
                yield piece
                advance(len(piece))

        arguments = names | {"modified_at_epoch": file.modified, "first_line": lines}
        arguments |= {"session_mode": file.told.mode} if file.told.mode != "unknown" else {}
        arguments |= {"branch": file.told.branch[:256]} if file.told.branch else {}
        headers = {"Content-Type": JSON_LINES}
        answer = _document(await http.post(TRANSCRIPTS, params=arguments, content=rest(), headers=headers))
    # The line that is being written now must be seen again, whole.
    if resume and answer["status"] in ("ok", "duplicate_only") and last == b"\n":
        done = {"lines": lines + answer["scanned_lines"], "bytes": file.size, "digest": read.hexdigest()}
        _document(await http.post(ADVANCE, json=names | done))
    return answer


async def _resumed(http: httpx.AsyncClient, file: File, stream: IO[bytes]) -> tuple[Document, Any, int]:
    """Which transcript it is, the digest of what was read of it already, and how many lines that is; the
    stream stands behind it. All anew when the file begins like no transcript that is known."""
    found = _document(await http.post(FIND, json=file.names))
    own = [] if found["cursor"] is None else [found["cursor"]]
    known = [cursor for cursor in (*own, *found["others"]) if cursor["bytes"] <= file.size]
    names, read, lines, end = file.names, hashlib.sha256(), 0, 0
    so_far = hashlib.sha256()
    for cursor in sorted(known, key=lambda cursor: cursor["bytes"]):
        left = cursor["bytes"] - stream.tell()
        while left > 0 and (piece := stream.read(min(PIECE, left))):
            left -= len(piece)
            so_far.update(piece)
        if so_far.hexdigest() == cursor["digest"]:
            names = names | {"transcript_id": cursor.get("transcript_id", names["transcript_id"])}
            read, lines, end = so_far.copy(), cursor["lines"], cursor["bytes"]
    stream.seek(end)
    return names, read, lines


def _document(response: httpx.Response) -> Document:
    document: Document = response.json()
    if response.status_code >= 400:
        raise Refused(document)
    return document


def opened(roots: Iterable[Root], project: str | None, summary: Summary) -> Iterator[File]:
    """The files of some roots; those that can't be read are counted as failed."""
    for root in roots:
        for path in root.files():
            try:
                yield File.opened(root, path, project)
            except (OSError, Malformed) as fault:
                summary.fail(path, f"can't be read: {getattr(fault, 'strerror', None) or fault}")
