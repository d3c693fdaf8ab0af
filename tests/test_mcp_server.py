"""The MCP door through the SDK's own client, in both eras, in memory and over streamable HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import mcp_types as types
import orjson
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from models.errors import MemoryNotFound
from models.scope import Caller
from models.scope import Scope as Tenant
from models.verbatim import Number
from service.brain import Brain
from service.mcp_tools import Call, Context, build_server, http_call, streamable_http, tools
from service.operations import OPERATIONS
from tests.test_client import serving

ERAS = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28"}
both_eras = pytest.mark.parametrize("era", ERAS)
pytestmark = pytest.mark.anyio

STATS = {
    "total": 1,
    "layers": {"l2_fact": 1},
    "statuses": {},
    "authorities": {},
    "kinds": {},
    "model": "m",
    "dimensions": None,
    "fingerprint": None,
    "index_lag": 0,
    "last_rebuild": None,
    "elapsed_ms": 0.1,
    "request_id": "r",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def answering(status: int, body: dict[str, Any]) -> Call:
    async def call(name: str, arguments: dict[str, Any], context: Context) -> tuple[int, dict[str, Any]]:
        return status, body

    return call


def text_of(result: types.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@both_eras
async def test_the_tools_of_the_chosen_toolsets_are_listed(era: str) -> None:
    async with Client(build_server(answering(200, {}), ["core"]), mode=era) as client:
        assert client.protocol_version == ERAS[era]
        listed = (await client.list_tools()).tools
    assert [tool.name for tool in listed] == [o.name for o in OPERATIONS if "core" in o.toolsets]
    assert [tool.model_dump() for tool in listed] == [tool.model_dump() for tool in tools(["core"])]


async def test_the_server_says_what_it_is_for() -> None:
    async with Client(build_server(answering(200, {}), ["core"])) as client:
        assert client.instructions is not None and "memory" in client.instructions
        assert client.server_info is not None and client.server_info.version


@both_eras
async def test_a_result_is_the_same_document_as_structure_and_as_text(era: str) -> None:
    body = STATS | {"last_rebuild": None}
    async with Client(build_server(answering(200, body), ["brain"]), mode=era) as client:
        result = await client.call_tool("brain_stats", {})
    assert not result.is_error
    assert result.structured_content == STATS == orjson.loads(text_of(result))


@both_eras
async def test_verbatim_parts_of_a_body_become_plain_json(era: str) -> None:
    body = {"status": 409, "custom": orjson.Fragment(b'{"price":2.50}'), "share": Number("0.10")}
    async with Client(build_server(answering(409, body), ["brain"]), mode=era) as client:
        result = await client.call_tool("brain_stats", {})
    assert result.structured_content == {"status": 409, "custom": {"price": 2.5}, "share": 0.1}
    assert text_of(result) == '{"status":409,"custom":{"price":2.50},"share":0.10}'


@both_eras
async def test_a_refusal_is_an_error_result_with_the_problem_document(era: str) -> None:
    problem = MemoryNotFound("No memory 'm'.").document("r-1")
    async with Client(build_server(answering(404, problem), ["core"]), mode=era) as client:
        result = await client.call_tool("brain_memory_get", {"memory_id": "m"})
    assert result.is_error
    assert result.structured_content == problem == orjson.loads(text_of(result))


@both_eras
async def test_an_unknown_tool_is_a_protocol_error_that_names_the_near_one(era: str) -> None:
    async with Client(build_server(answering(200, {}), ["brain"]), mode=era) as client:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("brain_stat", {})
    assert raised.value.code == types.INVALID_PARAMS
    assert raised.value.message == "Unknown tool: brain_stat; did you mean 'brain_stats'?"


async def test_a_tool_outside_the_chosen_toolsets_is_unknown() -> None:
    async with Client(build_server(answering(200, STATS), ["core"])) as client:
        with pytest.raises(MCPError, match="Unknown tool: brain_stats"):
            await client.call_tool("brain_stats", {})


def test_an_unknown_toolset_is_refused_with_the_near_one() -> None:
    with pytest.raises(ValueError, match=r"'brian'; did you mean 'brain'\?; known: core, brain, obs"):
        build_server(answering(200, {}), ["core", "brian"])


def caller(*rights: str) -> Caller:
    return Caller(Tenant("default", "smith"), None, frozenset(rights), "request-7")


@asynccontextmanager
async def http_door(call: Call) -> AsyncIterator[str]:
    """A server of the route alone, behind a layer that says who asks; its address."""
    server = build_server(call, ["core", "brain"])
    door = streamable_http(server, ["127.0.0.1:*"], ["http://127.0.0.1:*"])

    @asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        async with door.run():
            yield

    async def authenticated(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["caller"] = caller("read")
        await app(scope, receive, send)

    app: ASGIApp = Starlette(routes=[door.route], lifespan=lifespan)
    async with serving(authenticated) as url:
        yield f"{url}/mcp"


@both_eras
async def test_over_http_a_call_knows_the_caller_of_its_own_request(era: str) -> None:
    async def call(name: str, arguments: dict[str, Any], context: Context) -> tuple[int, dict[str, Any]]:
        assert context.request is not None
        return 200, STATS | {"request_id": context.request.scope["state"]["caller"].request_id}

    async with http_door(call) as url, Client(url, mode=era) as client:
        assert client.protocol_version == ERAS[era]
        result = await client.call_tool("brain_stats", {})
    assert result.structured_content == STATS | {"request_id": "request-7"}


class AuditLog:
    """All of the brain that a refused call gets to."""

    def __init__(self) -> None:
        self.writes: list[Any] = []

    async def write(self, write: Any) -> None:
        self.writes.append(write)


@both_eras
async def test_over_http_a_call_goes_through_dispatch(era: str) -> None:
    log = AuditLog()
    async with http_door(http_call(cast(Brain, log))) as url, Client(url, mode=era) as client:
        forbidden = await client.call_tool("brain_memory_add", {"content": "x"})
        invalid = await client.call_tool("brain_memory_search", {"query": "x", "limits": 5})
    assert forbidden.is_error and forbidden.structured_content["code"] == "forbidden"
    assert invalid.is_error and invalid.structured_content["errors"] == [
        {"field": "limits", "message": "unknown argument; did you mean 'limit'?"}
    ]
    assert invalid.structured_content["request_id"] == "request-7"
    assert len(log.writes) == 1, "of the call that was judged"


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


async def test_over_http_a_foreign_host_or_origin_is_refused_and_only_posts_are_served() -> None:
    accept = {"Accept": "application/json, text/event-stream"}
    async with http_door(answering(200, STATS)) as url, httpx.AsyncClient(headers=accept, timeout=60) as http:
        for headers, status in (
            ({}, 200),
            ({"Origin": "http://127.0.0.1:3000"}, 200),
            ({"Host": "evil.example"}, 421),
            ({"Origin": "http://evil.example"}, 403),
        ):
            assert (await http.post(url, json=PING, headers=headers)).status_code == status
        assert (await http.get(url)).status_code == 405
        assert (await http.delete(url)).status_code == 405


async def test_over_http_a_large_batch_fits_through_the_door() -> None:
    five_mebibytes = "x" * (5 * 1024 * 1024)
    async with http_door(answering(200, STATS)) as url, Client(url) as client:
        result = await client.call_tool("brain_stats", {"pad": five_mebibytes})
    assert not result.is_error
