"""The MCP doors as clients meet them: real `brain mcp` processes over stdio, a real `brain serve`, `/mcp`,
both eras of the protocol, and the same answers as over HTTP."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from models.embedding import DEFAULT_MODEL
from service.mcp_tools import TOOLSETS
from service.operations import BY_NAME, OPERATIONS
from service.schemas import output_schema
from tests.historic import one_call_each
from tests.processes import BRAIN, environment, serving_process, stdio
from tests.serving import Server, eventually, server, succeeded

pytest_plugins = ["tests.embedding_fixtures"]
pytestmark = pytest.mark.anyio
ERAS = ["legacy", "2026-07-28"]
# What may differ between two doors that are asked one after the other.
TIMING = {"elapsed_ms", "request_id", "replayed"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def ask(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The structured answer of a tool call that must succeed, checked against the tool's schema."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.structured_content
    assert result.structured_content is not None
    jsonschema.validate(result.structured_content, output_schema(BY_NAME[tool]))
    return dict(result.structured_content)


async def found(client: Client, query: str) -> list[str]:
    answer = await ask(client, "brain_memory_search", {"query": query})
    return [memory["content"] for memory in answer["results"]]


@pytest.fixture(scope="module")
def whole_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With every toolset, so that every operation is a tool."""
    with server(tmp_path_factory.mktemp("whole"), mcp={"toolsets": list(TOOLSETS)}) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@pytest.mark.parametrize("era", ERAS)
async def test_every_operation_answers_the_same_over_http_and_mcp(whole_server: Server, era: str) -> None:
    api = whole_server.api.of(f"parity-{era}")
    memory = api.add("The gauge reads 42 bar.", tags=["plant"], memory_at=1, metadata={"k": [None, {}, 1.5]})
    memory_id = memory["memory"]["memory_id"]
    old, other = (
        api.add(text, layer=layer, evidence_ids=[memory_id])["memory"]["memory_id"]
        for text, layer in (("I am called Miso.", "l0_basic_info"), ("Mend the gauge.", "l7_intention"))
    )
    link = {"from_id": memory_id, "type": "related", "to_id": other}
    fact = {"subject": "gauge", "predicate": "limit", "single_valued": True}
    rule, denial = (
        api.add(text, facts=[fact | {"object": text}], source_authority=authority)
        for text, authority in (("The limit is 50 bar.", "policy"), ("The limit is 90 bar.", "informal"))
    )
    every = ["details", "chain", "evidence", "conflicts", "links"]
    historic = one_call_each(api)
    saved, observed, summed = (
        succeeded(api.post(f"/brain/{path}", {"project": "/plant", **fields}))["id"]
        for path, fields in (
            ("memories", {"text": "The gauge is read at noon."}),
            ("observations", {"type": "change", "title": "Gauge read."}),
            ("session-summaries", {"request": "Read the gauge.", "host": "h", "session_id": "s"}),
        )
    )
    said = {"host": "cursor", "project": "/plant", "session_id": "s"}
    line = '{"role": "user", "message": {"content": "Read the gauge."}, "timestamp": 5}'
    succeeded(api.post("/brain/raw/transcripts", {**said, "content": line}))
    api.post("/brain/memory/search", {"query": "gauge"})  # so that both doors read the resident memory
    whole_server.settle()  # so that both count the same lag
    arguments: dict[str, dict[str, Any]] = {
        "brain_memory_get": {"memory_id": rule["memory"]["memory_id"], "include": every},
        "brain_memory_add": {"content": "The gauge reads 42 bar."},  # a duplicate: the same each time
        "brain_memory_add_batch": {"items": [{"content": "The gauge reads 42 bar."}, {"content": ""}]},
        "brain_memory_search": {
            "query": "What does the gauge read?",
            "explain": True,
            "hops": 1,
            "context": 1,
        },
        "brain_memory_list": {"tag": "plant", "limit": 5},
        "brain_stats": {},
        "brain_memory_update": {"memory_id": memory_id, "tags": ["plant", "gauge"]},
        "brain_memory_supersede": {"content": "New.", "supersedes": [old], "idempotency_key": "k"},
        "brain_memory_delete": {"memory_id": other, "mode": "archive", "idempotency_key": "k"},
        "brain_memory_restore": {"memory_id": other, "idempotency_key": "k"},
        "brain_purge": {"memory_id": memory_id, "dry_run": True},
        "brain_memory_history": {"memory_id": old},
        "brain_memory_link": {**link, "idempotency_key": "k"},
        "brain_memory_related": {"memory_id": memory_id, "hops": 2, "types": ["evidence_for", "related"]},
        "brain_memory_unlink": {**link, "idempotency_key": "k"},
        "brain_profile": {"limit": 3},
        "brain_intentions": {"due_before": 10**13},
        "brain_scopes": {},
        "brain_conflicts": {"limit": 3},
        "brain_conflict_resolve": {
            "conflict_id": denial["conflicts"][0],
            "adopted": rule["memory"]["memory_id"],
            "idempotency_key": "k",
        },
        "brain_memory_feedback": {"memory_id": other, "verdict": "useful", "idempotency_key": "k"},
        "brain_audit": {"memory_id": other, "refused": False, "limit": 2},
        "brain_context": {"query": "What does the gauge read?", "token_budget": 200},
        "brain_consolidation": {"min_size": 2, "quiet_minutes": 0, "detail": "full"},
        "list_raw_sessions": {"since": "5", "until": "1970-01-01", "sample": 2, "latest": 3},
        "get_raw_messages": {**said, "limit": 1},
        "search_raw": {"query": "gauge", "project": "/plant", "role": "user"},
        "add_raw_messages": {
            **said,
            "messages": [{"role": "user", "content": "Again.", "created_at": 6}],
            "idempotency_key": "k",
        },
        "ingest_transcript": {**said, "content": line},
        "get_observations": {"ids": [1, saved], "include_suppressed": True},
        "add_observation": {"type": "change", "title": "Gauge mended.", "idempotency_key": "k"},
        "compress_observations": {
            "ids": [observed],
            "replacement": {"type": "change", "title": "Gauge read and mended."},
            "idempotency_key": "k",
        },
        "search_observations": {"query": "gauge", "project": "/plant", "limit": 5},
        "observation_timeline": {"id": saved, "source": "memory", "before": 2},
        "add_session_summary": {"request": "Mend the gauge.", "idempotency_key": "k"},
        "set_session_label": {"id": summed, "topic": "The gauge", "idempotency_key": "k"},
        "save_memory": {"text": "Read the gauge daily.", "topic_key": "gauge", "idempotency_key": "k"},
        "govern_memory": {"ids": [saved], "action": "acknowledge", "idempotency_key": "k"},
        "suppress_memory": {"target": "pattern:unheard of", "idempotency_key": "k"},
        "unsuppress_memory": {"target": "pattern:unheard of", "idempotency_key": "k"},
        **historic,
    }
    assert set(arguments) == set(BY_NAME), "each operation has its row here"
    transport = {"X-Brain-Agent": f"parity-{era}"}
    async with httpx.AsyncClient(headers=transport, timeout=60) as http:
        url = f"{whole_server.owner.url}/mcp"
        async with Client(streamable_http_client(url, http_client=http), mode=era) as client:
            for operation in OPERATIONS:
                given = arguments[operation.name]
                over_mcp = await ask(client, operation.name, given)
                over_http = _over_http(api, operation.name, given)
                assert _plain(over_mcp) == _plain(over_http), operation.name


