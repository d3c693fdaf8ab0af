"""A transcript read line by line, as a stream."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from models.transcripts import (
    MAX_LINE,
    MAX_MESSAGE,
    PROBED,
    Malformed,
    Said,
    Told,
    record_of,
    said_in,
    told_by,
)

Keep = Callable[[int, Said, str | None], None]


@dataclass(slots=True)
class Scan:
    """What was read: lines that were no message, messages without text, and those that were kept. `error`
    says why it can't be taken in, and `line` where, from 1. `partial`: the last line is not whole yet."""

    told: Told
    scanned: int = 0
    skipped: int = 0
    empty: int = 0
    messages: int = 0
    error: str | None = None
    line: int | None = None
    partial: bool = False


def read_transcript(stream: IO[bytes], host: str, first_line: int, keep: Keep, *, recent: bool) -> Scan:
    """Hand each message to `keep`, with its line's number from 0 and the session's branch. Ends at the first
    line that can't be read; a last one that can't is left for later where the file is `recent`."""
    found = Scan(Told() if first_line else probe(stream, host))  # the head alone says whose it is
    for number, line, last in _lines(stream, first_line):
        try:
            if len(line) > MAX_LINE:
                raise Malformed(f"it is over {MAX_LINE} bytes long")
            record = record_of(line)
            said = None if record is None else said_in(host, record)
            if said is not None and len(said.content.encode()) > MAX_MESSAGE:
                raise Malformed(f"its message is over {MAX_MESSAGE} bytes long")
        except Malformed as fault:
            if last and recent:
                found.partial = True
            else:
                found.error, found.line = f"line {number + 1}: {fault}", number + 1
                found.scanned += 1
            return found
        found.scanned += 1
        if said is None:
            found.skipped += 1
        elif not said.content.strip():
            found.empty += 1
        else:
            found.messages += 1
            keep(number, said, found.told.branch)
    return found


def probe(stream: IO[bytes], host: str) -> Told:
    """What the first lines tell of the session. The stream is at its beginning before and after."""
    records: list[Mapping[str, Any]] = []
    for _ in range(PROBED):
        line = stream.readline(MAX_LINE)
        try:
            record = record_of(line) if line else None
        except Malformed:
            break  # it is met again, by its number
        records += [] if record is None else [record]
    stream.seek(0)
    return told_by(host, records)


def _lines(stream: IO[bytes], first: int) -> Iterator[tuple[int, bytes, bool]]:
    """The lines with their numbers, and whether it is the last."""
    number, line = first, stream.readline(MAX_LINE + 1)
    while line:
        following = stream.readline(MAX_LINE + 1)
        yield number, line, not following
        number, line = number + 1, following
