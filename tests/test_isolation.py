"""Nobody meets what is another's: many scopes and users at once, by both doors, and ids of others. Every
text carries a canary that names whose it is."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult

from service.mcp_tools import TOOLSETS
from service.operations import BY_NAME
from tests.serving import JSON, Api, Server, eventually, fresh, server

pytestmark = pytest.mark.anyio

SCOPES, USERS, ROUNDS = 50, ("u0", "u1", "u2"), 4  # of five calls each
AT_ONCE = 16
CANARY = re.compile(r"canary(\d+)of(u\d)")
MISSING = "018f3e5a-0000-7000-8000-000000000000"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of our own, with every operation as a tool."""
    with server(tmp_path_factory.mktemp("isolation"), mcp={"toolsets": list(TOOLSETS)}) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@dataclass
class Somebody:
    """A caller with both doors open."""

    agent: str
    user: str | None
    http: httpx.AsyncClient
    mcp: Client
    ids: list[str] = field(default_factory=list)

    async def ask(self, name: str, arguments: JSON, *, by_mcp: bool) -> tuple[int, JSON]:
        """Status and document of a call through one of the doors."""
        if by_mcp:
            # As `call_tool` does it, which would also compile the tools' schemas for each of 150 callers.
            request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
            result = await self.mcp.session.send_request(request, CallToolResult)
            assert result.structured_content is not None
            document = dict(result.structured_content)
            return document.get("status", 0) if result.is_error else 200, document
        answer = await self.over_http(name, arguments)
        return answer.status_code, answer.json()

    async def over_http(self, name: str, arguments: JSON) -> httpx.Response:
        route = BY_NAME[name].route
        rest = {key: value for key, value in arguments.items() if "{" + key + "}" not in route.path}
        body: JSON = {"params": rest} if route.method == "GET" else {"json": rest}
        return await self.http.request(route.method, route.path.format(**arguments), **body)


@asynccontextmanager
async def somebody(running: Server, agent: str, user: str | None) -> AsyncIterator[Somebody]:
    headers = {"x-brain-agent": agent, "x-request-id": "same"} | ({"x-brain-user": user} if user else {})
    options: Any = {"headers": headers, "base_url": running.owner.url, "timeout": 120, "trust_env": False}
    options["verify"] = False  # there is no TLS here, and its context takes a while to make
    async with (
        httpx.AsyncClient(**options) as http,
        Client(streamable_http_client(f"{running.owner.url}/mcp", http_client=http)) as mcp,
    ):
        yield Somebody(agent, user, http, mcp)


async def test_nobody_ever_sees_the_canary_of_another_scope_or_user(running: Server) -> None:
    everybody_else: list[str] = []  # ids that were given to somebody
    seats = asyncio.Semaphore(AT_ONCE)

    async def live(scope: int, user: str) -> int:
        """Add, search, get, relate and list, time and again. Returns how many canaries were seen."""
        mine = (str(scope), user)
        text = f"Everybody writes of the blue heron: canary{scope}of{user}"
        seen = 0
        async with seats, somebody(running, f"scope-{scope}", user) as me:

            async def ask(name: str, **arguments: Any) -> JSON:
                nonlocal seen
                status, document = await me.ask(name, arguments, by_mcp=(number + scope) % 2 == 0)
                assert status < 300, document
                canaries = CANARY.findall(json.dumps(document))
                assert set(canaries) <= {mine}, name
                seen += len(canaries)
                return document

            for number in range(ROUNDS):
                added = await ask("brain_memory_add", content=f"{text} {number}", evidence_ids=me.ids[-2:])
                me.ids.append(added["memory"]["memory_id"])
                everybody_else.append(me.ids[-1])
                found = await ask("brain_memory_search", query="everybody blue heron", limit=100)
                assert {hit["memory_id"] for hit in found["results"]} == set(me.ids)
                await ask("brain_memory_get", memory_id=me.ids[0])
                related = await ask("brain_memory_related", memory_id=me.ids[-1], hops=3)
                assert {node["memory_id"] for node in related["nodes"]} == set(me.ids[:-1])
                listed = await ask("brain_memory_list", limit=100)
                assert [memory["memory_id"] for memory in listed["memories"]] == me.ids[::-1]
            foreign = next(id for id in everybody_else if id not in me.ids)
            status, problem = await me.ask("brain_memory_get", {"memory_id": foreign}, by_mcp=scope % 2 == 0)
            assert (status, problem["code"]) == (404, "memory_not_found")
        return seen

    lives = [live(scope, user) for user in USERS for scope in range(SCOPES)]
    assert all(await asyncio.gather(*lives)), "canaries are seen by those whose they are"
    assert len(everybody_else) == SCOPES * len(USERS) * ROUNDS
    for scope in range(SCOPES):
        whole = running.api.of(f"scope-{scope}").search("everybody blue heron", limit=100)
        assert set(CANARY.findall(json.dumps(whole))) == {(str(scope), user) for user in USERS}
        assert whole["total_candidates"] == len(USERS) * ROUNDS