def _over_http(api: Any, name: str, given: dict[str, Any]) -> dict[str, Any]:
    route = BY_NAME[name].route
    path = route.path.format(**given)
    rest = {key: value for key, value in given.items() if "{" + key + "}" not in route.path}
    if route.method in ("GET", "DELETE"):
        return dict(succeeded(api.request(route.method, path, params=rest)))
    return dict(succeeded(api.request(route.method, path, rest)))


def _plain(document: Any) -> Any:
    if isinstance(document, dict):
        return {key: _plain(value) for key, value in document.items() if key not in TIMING}
    return [_plain(value) for value in document] if isinstance(document, list) else document


@pytest.mark.parametrize("era", ERAS)
async def test_one_process_alone_stores_and_finds(tmp_path: Path, onnx_folder: Path, era: str) -> None:
    where = stdio(tmp_path, BRAIN_EMBEDDING__EXPORT_DIRECTORY=str(onnx_folder))
    async with Client(where, mode=era) as client:
        added = await ask(client, "brain_memory_add", {"content": "The cat is called Miso."})
        assert await found(client, "What is the cat called?") == ["The cat is called Miso."]
        read = await ask(client, "brain_memory_get", {"memory_id": added["memory"]["memory_id"]})
        assert read["content"] == "The cat is called Miso."


