"""The outermost layer of the HTTP door, in pure ASGI: who calls, under which request id, and the counting.

Keyless mode (no key exists) serves this machine only: a Host or Origin that is not a loopback name is
refused on every route, so that a web page can't reach the memory through the user's browser.
"""

import re
import secrets
import time
from functools import lru_cache
from urllib.parse import urlsplit

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from models.errors import BrainError, Forbidden, Unauthenticated, invalid
from models.scope import Caller
from models.scope import Scope as Tenant
from service.metrics import Metrics
from service.responses import problem

log = structlog.get_logger()

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_NAME = re.compile(rb"[\x20-\x7e]{1,128}")
ALL_RIGHTS = frozenset({"read", "write", "admin"})
PRODUCT = "default"


class Gate:
    """Puts the `Caller` into `scope["state"]["caller"]`, or answers a problem document. `token` is what
    the owner of the data directory published for other processes on this machine."""

    def __init__(self, app: ASGIApp, metrics: Metrics, token: str):
        self._app = app
        self._metrics = metrics
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given.decode() if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        state = scope.setdefault("state", {})
        status = 500

        async def send_named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        try:
            if len(headers) < len(scope["headers"]):
                _refuse_repeated(scope["headers"])
            if scope["path"] != "/mcp":  # there the SDK refuses it, in the protocol's own way
                _refuse_foreign(headers)
            state["caller"] = self._caller(headers, request_id)
        except BrainError as refusal:
            await problem(refusal, request_id)(scope, receive, send_named)
        else:
            await self._app(scope, receive, send_named)
        finally:
            self._metrics.count(state.get("operation", "other"), status, time.perf_counter() - started)

    def _caller(self, headers: dict[bytes, bytes], request_id: str) -> Caller:
        authorization = headers.get(b"authorization")
        if authorization is not None:
            scheme, _, credential = authorization.partition(b" ")
            if scheme.lower() != b"bearer" or not secrets.compare_digest(credential.strip(), self._token):
                raise Unauthenticated(
                    "The credential is not known. No key exists yet: leave Authorization out."
                )
        agent = _name(headers, b"x-brain-agent") or "default"
        return Caller(Tenant(PRODUCT, agent), _name(headers, b"x-brain-user"), ALL_RIGHTS, request_id)


def _refuse_repeated(headers: list[tuple[bytes, bytes]]) -> None:
    """Who calls must not depend on which of two headers somebody reads."""
    names = [name for name, _ in headers]
    for name in (b"host", b"origin", b"authorization", b"x-brain-agent", b"x-brain-user"):
        if names.count(name) > 1:
            raise invalid(name.decode().title(), "is given twice")


def _refuse_foreign(headers: dict[bytes, bytes]) -> None:
    host = headers.get(b"host", b"").decode("latin-1")
    if _hostname(f"//{host}") not in LOOPBACK:
        raise Forbidden(f"Without keys, only this machine is served; the Host is {host[:100]!r}.")
    origin = headers.get(b"origin")
    if origin is not None and _hostname(origin.decode("latin-1")) not in LOOPBACK:
        raise Forbidden("Without keys, web pages of other sites are not served.")


@lru_cache(maxsize=256)
def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _name(headers: dict[bytes, bytes], header: bytes) -> str | None:
    value = headers.get(header)
    if value is None:
        return None
    if not _NAME.fullmatch(value):
        raise invalid(header.decode().title(), "must be 1 to 128 printable ASCII characters")
    return value.decode()
