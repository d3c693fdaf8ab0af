"""Public faults of systems like this one, tried on ours: the cases that take several products, processes or a
purge. Case 2 is in test_purge.py too, case 13 in test_cases.py, case 16 in test_amendments.py. Of case 7
`brain rebuild` is left out: it does not exist yet."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client

from tests.keyed import keyed_server
from tests.processes import serving_process, stdio
from tests.serving import JSON, Api, Server, eventually, refused, server, succeeded

pytest_plugins = ["tests.serving_fixtures", "tests.embedding_fixtures"]

PURGE = "/brain/purge"
MANY = 10_000


def purge(api: Api, **target: Any) -> JSON:
    return succeeded(api.post(PURGE, target))


def contents(api: Api, query: str, limit: int = 10) -> list[str]:
    return [hit["content"] for hit in api.search(query, limit=limit)["results"]]


@pytest.mark.parametrize("how", ["forget", "archive", "replace", "purge"])
def test_case_2_when_the_best_hit_is_gone_the_next_one_is_found(api: Api, how: str) -> None:
    best, *_ = [api.add(f"Deploy note {name}: the blue pipeline.")["memory"]["memory_id"] for name in "ABC"]
    path = f"/brain/memory/{best}"
    if how == "purge":
        purge(api, memory_id=best)
    elif how == "replace":
        succeeded(api.request("PATCH", path, {"content": "Nothing of that kind."}))
    else:
        succeeded(api.request("DELETE", path, params={"mode": how}))
    [found] = contents(api, "Deploy note A: the blue pipeline.", limit=1)
    # What replaced it is what is known of note A by now.
    assert found == "Nothing of that kind." if how == "replace" else found[12] in "BC"


def test_case_3_ten_thousand_at_once_are_refused_whole_and_in_parts_are_added_and_purged(
    tmp_path: Path,
) -> None:
    items = [{"content": f"row {number}", "session_id": f"s{number % 2}"} for number in range(MANY)]
    with server(tmp_path) as running:
        me, other = running.api.of("many"), running.api.of("other")
        other.add("row 1")
        refused(me.post("/brain/memory/batch", {"items": items}), 422, "invalid_argument", "items")
        assert me.stats()["total"] == 0
        for start in range(0, MANY, 1_000):
            results = me.batch(items[start : start + 1_000])["results"]
            assert {result["status"] for result in results} == {201}
        assert purge(me, session_id="s1")["count"] == MANY // 2
        assert me.stats()["total"] == me.list()["total"] == MANY // 2
        receipt = purge(me, all=True, confirm="many", cascade=True)
        assert (receipt["count"], len(receipt["purged"])) == (MANY // 2, 1_000)
        assert (me.stats()["total"], contents(me, "row 1"), other.stats()["total"]) == (0, [], 1)


def test_case_6_what_is_done_to_one_scope_is_done_to_no_other(tmp_path: Path) -> None:
    scopes = [(product, agent) for product in ("acme", "beta") for agent in ("smith", "jones")]
    secrets = {}

    def counts(running: Any) -> dict[tuple[str, str], int]:
        found = {}
        for product, agent in scopes:
            me = running.bearing(secrets[product]).of(agent)
            found[product, agent] = me.stats()["total"]
            assert me.list()["total"] == len(contents(me, "the very same")) == found[product, agent]
        return found

    with keyed_server(tmp_path) as running:
        for product in ("acme", "beta"):
            rights = ["read", "write", "admin"]
            secrets[product] = running.create(product, rights=rights)["credential"]
        for product, agent in scopes:
            me = running.bearing(secrets[product]).of(agent)
            ids = [me.of(user=user).add("The very same text.")["memory"]["memory_id"] for user in "uv"]
            if (product, agent) == scopes[0]:
                assert me.request("DELETE", f"/brain/memory/{ids[0]}").status_code == 200
                assert purge(me, all=True, confirm=agent)["count"] == 2
        expected = {scope: 0 if scope == scopes[0] else 2 for scope in scopes}
        assert counts(running) == expected
    with keyed_server(tmp_path) as running:
        assert counts(running) == expected


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_case_7_a_server_and_two_stdio_processes_on_one_directory_lose_no_row(
    tmp_path: Path, onnx_folder: Path
) -> None:
    each = 200
    with serving_process(tmp_path) as owner:
        async with (
            httpx.AsyncClient(base_url=owner.url, timeout=120, trust_env=False) as http,
            Client(stdio(tmp_path)) as one,
            Client(stdio(tmp_path)) as two,
        ):

            async def over_http(content: str) -> str:
                answer = await http.post("/brain/memory", json={"content": content})
                return str(succeeded(answer)["memory"]["memory_id"])

            async def over_stdio(client: Client, content: str) -> str:
                result = await client.call_tool("brain_memory_add", {"content": content})
                assert not result.is_error and result.structured_content, result
                return str(result.structured_content["memory"]["memory_id"])

            ids = await asyncio.gather(
                *(over_http(f"web {number}") for number in range(each)),
                *(over_stdio(one, f"one {number}") for number in range(each)),
                *(over_stdio(two, f"two {number}") for number in range(each)),
            )
    assert len(set(ids)) == 3 * each
    with server(tmp_path) as running:  # another owner finds them all
        assert running.api.stats()["total"] == 3 * each
        assert all(running.api.memory(memory_id)["status"] == "active" for memory_id in ids[::20])


NAMES = ["a-b", "018f3e5a-0000-7000-8000-000000000000", "main", "a/b", "..", "%2e", "NOT", 'x" OR "1', "*"]


def test_case_9_operators_in_names_are_names(tmp_path: Path) -> None:
    """Products, agents and users: each name is one, and nobody's neighbour."""
    with keyed_server(tmp_path) as running:
        for product in NAMES[:3]:
            holder = running.holder(product, rights=["read", "write", "admin"])
            for name in NAMES:
                me = holder.of(name, name)
                memory = me.add(f"Belongs to {product} {name}.")["memory"]
                assert (memory["agent_id"], memory["user_id"]) == (name, name)
            for name in NAMES:
                me = holder.of(name, name)
                assert contents(me, "belongs to") == [f"Belongs to {product} {name}."]
                assert me.list()["total"] == 1
            assert purge(holder.of(NAMES[3]), user_id=NAMES[3])["count"] == 1
            assert [holder.of(name).stats()["total"] for name in NAMES] == [1, 1, 1, 0, 1, 1, 1, 1, 1]
        for name in ("\N{FOX FACE}".encode(), b"\xff", b"", b"x" * 300):
            answer = holder.get("/brain/stats", headers={b"x-brain-agent": name})  # type: ignore[dict-item]
            assert answer.status_code == 422, name


