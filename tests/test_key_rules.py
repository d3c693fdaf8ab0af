"""What a key opens: its product, its agent, its rights, up to its authority, so many times a second."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from service.callers import Callers
from stores.keys import KeyRing
from tests.keyed import Clock, Keyed, keyed_server
from tests.serving import Api, fresh, refused, succeeded


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    """With at least one key, so that the door is closed."""
    with keyed_server(tmp_path_factory.mktemp("keyed"), mcp={"toolsets": ["brain"]}) as running:
        running.create("first")
        yield running


def test_a_bound_key_is_its_agent_and_an_unbound_one_whom_the_header_names(keyed: Keyed) -> None:
    product = fresh("product")
    bound, free = keyed.holder(product, agent="smith"), keyed.holder(product)
    assert bound.add("From the bound one.")["memory"]["agent_id"] == "smith"
    assert bound.of(agent="smith").stats()["total"] == 1
    refused(bound.of(agent="jones").get("/brain/stats"), 403, "forbidden")
    refused(bound.of(agent="jones").try_add("Not mine."), 403, "forbidden")
    assert free.stats()["total"] == 0
    assert free.add("From nobody in particular.")["memory"]["agent_id"] == "default"
    assert free.of(agent="smith").stats()["total"] == 1
    assert free.add("Mine.")["memory"]["user_id"] == product  # the default user is the product's name


@pytest.mark.parametrize("right", ["read", "write", "admin"])
def test_a_key_does_what_its_rights_name_and_nothing_else(keyed: Keyed, right: str) -> None:
    holder = keyed.holder(fresh("product"), rights=[right])
    answers = {
        "read": holder.get("/brain/stats"),
        "write": holder.try_add("Stored."),
        "admin": holder.get("/metrics"),
    }
    assert answers.pop(right).status_code < 300
    for needed, answer in answers.items():
        assert f"'{needed}'" in refused(answer, 403, "forbidden")["detail"]


def test_no_write_claims_more_authority_than_its_key(keyed: Keyed) -> None:
    holder = keyed.holder(fresh("product"), authority="team")
    messages = [{"role": "user", "content": "Said."}]
    for fields in ({"content": "Ordered."}, {"messages": messages}):
        for claimed in ("policy", "official"):
            answer = holder.try_add(**fields, source_authority=claimed)
            problem = refused(answer, 403, "authority_not_allowed", "source_authority")
            assert "'team'" in problem["detail"]
    assert holder.add("Agreed.", source_authority="team")["memory"]["source_authority"] == "team"
    refused(holder.try_add("Agreed.", source_authority="policy"), 403, "authority_not_allowed")  # united
    results = holder.batch([
        {"content": "One.", "source_authority": "policy"}, {"content": "Two.", "source_authority": "team"},
    ])["results"]  # fmt: skip
    assert [one["status"] for one in results] == [403, 201]
    assert results[0]["error"]["code"] == "authority_not_allowed"
    assert holder.stats()["total"] == 2


def test_replacing_a_memory_needs_the_authority_that_it_carries(keyed: Keyed) -> None:
    product = fresh("product")
    official, team = keyed.holder(product), keyed.holder(product, authority="team")
    id = official.add("Ordered.", source_authority="official")["memory"]["memory_id"]
    answers = (
        team.request("PATCH", f"/brain/memory/{id}", {"content": "Ordered otherwise."}),
        team.post("/brain/memory/supersede", {
            "content": "Ordered anew.", "supersedes": [id], "source_authority": "official",
        }),
    )  # fmt: skip
    for answer in answers:
        refused(answer, 403, "authority_not_allowed")
    assert official.memory(id)["status"] == "active" and official.stats()["total"] == 1


def reachable(api: Api, memory_id: str) -> list[Any]:
    """All that the doors show of a canary to somebody who knows its id."""
    got = api.get(f"/brain/memory/{memory_id}")
    evidence = api.try_add("Mine.", evidence_ids=[memory_id])
    hits = api.search("canary of the other product", limit=100)["results"]
    return [got.status_code, evidence.status_code, *(hit["memory_id"] for hit in hits if hit)]


@pytest.mark.anyio
async def test_two_products_never_meet_over_http_or_mcp(keyed: Keyed) -> None:
    names = [fresh("product"), fresh("product")]
    made = [keyed.create(name) for name in names]
    apis = [keyed.bearing(key["credential"]).of(agent="same", user="same") for key in made]
    ids = [
        api.add(f"The canary of {name}.")["memory"]["memory_id"]
        for api, name in zip(apis, names, strict=True)
    ]
    for mine, api in enumerate(apis):
        other = ids[1 - mine]
        assert [memory["memory_id"] for memory in api.list()["memories"]] == [ids[mine]]
        assert reachable(api, other) == [404, 422, ids[mine]]
        headers = {
            "authorization": f"Bearer {made[mine]['credential']}",
            "x-brain-agent": "same",
            "x-brain-user": "same",
        }
        async with (
            httpx.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
            Client(streamable_http_client(f"{keyed.server.owner.url}/mcp", http_client=http)) as client,
        ):
            found = await client.call_tool("brain_memory_search", {"query": "canary"})
            got = await client.call_tool("brain_memory_get", {"memory_id": other})
            mine_too = await client.call_tool("brain_memory_get", {"memory_id": ids[mine]})
        assert found.structured_content is not None and got.structured_content is not None
        assert [hit["memory_id"] for hit in found.structured_content["results"]] == [ids[mine]]
        assert got.structured_content["code"] == "memory_not_found" and not mine_too.is_error


def test_the_owners_token_is_admin_of_the_product_that_it_names(keyed: Keyed) -> None:
    product = fresh("product")
    holder = keyed.holder(product)
    holder.add("Theirs.")
    named = {"x-brain-product": product}
    assert succeeded(keyed.owner.get("/brain/stats", headers=named))["total"] == 1
    assert keyed.owner.get("/metrics").status_code == 200
    refused(holder.get("/brain/stats", headers=named), 403, "forbidden")
    refused(keyed.anyone.get("/brain/stats", headers=named), 401, "unauthenticated")
    refused(keyed.owner.get("/brain/stats", headers={"x-brain-product": ""}), 422, "invalid_argument")


def test_a_key_may_make_so_many_requests_and_is_told_when_to_come_again(tmp_path: Path) -> None:
    clock = Clock()
    limits = {"requests_per_second": 0.5, "burst": 3}
    with keyed_server(tmp_path, clock=clock, limits=limits) as keyed:
        busy, other = keyed.holder("acme"), keyed.holder("acme")
        assert [busy.get("/brain/stats").status_code for _ in range(4)] == [200, 200, 200, 429]
        answer = busy.get("/brain/stats")
        assert refused(answer, 429, "rate_limited")["retryable"] is True
        assert answer.headers["retry-after"] == "2"
        assert other.get("/brain/stats").status_code == 200
        assert all(busy.get("/healthz").status_code == 200 for _ in range(5))
        assert all(keyed.owner.get("/brain/stats").status_code == 200 for _ in range(5))
        clock.now += 2_000
        assert [busy.get("/brain/stats").status_code for _ in range(2)] == [200, 429]
        clock.now -= 60_000  # a clock that is set back takes nothing away
        assert busy.get("/brain/stats").status_code == 429


def test_a_person_stands_behind_a_key_only_where_it_says_so(keyed: Keyed) -> None:
    ring = KeyRing(keyed.server.brain.ledger)
    for acts in (True, False):
        credential = keyed.create("acme", acts_for_user=acts, authority="team")["credential"]
        ring.load()
        headers = {b"authorization": f"Bearer {credential}".encode()}
        caller = Callers(ring, "token", Clock()).identify({"path": "/brain/stats"}, headers, "r")
        assert (caller.for_user, caller.ceiling, caller.scope.product) == (acts, "team", "acme")


def test_a_bound_administrator_counts_its_own_agent_only(tmp_path: Path) -> None:
    with keyed_server(tmp_path) as keyed:
        whole = keyed.holder("acme", rights=["read", "write", "admin"])
        for agent in ("smith", "jones"):
            whole.of(agent).add(f"Of {agent}.")
        bound = keyed.holder("acme", agent="smith", rights=["read", "admin"])
        counted = [succeeded(api.get("/brain/admin/scopes"))["agents"] for api in (whole, bound)]
    assert [[agent["agent_id"] for agent in agents] for agents in counted] == [["jones", "smith"], ["smith"]]
