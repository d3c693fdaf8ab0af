"""The outermost layer of the HTTP door, in pure ASGI: who calls, under which request id, and the counting."""

import difflib
import itertools
import re
import secrets
import time

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from models.errors import BrainError, Forbidden, TooLarge, Unauthenticated, invalid
from service.callers import Callers, Headers
from service.http_api import Shortcuts, failure
from service.metrics import Metrics
from service.refusals import AT_THE_DOOR, DOOR, Origin, Refusals
from service.responses import problem

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_OURS = (b"x-brain-product", b"x-brain-agent", b"x-brain-user")
# What the MCP SDK refuses at /mcp: a foreign Host or Origin, and a body over its limit.
_OF_THE_SDK = {421: Forbidden("Host"), 403: Forbidden("Origin"), 413: TooLarge("Body")}
_ONCE = (b"host", b"origin", b"authorization", *_OURS)


class Gate:
    """Puts the `Caller` into `scope["state"]["caller"]`, or answers a problem document."""

    def __init__(
        self, app: ASGIApp, shortcuts: Shortcuts, metrics: Metrics, callers: Callers, refusals: Refusals
    ):
        self._app = app
        self._shortcuts = shortcuts
        self._metrics = metrics
        self._callers = callers
        self._refusals = refusals
        # Random by process, then counted: to ask the kernel for randomness costs as much as the rest of this.
        start, digits = secrets.token_hex(4), "%08x"
        self._new_ids = (start + digits % (number & 0xFFFFFFFF) for number in itertools.count())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id")
        request_id = given.decode() if given and _REQUEST_ID.fullmatch(given) else next(self._new_ids)
        state = scope.setdefault("state", {})
        state["headers"] = headers
        status = 500
        try:
            response = await self._response(scope, receive, headers, request_id)
            if response is None:
                status = await self._routed(scope, receive, send, request_id)
            else:
                response.raw_headers.append((b"x-request-id", request_id.encode()))
                status = response.status_code
                await response(scope, receive, send)
        finally:
            self._metrics.count(state.get("operation", "other"), status, time.perf_counter() - started)

    async def _routed(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> int:
        """Let the router find who answers: the status of the answer."""
        status = 500

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", request_id.encode()))
                if status in _OF_THE_SDK and scope["path"] == "/mcp":
                    origin = Origin.of(scope["state"]["caller"])
                    await self._refusals.record(origin, DOOR, _OF_THE_SDK[status], request_id)
            await send(message)

        await self._app(scope, receive, send_named)
        return status

    async def _response(
        self, scope: Scope, receive: Receive, headers: Headers, request_id: str
    ) -> Response | None:
        """The response, unless the router has to find it."""
        try:
            if len(headers) < len(scope["headers"]):
                _refuse_repeated(scope["headers"])
            _refuse_mistyped(headers)
            scope["state"]["caller"] = self._callers.identify(scope, headers, request_id)
        except BrainError as refusal:
            if refusal.status in AT_THE_DOOR:
                await self._refusals.record(self._callers.origin(headers), DOOR, refusal, request_id)
            challenge = {"www-authenticate": "Bearer"} if isinstance(refusal, Unauthenticated) else None
            return problem(refusal, request_id, challenge)
        except Exception as bug:  # noqa: BLE001 - `failure` logs it with its trace
            return failure(bug, request_id)
        endpoint = self._shortcuts.find(scope)
        return None if endpoint is None else await endpoint.answer(scope, receive)


def _refuse_repeated(headers: list[tuple[bytes, bytes]]) -> None:
    """Who calls must not depend on which of two headers somebody reads."""
    names = [name for name, _ in headers]
    for name in _ONCE:
        if names.count(name) > 1:
            raise invalid(name.decode().title(), "is given twice")


def _refuse_mistyped(headers: Headers) -> None:
    """A header of ours that we don't know is a slip, and would be answered from another scope."""
    for name in headers:
        if name.startswith(b"x-brain-") and name not in _OURS:
            known = [ours.decode().title() for ours in _OURS]
            given = name.decode("latin-1").title()
            near = difflib.get_close_matches(given, known, n=1, cutoff=0)[0]
            raise invalid(given, f"is not known; did you mean {near}?")
