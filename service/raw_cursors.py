"""How far a file was ingested, over the owner's internal routes: `brain ingest` asks before it sends a file,
and tells when it is done. Whose transcript it is follows from the caller's headers. Of a file that nobody
knows by its name, the others of its session are told: it may be one of them that was renamed."""

from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from models import verbatim
from models.errors import BrainError
from models.raw_requests import INT64, Project, Root, SessionId
from models.raw_sessions import SessionName
from models.requests import Request as Input
from models.scope import Caller
from models.transcripts import TranscriptHost
from service.brain import Brain
from service.keys import read_body
from service.responses import document, problem
from service.validation import validate
from stores import transcripts
from stores.transcripts import Cursor

FIND, ADVANCE = "/internal/transcripts/find", "/internal/transcripts/advance"


class Named(Input):
    """Which transcript."""

    host: TranscriptHost
    source_root: Root
    project: Project
    session_id: SessionId
    transcript_id: SessionId

    @property
    def name(self) -> SessionName:
        return SessionName(self.host, self.source_root, self.project, self.session_id)


class Advanced(Named):
    """And how far it was read; `digest` is the SHA-256 of so many bytes, in hexadecimal digits."""

    lines: Annotated[int, Field(ge=0, lt=INT64)]
    bytes: Annotated[int, Field(ge=0, lt=INT64)]
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def routes(brain: Brain) -> list[Route]:
    """The internal routes; the gate lets only the owner's token through to them."""

    async def find(request: Request) -> Response:
        caller: Caller = request.state.caller
        try:
            named = validate(Named, verbatim.parse(await read_body(request)))
            with brain.ledger.snapshot() as connection:
                found = transcripts.cursor(connection, caller.home, named.name, named.transcript_id)
                others = {} if found else transcripts.others(connection, caller.home, named.name)
        except BrainError as refusal:
            return problem(refusal, caller.request_id)
        return document(
            {
                "cursor": None if found is None else _fields(found),
                "others": [_fields(one) | {"transcript_id": name} for name, one in others.items()],
            }
        )

    async def advance(request: Request) -> Response:
        caller: Caller = request.state.caller
        try:
            told = validate(Advanced, verbatim.parse(await read_body(request)))
            to = Cursor(told.lines, told.bytes, bytes.fromhex(told.digest))
            await brain.write(
                lambda transaction: transcripts.advance(
                    transaction, caller.home, told.name, told.transcript_id, to
                )
            )
        except BrainError as refusal:
            return problem(refusal, caller.request_id)
        return document({"cursor": _fields(to)})

    return [Route(FIND, find, methods=["POST"]), Route(ADVANCE, advance, methods=["POST"])]


def _fields(cursor: Cursor) -> dict[str, Any]:
    return {"lines": cursor.lines, "bytes": cursor.size, "digest": cursor.digest.hex()}
