"""The way to the owner: calls through the routes of a real server on loopback, and the wait for one."""

import asyncio
import dataclasses
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from models.errors import InvalidArgument
from models.verbatim import Number
from service import operation
from service.client import LocalOwner, OwnerClient, OwnerUnreachable, credential_headers
from service.operations import BY_NAME
from stores.lock import DataDirectoryLock, Owner

pytestmark = pytest.mark.anyio

GET, LIST, ADD = (BY_NAME[f"brain_memory_{verb}"] for verb in ("get", "list", "add"))
ANY = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """A real server for the app; its address. It listens before it starts, so that nobody has to wait."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task


class FakeOwner:
    """A server that keeps the requests it got and answers each with its name and the request's body."""

    def __init__(self, name: str, losing: int = 0):
        self.name = name
        self.losing = losing  # so many answers get lost on their way
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    async def answer(self, request: Request) -> Response:
        self.bodies.append(orjson.loads(await request.body() or b"{}"))
        self.headers.append(dict(request.headers))
        if len(self.bodies) <= self.losing:
            return PlainTextResponse("lost", status_code=502)
        return Response(orjson.dumps({"owner": self.name}))

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self.answer, methods=ANY)])

    @asynccontextmanager
    async def start(self) -> AsyncIterator[Owner]:
        async with serving(self.app) as url:
            yield Owner(os.getpid(), url, f"token-of-{self.name}")


def closed_port() -> str:
    """An address at which nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


async def echo(request: Request) -> Response:
    """What was received, as JSON, with status 207."""
    body = {
        "method": request.method,
        "path": request.scope["raw_path"].decode(),
        "query": request.query_params.multi_items(),
        "body": (await request.body()).decode(),
        "type": request.headers.get("content-type"),
        "agent": request.headers.get("x-brain-agent"),
    }
    return JSONResponse(body, status_code=207)


ECHO = Starlette(routes=[Route("/{path:path}", echo, methods=ANY)])


async def test_an_id_is_encoded_whole_into_the_path() -> None:
    async with serving(ECHO) as url, OwnerClient(url, {}) as client:
        for memory_id, path in (
            ("mem-1", "mem-1"),
            ("a/b c?d#e%20", "a%2Fb%20c%3Fd%23e%2520"),
            ("..", "%2E%2E"),
            ("é", "%C3%A9"),
        ):
            status, body = await client.call(GET, {"memory_id": memory_id})
            assert (status, body["method"], body["path"]) == (207, "GET", f"/brain/memory/{path}")


async def test_the_rest_of_a_get_stands_in_the_query() -> None:
    search = BY_NAME["brain_memory_search"]
    asked = dataclasses.replace(search, route=operation.Route("GET", "/ask"))
    arguments = {
        "query": "a&b=c d",
        "layers": ["l1_raw", "l2_fact"],
        "session_id": None,
        "explain": True,
        "limit": 5,
        "min_confidence": Number("0.50"),
    }
    async with serving(ECHO) as url, OwnerClient(url, {}) as client:
        _, body = await client.call(asked, arguments)
    assert body["query"] == [
        ["query", "a&b=c d"],
        ["layers", "l1_raw"],
        ["layers", "l2_fact"],
        ["explain", "true"],
        ["limit", "5"],
        ["min_confidence", "0.50"],
    ]
    assert body["body"] == ""


async def test_a_post_keeps_the_digits_of_its_numbers() -> None:
    arguments = {"content": "é", "metadata": {"price": Number("2.50"), "on": None}, "tags": []}
    async with serving(ECHO) as url, OwnerClient(url, {"X-Brain-Agent": "smith"}) as client:
        _, body = await client.call(ADD, arguments)
    assert body["body"] == '{"content":"é","metadata":{"price":2.50,"on":null},"tags":[]}'
    assert (body["type"], body["agent"], body["query"]) == ("application/json", "smith", [])


async def test_an_answer_keeps_the_digits_of_its_numbers() -> None:
    async def price(request: Request) -> Response:
        return Response('{"price": 2.50}', media_type="application/json")

    app = Starlette(routes=[Route("/brain/memory", price)])
    async with serving(app) as url, OwnerClient(url, {}) as client:
        status, body = await client.call(LIST, {})
    assert (status, body["price"].text) == (200, "2.50")


async def test_bad_arguments_are_refused_before_anything_is_sent() -> None:
    async with OwnerClient(closed_port(), {}) as client:
        with pytest.raises(InvalidArgument, match="limit"):
            await client.call(LIST, {"limit": "5"})
        with pytest.raises(InvalidArgument, match="memory_id"):
            await client.call(GET, {})


async def test_a_closed_port_tells_that_nothing_was_sent() -> None:
    async with OwnerClient(closed_port(), {}) as client:
        with pytest.raises(OwnerUnreachable, match="did not answer") as raised:
            await client.call(LIST, {})
    assert not raised.value.sent


@pytest.mark.parametrize("text", ["<html>Bad gateway</html>", "[1]", ""])
async def test_an_answer_that_is_no_json_object_tells_that_the_request_may_have_been_received(
    text: str,
) -> None:
    async def gateway(request: Request) -> Response:
        return PlainTextResponse(text, status_code=502)

    app = Starlette(routes=[Route("/{path:path}", gateway)])
    async with serving(app) as url, OwnerClient(url, {}) as client:
        with pytest.raises(OwnerUnreachable) as raised:
            await client.call(LIST, {})
    assert raised.value.sent


async def test_a_connection_that_breaks_tells_that_the_request_may_have_been_received() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with OwnerClient(f"http://127.0.0.1:{port}", {}) as client:
            with pytest.raises(OwnerUnreachable) as raised:
                await client.call(LIST, {})
    assert raised.value.sent
    assert isinstance(raised.value.__cause__, httpx.RemoteProtocolError)


async def test_an_owner_that_is_starting_is_waited_for(tmp_path: Path) -> None:
    class Watched(DataDirectoryLock):
        """The other process publishes its card while we look for it a second time."""

        looks = 0

        def owner(self) -> Owner | None:
            self.looks += 1
            if self.looks == 2:
                starting.publish(Owner(1, "http://127.0.0.1:1", "t"))
            return super().owner()

    starting = DataDirectoryLock(tmp_path)
    assert starting.acquire()
    watched = Watched(tmp_path)
    owner = await LocalOwner(watched, FakeOwner("never").start, polls=3, pause=0).find()
    assert (owner.url, watched.looks) == ("http://127.0.0.1:1", 2)


def test_the_environment_gives_the_headers_that_say_who_asks() -> None:
    environment: dict[str, Any] = {"BRAIN_API_KEY": "k", "BRAIN_AGENT": "a", "BRAIN_USER": "", "PATH": "/bin"}
    assert credential_headers(environment) == {"Authorization": "Bearer k", "X-Brain-Agent": "a"}


@pytest.mark.parametrize("value", ["é", "a\r\nX-Brain-Agent: b"])
def test_a_credential_that_no_header_can_carry_is_refused_by_its_name(value: str) -> None:
    with pytest.raises(ValueError, match="BRAIN_USER must be printable ASCII"):
        credential_headers({"BRAIN_USER": value})