async def test_several_processes_share_a_directory_and_outlive_their_owner(tmp_path: Path) -> None:
    async with Client(stdio(tmp_path)) as second_to_be:
        async with Client(stdio(tmp_path)) as other:
            await ask(second_to_be, "brain_memory_add", {"content": "Written by the first, ticket A-17."})
            await ask(other, "brain_memory_add", {"content": "Written by the second, ticket A-18."})
            assert "Written by the second, ticket A-18." in await found(second_to_be, "ticket A-18")
            assert "Written by the first, ticket A-17." in await found(other, "ticket A-17")
        # Whichever of them owned the directory: one of two has left, the other goes on.
        await ask(second_to_be, "brain_memory_add", {"content": "Written by the last, ticket A-19."})
        assert "Written by the second, ticket A-18." in await found(second_to_be, "ticket A-18")
        assert (await ask(second_to_be, "brain_stats", {}))["total"] == 3


async def test_processes_go_through_a_server_and_take_over_when_it_leaves(tmp_path: Path) -> None:
    with ExitStack() as stack:
        owner = stack.enter_context(serving_process(tmp_path))
        async with Client(stdio(tmp_path, BRAIN_AGENT="coder")) as client:
            await ask(client, "brain_memory_add", {"content": "Use tabs, rule R-1."})
            assert _listed(owner.url, "coder") == ["Use tabs, rule R-1."]
            assert _listed(owner.url, "another") == []
            stack.close()  # the server ends; the client's process takes over
            assert await found(client, "rule R-1") == ["Use tabs, rule R-1."]


def test_stdout_carries_the_protocol_only_from_a_cold_start(tmp_path: Path) -> None:
    cold = environment(
        BRAIN_EMBEDDING__MODEL=DEFAULT_MODEL,  # whose export ends sooner than that of two models
        BRAIN_EMBEDDING__EXPORT_DIRECTORY=str(tmp_path / "no-export-yet"),
    )
    messages = [
        _request(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=_CLIENT),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        _request(2, "tools/list"),
        _request(3, "tools/call", name="brain_memory_add", arguments={"content": "Cold, code K-9."}),
        _request(4, "tools/call", name="brain_memory_search", arguments={"query": "code K-9"}),
    ]
    with _mcp_process(tmp_path / "data", cold) as process:
        answers = [_exchange(process, message) for message in messages]
        stdout, stderr = process.communicate(timeout=60)  # closes stdin: the end of input ends the process
    assert process.returncode == 0, stderr
    assert stdout == ""
    assert [answer["id"] for answer in answers if answer] == [1, 2, 3, 4]
    added, searched = (answer["result"]["structuredContent"] for answer in answers[-2:] if answer)
    assert added["indexed"] is False  # the model was not there yet
    assert searched["degraded"] is True and len(searched["results"]) == 1


def test_sigterm_ends_a_process_cleanly_and_loses_nothing(tmp_path: Path) -> None:
    add = {"content": "Kept through the signal, S-15."}
    start = [
        _request(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=_CLIENT),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]
    with _mcp_process(tmp_path, environment()) as process:
        for message in [*start, _request(2, "tools/call", name="brain_memory_add", arguments=add)]:
            _exchange(process, message)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
    search = _request(2, "tools/call", name="brain_memory_search", arguments={"query": "S-15"})
    with _mcp_process(tmp_path, environment()) as process:
        for message in start:
            _exchange(process, message)
        answer = _exchange(process, search)
        process.communicate(timeout=60)
    assert answer is not None
    assert [hit["content"] for hit in answer["result"]["structuredContent"]["results"]] == [add["content"]]


def test_a_second_server_is_refused_and_told_who_owns_the_directory(tmp_path: Path) -> None:
    with serving_process(tmp_path) as owner:
        command = [*BRAIN, "serve", "--data", str(tmp_path), "--port", "0"]
        second = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert second.returncode == 3
    assert f"process {owner.pid}, at {owner.url}" in second.stderr


def _listed(url: str, agent: str) -> list[str]:
    answer = httpx.get(f"{url}/brain/memory", headers={"X-Brain-Agent": agent}, timeout=60).json()
    return [memory["content"] for memory in answer["memories"]]


_CLIENT = {"name": "test", "version": "1"}


def _request(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def _mcp_process(data: Path, env: dict[str, str]) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    command = [*BRAIN, "mcp", "--data", str(data)]
    return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _exchange(process: "subprocess.Popen[str]", message: dict[str, Any]) -> dict[str, Any] | None:
    """Send a line; for a request, read the one line that answers it, which must be JSON-RPC."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    if "id" not in message:
        return None
    answer = json.loads(process.stdout.readline())
    assert answer["jsonrpc"] == "2.0" and answer["id"] == message["id"]
    return dict(answer)