PERIODS = [(1_767_225_600_000, 1_772_323_200_000), (1_777_593_600_000, 1_782_864_000_000)]


def test_case_10_one_fact_in_two_periods_stays_two_and_one_write_that_is_retried_stays_one(api: Api) -> None:
    def write(attempt: int) -> tuple[int, str]:
        agent, period = divmod(attempt % 4, 2)
        start, end = PERIODS[period]
        body = {"valid_from": start, "valid_until": end, "idempotency_key": f"period-{period}"}
        answer = api.of(f"{api.agent}-{agent}").try_add("Alex is on Payments.", **body)
        return answer.status_code, answer.json()["memory"]["memory_id"]

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(write, range(40)))  # each of four writes ten times
    assert {status for status, _ in answers} == {201}
    assert [len({id for _, id in answers[each::4]}) for each in range(4)] == [1] * 4
    assert len({id for _, id in answers}) == 4
    for agent in (0, 1):
        me = api.of(f"{api.agent}-{agent}")
        found = [me.memory(memory["memory_id"], include="details") for memory in me.list()["memories"]]
        assert {(m["details"]["valid_from"], m["details"]["valid_until"]) for m in found} == set(PERIODS)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """Every file of its directory is searched."""
    with server(tmp_path) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


def files_with(directory: Path, *texts: str) -> list[str]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return [f"{path}: {text}" for path in files for text in texts if text.encode() in path.read_bytes()]


@pytest.mark.parametrize("target", ["memory_id", "session_id", "user_id", "all"])
def test_case_12_a_purged_text_is_in_no_file_whatever_happened_to_it_before(
    own_server: Server, target: str
) -> None:
    """It was changed, replaced, forgotten and written again; and what rests on it went with it."""
    me = own_server.api.of("purged", "someone")
    kept = me.of("kept").add("The bluebird stays.")["memory"]["memory_id"]
    common = {"session_id": "canarysession", "actor": "Canaryactor", "project": "canaryproject"}
    raw = me.add("The canaryraw sings.", layer="l1_raw", **common)["memory"]["memory_id"]
    first = me.add("The canaryfirst sings.", metadata={"canarykey": 1}, evidence_ids=[raw], **common)
    first_id = first["memory"]["memory_id"]
    path = f"/brain/memory/{first_id}"
    succeeded(me.request("PATCH", path, {"tags": ["canarytag"], "frame": "canaryframe"}))
    second = succeeded(me.request("PATCH", path, {"content": "The canarysecond sings."}))["memory"]
    succeeded(me.request("DELETE", path, params={"reason": "canaryreason"}))
    batch = {"items": [{"content": "The canarybatch sings.", "evidence_ids": [raw], **common}]}
    succeeded(me.post("/brain/memory/batch", batch | {"idempotency_key": "canaryidempotency"}))
    own_server.settle()
    texts = [f"canary{name}" for name in ("raw", "first", "key", "tag", "frame", "second", "reason", "batch")]
    texts += ["canarysession", "canaryproject", "Canaryactor", "canaryidempotency"]
    directory = own_server.brain.settings.data_directory
    assert {found.rpartition(": ")[2] for found in files_with(directory, *texts)} == set(texts)
    what: JSON = {
        "memory_id": {"memory_id": raw, "cascade": True},
        "session_id": {"session_id": "canarysession"},
        "user_id": {"user_id": "someone"},
        "all": {"all": True, "confirm": "purged"},
    }[target]
    receipt = purge(me, wait=True, **what)
    assert receipt["count"] == 4 and set(receipt["done"].values()) == {"done"}
    assert files_with(directory, *texts) == []
    for memory_id in (raw, first_id, second["memory_id"]):
        refused(me.get(f"/brain/memory/{memory_id}"), 404, "memory_not_found")
    assert contents(me.of("kept"), "bluebird") == [me.of("kept").memory(kept)["content"]]
