"""A file that is imported: its lines, checked for what only the whole of it can show, in batches."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, BinaryIO

import httpx

from models import verbatim
from models.authority import AUTHORITIES
from models.errors import BadJson, BrainError
from models.transfer import FORMAT, VERSION
from service.client import OwnerUnreachable
from service.importers import IMPORTERS, Target, Unreadable
from service.owner_door import owner_door
from service.settings import Settings
from service.transfer import IMPORT
from stores.imports import FATES

BATCH, BATCH_BYTES = 200, 4 << 20  # lines of one write; nobody else writes meanwhile
MAX_LINE = 16 << 20  # bytes
COUNTED = (*FATES, "links", "links_left_out", "conflicts", "conflicts_left_out")
PAUSES_S = (0.0, 0.5, 2.0)  # before each try; a batch that came twice adds nothing

Document = dict[str, Any]
Batch = list[bytes]


class ImportFailed(Exception):
    """The file as a whole is not what it was said to be. The text says why and names the next move."""


class ImportRefused(Exception):
    """The owner refused a batch as a whole."""

    def __init__(self, detail: str, hint: str | None):
        super().__init__(detail)
        self.hint = hint


@dataclass(slots=True)
class Opened:
    """A file of a `source` (None: our own export), and the errors that were found while it was read."""

    stream: BinaryIO
    source: str | None
    options: Document
    authority: str
    errors: list[Document] = field(default_factory=list)

    def batches(self) -> Iterator[Batch]:
        """Lines, each a number, a space and a memory. Raises ImportFailed."""
        batch: Batch = []
        size = 0
        for number, line in self._lines():
            batch.append(b"%d %s" % (number, line))
            size += len(line)
            if len(batch) >= BATCH or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        if self.source is None:
            yield from self._own_lines()
            return
        if self.source not in IMPORTERS:
            raise ImportFailed(f"--from {self.source}: use one of {', '.join(IMPORTERS)}.")
        if self.authority not in AUTHORITIES:
            raise ImportFailed(f"--authority {self.authority}: use one of {', '.join(AUTHORITIES)}.")
        places = {name: self.options[name] for name in ("product", "agent", "user")}
        target = Target(**places, authority=self.authority)
        try:
            for number, found in IMPORTERS[self.source](self.stream, target):
                if isinstance(found, Unreadable):
                    self._note(number, "bad_line", str(found))
                    continue
                try:
                    verbatim.check(found)
                    yield number, verbatim.dump(found).encode()
                except BrainError as error:
                    self._note(number, error.code, error.detail)
        except Unreadable as error:
            raise ImportFailed(str(error)) from None

    def _own_lines(self) -> Iterator[tuple[int, bytes]]:
        """The memories between the header and the end."""
        lines = _bounded(self.stream)
        _check_header(next(lines, (1, b""))[1])
        memories, number, end = 0, 1, None
        for number, line in lines:
            if end is not None:
                self._note(number, "bad_line", "stands behind the end of the export")
            elif line.startswith(b'{"end":'):
                end = line
            elif line.strip():
                memories += 1
                yield number, line
        if end is None:
            self._note(number + 1, "cut_off", "the end of the export is missing: the file was cut off")
        elif _count(end) != memories:
            self._note(number, "cut_off", f"{_count(end)} lines were exported, {memories} are here")

    def _note(self, line: int, code: str, detail: str) -> None:
        self.errors.append({"line": line, "code": code, "detail": detail})


async def send(settings: Settings, batches: Iterator[Batch], options: Document) -> Document:
    """Have the owner take the batches in, one after the other. The counts of all, and the errors. Raises
    ImportFailed, ImportRefused or OwnerUnreachable."""
    done: Document = dict.fromkeys(COUNTED, 0) | {"errors": []}
    head = verbatim.dump(options).encode()
    first = list(islice(batches, 1))
    if not first:  # nor does a file that can't be read make anybody start anything
        return done
    async with owner_door(settings) as http:
        for batch in chain(first, batches):
            answer = await _post(http, b"\n".join([head, *batch]))
            for name in COUNTED:
                done[name] += answer[name]
            done["errors"] += answer["errors"]
        await _post(http, verbatim.dump(options | {"finish": True}).encode())
    return done


async def _post(http: httpx.AsyncClient, body: bytes) -> Document:
    fault: httpx.RequestError | None = None
    for pause in PAUSES_S:
        await asyncio.sleep(pause)
        try:
            response = await http.post(IMPORT, content=body)
        except httpx.RequestError as error:
            fault = error
            continue
        answer: Document = response.json()
        if response.status_code >= 400:
            raise ImportRefused(f"{answer['detail']} ({answer['code']})", answer.get("hint"))
        return answer
    raise OwnerUnreachable(f"{type(fault).__name__} {fault}".strip(), sent=True) from fault


def _bounded(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := stream.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise ImportFailed(f"line {number} is over {MAX_LINE} bytes long.")
        yield number, line.rstrip(b"\r\n")


def _check_header(line: bytes) -> None:
    try:
        found = verbatim.parse(line)
    except BadJson:
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ImportFailed(
            "line 1 is not the header of a brain export. If another service wrote it, name that with --from: "
            f"{', '.join(IMPORTERS)}."
        )
    if found.get("version") != VERSION:
        raise ImportFailed(
            f"line 1 says version {found.get('version')}; this brain reads {VERSION}. Use a newer one."
        )


def _count(end: bytes) -> Any:
    try:
        found = verbatim.parse(end)["end"]
        return found["memories"] + found["gone"]
    except (BadJson, KeyError, TypeError):
        return None
