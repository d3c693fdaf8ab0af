"""Export and import over the owner's internal routes. An export is streamed, a page after the other; an
import comes in batches of lines, each with its number in the file, and each batch is one write."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from models import verbatim
from models.draft import content_key
from models.errors import BadJson, BrainError, TooLarge
from models.keys import Name
from models.layers import Kind, Layer
from models.requests import EpochMs
from models.requests import Request as Input
from models.scope import Caller
from models.transfer import Carried, carried_from, header, line_of
from service import audit
from service.brain import Brain
from service.rescan import mark, unmarked
from service.responses import document, problem
from service.validation import validate
from stores import exports
from stores.acts import Act
from stores.conflict_imports import settle_imports
from stores.exports import Selection
from stores.imports import FATES, Arrival, Taken, take_in
from stores.words import analyze
from stores.writer import Transaction

EXPORT, IMPORT = "/internal/export", "/internal/import"
MAX_BODY = 64 << 20

Document = dict[str, Any]


class ExportFilters(Input):
    """What `brain export` was told to keep to."""

    product: str | None = None
    agent: str | None = None
    user: str | None = None
    layers: Annotated[list[Layer], Field(default_factory=list)]
    kinds: Annotated[list[Kind], Field(default_factory=list)]
    since: EpochMs | None = None


class ImportOptions(Input):
    """How a batch is to be taken in: where to, and whether only to see what would happen. With `finish` the
    file is at its end, and what it had only a part of is put in order."""

    product: Name | None = None
    agent: Name | None = None
    user: Name | None = None
    dry_run: bool = False
    finish: bool = False


@dataclass(frozen=True, slots=True)
class Numbered:
    """A line of the file, by its number there, or why it can't be read."""

    line: int
    arrival: Arrival | BrainError


async def exported(brain: Brain, filters: ExportFilters) -> AsyncIterator[bytes]:
    """The lines of an export. It ends without its last line when the ledger fails on the way."""
    values = filters.model_dump()
    selection = Selection(**values | {name: tuple(values[name]) for name in ("layers", "kinds")})
    ledger = brain.ledger

    def begin() -> int:
        with ledger.snapshot() as connection:
            return exports.last_event(connection)

    def page(after: int) -> tuple[bytes, list[Carried], int]:
        with ledger.snapshot() as connection:
            carried, last = exports.page(connection, selection, at, after)
        return b"".join(_line(line_of(one)) for one in carried), carried, last

    at = await asyncio.to_thread(begin)
    yield _line(header(brain.clock(), {name: value for name, value in values.items() if value}))
    after, end = 0, {"memories": 0, "links": 0, "gone": 0}
    while True:
        lines, carried, after = await asyncio.to_thread(page, after)
        if not carried:
            break
        whole = sum(bool(one.history) for one in carried)
        end["memories"] += whole
        end["links"] += sum(len(one.links) for one in carried)
        end["gone"] += len(carried) - whole
        yield lines
    yield _line({"end": end})


async def import_lines(
    brain: Brain, caller: Caller, options: ImportOptions, lines: Sequence[bytes]
) -> Document:
    """What became of a batch, each line a number, a space and a memory. All of it is one write, of those
    lines that are sound."""
    numbered = await asyncio.to_thread(lambda: [_numbered(line, options) for line in lines if line.strip()])
    arrivals = [one.arrival for one in numbered if isinstance(one.arrival, Arrival)]
    act = Act(caller, "import", brain.meaning.fingerprint())
    sensitive = await asyncio.to_thread(unmarked, [one.carried.memory for one in arrivals])

    def write(transaction: Transaction) -> Taken:
        if not options.dry_run:
            taken = take_in(act, transaction, arrivals)
            _record_refused(transaction, caller, arrivals, taken)
            fates = zip(arrivals, taken.fates, strict=True)
            new = {one.carried.memory.memory_id for one, fate in fates if fate in ("added", "updated")}
            # A file says nothing of the rules of today.
            mark(transaction, [one for one in sensitive if one[0].memory_id in new])
            if options.finish:
                settle_imports(act, transaction)
            return taken
        savepoint = transaction.connection.begin_nested()
        try:
            taken = take_in(act, transaction, arrivals)
            transaction.flush()
        finally:
            savepoint.rollback()
            transaction.pending.clear()
            transaction.changes.clear()
            transaction.events.clear()
        return taken

    taken: Taken = await brain.write(write)
    fates = iter(taken.fates)
    outcomes = [
        (one.line, next(fates) if isinstance(one.arrival, Arrival) else one.arrival) for one in numbered
    ]
    return {
        **{fate: sum(outcome == fate for _, outcome in outcomes) for fate in FATES},
        "links": taken.links,
        "links_left_out": taken.links_left_out,
        "conflicts": taken.conflicts,
        "conflicts_left_out": taken.conflicts_left_out,
        "errors": [
            {"line": line, "code": outcome.code, "detail": outcome.detail}
            for line, outcome in outcomes
            if isinstance(outcome, BrainError)
        ],
    }


def _record_refused(
    transaction: Transaction, caller: Caller, arrivals: Sequence[Arrival], taken: Taken
) -> None:
    """Memories that were not taken in, where whoever audits their scope sees it. Lines that can't be read are
    of nobody."""
    for arrival, fate in zip(arrivals, taken.fates, strict=True):
        if isinstance(fate, BrainError) and audit.judged(fate):
            memory = arrival.carried.memory
            audit.record(transaction, caller, "import", memory.memory_id, fate, memory.partition)


def routes(brain: Brain) -> list[Route]:
    """The internal routes; the gate lets only the owner's token through to them."""

    async def export(request: Request) -> Response:
        caller: Caller = request.state.caller
        try:
            filters = validate(ExportFilters, verbatim.parse(await _body(request)))
        except BrainError as refusal:
            return problem(refusal, caller.request_id)
        return StreamingResponse(exported(brain, filters), media_type="application/x-ndjson")

    async def take(request: Request) -> Response:
        caller: Caller = request.state.caller
        try:
            options, _, lines = (await _body(request)).partition(b"\n")
            wanted = validate(ImportOptions, verbatim.parse(options))
            done = await import_lines(brain, caller, wanted, lines.split(b"\n"))
        except BrainError as refusal:
            return problem(refusal, caller.request_id)
        return document(done)

    return [Route(EXPORT, export, methods=["POST"]), Route(IMPORT, take, methods=["POST"])]


def _line(value: Document) -> bytes:
    return verbatim.dump(value).encode() + b"\n"


def _numbered(line: bytes, options: ImportOptions) -> Numbered:
    number, _, text = line.partition(b" ")
    try:
        carried = carried_from(text).moved(options.product, options.agent, options.user)
    except BadJson as error:
        detail = error.detail.replace("The body is", "The line is", 1)
        return Numbered(int(number), BadJson(detail))
    except BrainError as error:
        return Numbered(int(number), error)
    memory = carried.memory
    words = analyze(memory.content, memory.actor)
    return Numbered(int(number), Arrival(carried, words, content_key(memory.content)))


async def _body(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > MAX_BODY:
            raise TooLarge(f"The body is over the limit of {MAX_BODY} bytes.")
    return b"".join(parts)