# Every place where an operation takes an id, with what else it needs. OWN stands for an id of the caller's.
OWN = "own"
PLACES: list[tuple[str, str, JSON]] = [
    ("brain_memory_get", "memory_id", {}),
    ("brain_memory_get", "memory_id", {"as_of": 10**13}),
    ("brain_memory_update", "memory_id", {"tags": ["x"]}),
    ("brain_memory_update", "memory_id", {"content": "Mine now.", "expected_version": 7}),
    ("brain_memory_delete", "memory_id", {}),
    ("brain_memory_delete", "memory_id", {"mode": "archive", "revive": True, "expected_version": 7}),
    ("brain_memory_restore", "memory_id", {}),
    ("brain_memory_history", "memory_id", {}),
    ("brain_memory_related", "memory_id", {"hops": 3}),
    ("brain_memory_link", "from_id", {"type": "related", "to_id": OWN}),
    ("brain_memory_link", "to_id", {"type": "evidence_for", "from_id": OWN}),
    ("brain_memory_unlink", "from_id", {"type": "related", "to_id": OWN}),
    ("brain_memory_unlink", "to_id", {"type": "evidence_for", "from_id": OWN}),
    ("brain_purge", "memory_id", {"cascade": True}),
    ("brain_memory_feedback", "memory_id", {"verdict": "wrong", "expected_version": 7}),
    ("brain_conflict_resolve", "conflict_id", {"adopted": None}),
    ("brain_conflict_resolve", "conflict_id", {"adopted": OWN}),
    ("brain_memory_supersede", "supersedes", {"content": "Mine now."}),
    ("brain_memory_add", "supersedes", {"content": "Mine now."}),
    ("brain_memory_add", "evidence_ids", {"content": "Rests on it."}),
    ("brain_memory_add", "source_raw_memory_id", {"content": "From it."}),
    *((name, "id", {"reason": "x"}) for name in ("promote", "pin", "unpin", "forget", "restore")),
    *((name, "id", {"reason": "x"}) for name in ("flag_sensitive", "clear_sensitive")),
    *((name, "id", {"source": "x"}) for name in ("corroborate", "retract_corroboration")),
    ("corroborate", "memory_id", {"id": OWN}),
    ("retract_corroboration", "memory_id", {"id": OWN}),
    ("review", "id", {"verdict": "confirm", "note": "x"}),
    ("provenance", "id", {}),
    ("set_frame", "id", {"frame": "f"}),
    ("set_history_context", "id", {"source": "x"}),
    ("mark_conflict", "a", {"b": OWN, "reason": "x"}),
    ("mark_conflict", "b", {"a": OWN, "reason": "x"}),
    ("resolve_conflict", "id", {"reason": "x"}),
    ("resolve_conflict", "adopted", {"id": OWN, "reason": "x"}),
]
IDS = {"memory_id", "from_id", "to_id", "supersedes", "evidence_ids", "source_raw_memory_id", "conflict_id"}
IDS |= {"a", "b"}


def test_every_operation_that_takes_an_id_is_tried_with_those_of_others() -> None:
    history = {name for name, one in BY_NAME.items() if "history" in one.toolsets}
    taking = {
        name
        for name, operation in BY_NAME.items()
        if (IDS | ({"id"} if name in history else set())) & operation.input.model_fields.keys()
    }
    # The audit log filters by one; tests/test_audit.py shows whose entries it has. What is saved keeps
    # evidence that it can't read; tests/test_observations_scope.py shows that it says nothing of others' ids.
    assert taking == {"brain_audit", "save_memory"} | {name for name, _, _ in PLACES}


@pytest.fixture(scope="module")
def others(running: Server) -> tuple[Api, dict[str, str], str]:
    """A caller, ids of others by whose they are, and one of the caller's."""
    me = running.api.of(fresh("isolated"), "me")
    other_user, other_agent = me.of(user="other"), me.of(fresh("isolated"), "me")

    def add(api: Api, **fields: Any) -> str:
        memory_id: str = api.add("canary9of9 is not yours.", **fields)["memory"]["memory_id"]
        return memory_id

    contrary = {"subject": "it", "predicate": "is", "single_valued": True}
    add(other_user, facts=[contrary | {"object": "so"}], source_authority="policy")
    denied = other_user.add("canary9of9 says no.", facts=[contrary | {"object": "not so"}])
    ids = {
        "another user's conflict": denied["conflicts"][0],
        "another user's": add(other_user, frame="o"),
        "another agent's": add(other_agent),
        "what another user said": add(other_user, layer="l1_raw"),
        "another user's, forgotten": add(other_user, frame="f"),
        "another user's, purged": add(other_user, frame="p"),
    }
    other_user.request("DELETE", "/brain/memory/" + ids["another user's, forgotten"])
    other_user.post("/brain/purge", {"memory_id": ids["another user's, purged"]})
    return me, ids, add(me)


@pytest.mark.parametrize(("name", "place", "rest"), PLACES, ids=str)
async def test_a_foreign_id_is_answered_exactly_like_a_missing_one(
    running: Server, others: tuple[Api, dict[str, str], str], name: str, place: str, rest: JSON
) -> None:
    api, ids, own = others
    assert api.agent is not None
    given = {key: own if value == OWN else value for key, value in rest.items()}

    async with somebody(running, api.agent, api.user) as me:

        async def answers(memory_id: str) -> list[Any]:
            value = [memory_id] if place in ("supersedes", "evidence_ids") else memory_id
            http = await me.over_http(name, {**given, place: value})
            headers = {k: v for k, v in http.headers.items() if k not in ("date", "content-length")}
            status, document = await me.ask(name, {**given, place: value}, by_mcp=True)
            shown = [http.status_code, headers, http.json(), status, document]
            return list(json.loads(json.dumps(shown).replace(memory_id, "ID")))

        expected = await answers(MISSING)
        assert expected[0] in (404, 422) and expected[0] == expected[3]
        for whose, memory_id in ids.items():
            assert await answers(memory_id) == expected, whose
    assert api.list()["total"] == 1, "nothing was written"
    assert api.of(user="other").list()["total"] == 3 and api.memory(own)["tags"] == []
