"""The use cases that store raw messages: given one by one, or as a transcript that is read as it comes.

A transcript goes through three steps: its bytes into a file without a name, line by line from there what was
said with all that can be found out beforehand into a second one, and that into the ledger, part by part. So
memory holds a line or a part, other writes wait for a part at the most, and no session shows a part before
the last one is in: a fault anywhere leaves what a repeat makes whole.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import IO, Any

import orjson
from starlette.requests import ClientDisconnect

from models.answers import Reply
from models.draft import content_key
from models.errors import invalid
from models.injection import scan
from models.raw_requests import AddRawMessages, IngestTranscript
from models.raw_sessions import SessionName, message_hash
from models.scope import Caller
from service.brain import Brain
from service.once import once, replayed
from service.transcripts import Scan, read_transcript
from stores.acts import Act
from stores.raw_archive import Brought, Clash, Source, Taken, bring, find_clash, note_failure, refuse
from stores.words import analyze
from stores.writer import Transaction

PART, PART_CHARACTERS = 500, 1 << 21  # of a transcript in one write: messages, and characters before the last
_BUFFER = 1 << 20  # bytes of a body

Prepared = tuple[int, str, str, int | None, str | None, bool, str, str, list[str], list[str]]


async def add_messages(brain: Brain, caller: Caller, request: AddRawMessages) -> Reply:
    name = SessionName(request.host or "", request.source_root, request.project, request.session_id)
    ordinals = _ordinals(request)
    source = Source(name, request.session_mode or "unknown", request.transcript_id)

    def prepare() -> list[Brought]:
        given = [(ordinal, one) for ordinal, one in zip(ordinals, request.messages, strict=True)]
        return [
            _brought(brain, _prepared(ordinal, one.role, one.content, one.created_at, None, meta=False))
            for ordinal, one in given
            if one.content.strip()
        ]

    brought = await asyncio.to_thread(prepare)
    act = Act(caller, "add_raw_messages", brain.meaning.fingerprint())

    def write(transaction: Transaction) -> dict[str, Any]:
        taken = bring(act, transaction, source, brought)
        return {
            "inserted": taken.inserted,
            "duplicates": taken.duplicates,
            "conflicts": taken.conflicts,
        }

    done, again = await once(brain, caller, act.operation, request, write)
    empty = len(request.messages) - len(brought)
    return Reply({**done, "empty": empty, "session_ref": name.ref, **replayed(again)})


def _ordinals(request: AddRawMessages) -> list[int]:
    """The place of each message. Raises InvalidArgument where two have the same."""
    found: list[int] = []
    for index, message in enumerate(request.messages):
        following = found[-1] + 1 if found and request.transcript_id is not None else 0
        ordinal = following if message.ordinal is None else message.ordinal
        found.append(ordinal)
        if request.transcript_id is not None and ordinal in found[:-1]:
            raise invalid(f"messages[{index}].ordinal", f"{ordinal} stands twice")
    return found


async def ingest(brain: Brain, caller: Caller, request: IngestTranscript) -> Reply:
    if request.content is None:
        raise invalid("content", "is needed, unless the body is application/x-ndjson")
    content = request.content.encode()

    async def whole() -> AsyncIterator[bytes]:
        yield content

    return await ingest_stream(brain, caller, request, whole())


async def ingest_stream(
    brain: Brain, caller: Caller, request: IngestTranscript, body: AsyncIterator[bytes]
) -> Reply:
    """The same of a body that comes bit by bit, as long as it may be."""
    with ExitStack() as files:
        # Without a name in the directory, so that nothing of it outlives the process.
        raw, said = (files.enter_context(_nameless(brain)) for _ in range(2))
        await _receive(body, raw)
        found = await asyncio.to_thread(_read, brain, request, raw, said)
        if found.error is not None and not (found.told.session_id or request.session_id):
            return Reply(_answer(None, found, Taken()))  # there is no telling whose it is
        source = _source(request, found)
        act = Act(caller, "ingest_transcript", brain.meaning.fingerprint())
        if found.error is not None:
            await brain.write(lambda transaction: note_failure(act, transaction, source, found.line))
            taken = Taken()
        else:
            taken = await _store(brain, act, source, said)
    return Reply(_answer(source.name, found, taken))


async def _store(brain: Brain, act: Act, source: Source, said: IO[bytes]) -> Taken:
    """Write what was said, part by part. A contradiction is looked for in all parts before the first one is
    written; what somebody else brings of the same transcript meanwhile is met on the way."""
    clash = await asyncio.to_thread(_find_clash, brain, act, source, said)
    if clash is not None:
        done: Taken = await brain.write(partial(refuse, act, source=source, clash=clash))
        return done
    parts = _parts(brain, said)
    part: Sequence[Brought] | None = await asyncio.to_thread(next, parts)
    total = Taken()
    while part is not None and total.detail is None:
        following = await asyncio.to_thread(next, parts, None)
        write = partial(bring, act, source=source, brought=part, last=following is None)
        total = total.with_part(await brain.write(write))
        part = following
    return total


def _find_clash(brain: Brain, act: Act, source: Source, said: IO[bytes]) -> Clash | None:
    with brain.ledger.snapshot() as connection:
        clash = find_clash(connection, act.caller.home, source, _parts(brain, said))
    said.seek(0)
    return clash


def _answer(name: SessionName | None, found: Scan, taken: Taken) -> dict[str, Any]:
    error = found.error if taken.detail is None else f"conflict: {taken.detail}"
    status = (
        "partial" if found.partial else "ok" if taken.inserted or not taken.duplicates else "duplicate_only"
    )
    return {
        "scanned_lines": found.scanned,
        "inserted": taken.inserted,
        "duplicates": taken.duplicates,
        "skipped": found.skipped,
        "empty": found.empty,
        "parse_errors": int(found.error is not None),
        "status": "failed" if error else status,
        "session_ref": None if name is None else name.ref,
        "error": error,
    }


def _source(request: IngestTranscript, found: Scan) -> Source:
    session_id = found.told.session_id or request.session_id
    if session_id is None:
        raise invalid("session_id", "is needed: the transcript does not name its session")
    project = found.told.directory or "" if request.project is None else request.project
    mode = found.told.mode if found.told.mode != "unknown" else request.session_mode or "unknown"
    name = SessionName(request.host, request.source_root, project[:1_024], session_id[:256])
    return Source(name, mode, request.transcript_id or name.session_id)


async def _receive(body: AsyncIterator[bytes], file: IO[bytes]) -> None:
    parts: list[bytes] = []
    size = 0
    try:
        async for part in body:
            parts.append(part)
            size += len(part)
            if size >= _BUFFER:
                await asyncio.to_thread(file.writelines, parts)
                parts, size = [], 0
    except ClientDisconnect:  # nobody is left to answer, and half of it is not what was meant
        raise invalid("body", "was cut off") from None
    await asyncio.to_thread(file.writelines, parts)
    file.seek(0)


def _read(brain: Brain, request: IngestTranscript, raw: IO[bytes], said: IO[bytes]) -> Scan:
    now = brain.clock() // 1000
    recent = request.modified_at_epoch is not None and now - request.modified_at_epoch <= 60

    def keep(ordinal: int, one: Any, branch: str | None) -> None:
        made = _prepared(
            ordinal, one.role, one.content, one.at, one.branch or branch or request.branch, meta=one.meta
        )
        said.write(orjson.dumps(made) + b"\n")

    found = read_transcript(raw, request.host, request.first_line, keep, recent=recent)
    said.seek(0)
    return found


def _parts(brain: Brain, said: IO[bytes]) -> Iterator[Sequence[Brought]]:
    """At least one, which may be empty."""
    some: list[Brought] = []
    size = 0
    for line in said:
        if len(some) == PART or size > PART_CHARACTERS:
            yield some
            some, size = [], 0
        one = _brought(brain, orjson.loads(line))
        some.append(one)
        size += len(one.content)
    yield some


def _prepared(
    ordinal: int, role: str, content: str, at: int | None, branch: str | None, *, meta: bool
) -> Prepared:
    """A message with what takes time to find out. JSON-ready."""
    return (
        ordinal,
        role,
        content,
        at,
        branch,
        meta,
        message_hash(content),
        content_key(content),
        list(analyze(content)),
        list(scan(content)),
    )


def _brought(brain: Brain, prepared: Any) -> Brought:
    *plain, terms, reasons = prepared
    fields: tuple[Any, ...] = (brain.new_id(brain.clock()), *plain, tuple(terms), tuple(reasons))
    return Brought(*fields)


def _nameless(brain: Brain) -> closing[IO[bytes]]:
    opened: Callable[..., IO[bytes]] = tempfile.TemporaryFile
    return closing(opened(dir=brain.settings.data_directory))
