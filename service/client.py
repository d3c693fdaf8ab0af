"""The way to the process that owns the data: finding or becoming it, and calling it through its routes."""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import quote

import httpx
import structlog

from models import verbatim
from models.errors import BadJson
from service.operations import Operation
from service.validation import validate
from stores.lock import DataDirectoryLock, Owner

log = structlog.get_logger()

StartOwner = Callable[[], AbstractAsyncContextManager[Owner]]

_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")

# With these the request can't have reached the server; after any other fault it may have been carried out.
_NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


class OwnerUnreachable(Exception):
    """No answer of ours came back. `sent`: the request may have been received and carried out."""

    def __init__(self, detail: str, *, sent: bool):
        super().__init__(detail)
        self.sent = sent


def credential_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """The headers that say who asks, from BRAIN_API_KEY, BRAIN_AGENT and BRAIN_USER; an empty variable
    counts as absent. ValueError for a value that no header can carry."""
    headers = {}
    for variable, header, form in (
        ("BRAIN_API_KEY", "Authorization", "Bearer {}"),
        ("BRAIN_AGENT", "X-Brain-Agent", "{}"),
        ("BRAIN_USER", "X-Brain-User", "{}"),
    ):
        value = environment.get(variable)
        if value:
            if not (value.isascii() and value.isprintable()):
                raise ValueError(f"{variable} must be printable ASCII")
            headers[header] = form.format(value)
    return headers


class OwnerClient:
    """One server, at `url`. Close it, or use it as a context."""

    def __init__(self, url: str, headers: Mapping[str, str], *, timeout: float = 600.0):
        """`timeout` is in seconds, for one answer; a large batch on a slow machine takes minutes. Proxies
        in the environment are not used: the owner is on loopback, or where its address says."""
        limits = httpx.Timeout(timeout, connect=min(timeout, 5.0))
        self._http = httpx.AsyncClient(base_url=url, headers=dict(headers), timeout=limits, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def call(self, operation: Operation[Any], arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The HTTP status and the JSON object that it came with, numbers with their digits.

        The arguments are checked here first: a query string can't say that 5 was sent as "5".
        Raises InvalidArgument; OwnerUnreachable.
        """
        validate(operation.input, arguments)
        request = self._request(operation, arguments)
        try:
            response = await self._http.send(request)
            body = verbatim.parse(response.content)
        except httpx.RequestError as error:
            detail = f"{request.url.host}:{request.url.port} did not answer: {type(error).__name__} {error}"
            raise OwnerUnreachable(detail.strip(), sent=not isinstance(error, _NEVER_SENT)) from error
        except BadJson as error:
            raise OwnerUnreachable(f"Status {response.status_code} without JSON.", sent=True) from error
        if not isinstance(body, dict):
            raise OwnerUnreachable("The answer is not a JSON object.", sent=True)
        return response.status_code, body

    def _request(self, operation: Operation[Any], arguments: dict[str, Any]) -> httpx.Request:
        rest = dict(arguments)
        path = _PARAMETER.sub(lambda match: _segment(rest.pop(match[1])), operation.route.path)
        if operation.route.method in ("GET", "DELETE"):
            query = httpx.QueryParams([(key, text) for key, value in rest.items() for text in _texts(value)])
            return self._http.build_request(operation.route.method, path, params=query)
        return self._http.build_request(
            operation.route.method,
            path,
            content=verbatim.dump(rest).encode(),
            headers={"Content-Type": "application/json"},
        )


class OwnerSource(Protocol):
    """Where the owner is."""

    async def find(self) -> Owner:
        """The present owner. Raises OwnerUnreachable when there is none to be had."""

    async def leave(self) -> None:
        """Called once, at the end."""


class RemoteOwner:
    """A server named by its address (`--url`, BRAIN_URL). Nothing is started for it."""

    def __init__(self, url: str):
        self._owner = Owner(pid=0, url=url, token="")

    async def find(self) -> Owner:
        return self._owner

    async def leave(self) -> None:
        pass


class LocalOwner:
    """The owner of a data directory: whoever holds its lock, or else this process."""

    def __init__(
        self, lock: DataDirectoryLock, start_owner: StartOwner, *, polls: int = 600, pause: float = 0.05
    ):
        """`start_owner` starts the whole server in this process while the context lasts; it is entered
        with the lock held, which stays ours to publish and to release. An owner that is still starting
        is waited for: `polls` looks, `pause` seconds apart."""
        self._lock = lock
        self._start_owner = start_owner
        self._polls = polls
        self._pause = pause
        self._leave = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._started: asyncio.Future[Owner] | None = None

    async def find(self) -> Owner:
        for _ in range(self._polls):
            # Asked first, because the lock would be granted a second time to the process that has it.
            if self._serving is not None or self._lock.acquire():
                return await self._own()
            if (owner := self._lock.owner()) is not None:
                return owner
            await asyncio.sleep(self._pause)
        raise OwnerUnreachable("The process that holds the data directory does not listen yet.", sent=False)

    async def leave(self) -> None:
        """Stop the server in this process, if there is one, and wait until the directory is free."""
        self._leave.set()
        if self._serving is not None:
            await asyncio.wait({self._serving})

    async def _own(self) -> Owner:
        # A task of its own: the server must be entered and left by one task, and outlive this call.
        if self._serving is None or self._started is None:
            self._started = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._serve(self._started))
        serving, started = self._serving, self._started
        waited: list[asyncio.Future[Any]] = [serving, started]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            return started.result()
        fault = serving.exception()
        log.error("the server did not start", exc_info=fault)
        raise OwnerUnreachable(f"The server did not start: {fault or 'it ended'}.", sent=False) from fault

    async def _serve(self, started: asyncio.Future[Owner]) -> None:
        try:
            async with self._start_owner() as owner:
                self._lock.publish(owner)
                started.set_result(owner)
                await self._leave.wait()
        finally:
            self._serving = None
            self._lock.release()


def _segment(value: Any) -> str:
    """One segment of a path. Dots are encoded too, so that an id of `..` stays an id."""
    return quote(str(value), safe="").replace(".", "%2E")


def _texts(value: Any) -> list[str]:
    """The value as it stands in a query string: once for each member of a list, not at all for None."""
    if value is None:
        return []
    if isinstance(value, list):
        return [text for member in value for text in _texts(member)]
    return [value if isinstance(value, str) else verbatim.dump(value)]
