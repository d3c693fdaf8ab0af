"""The profile, the intentions with their expiry, and the list of scopes."""

import asyncio
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from sqlalchemy import update

from service.brain import Brain
from service.expiry import keep_sweeping, sweep
from service.operations import BY_NAME
from service.schemas import output_schema
from stores.schema import versions
from tests.equivalence import check
from tests.serving import JSON, Api, eventually, fresh, refused, server, succeeded
from tests.state.brains import Clock, add, call, caller, drained, running

pytest_plugins = ["tests.serving_fixtures"]

DAY = 24 * 3600 * 1000
START = 1_700_000_000_000
ME = caller("me")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def ask(api: Api, name: str, **params: Any) -> JSON:
    answer = succeeded(api.get(BY_NAME[name].route.path, params=params))
    jsonschema.validate(answer, output_schema(BY_NAME[name]))
    return answer


def texts(memories: list[JSON]) -> list[str]:
    return [memory["content"] for memory in memories]


def test_a_profile_has_what_is_known_of_the_user_best_first(api: Api) -> None:
    for content, layer, authority, confidence in (
        ("older", "l4_identity", "informal", None),
        ("doubted", "l4_identity", "informal", 0.1),
        ("newer", "l4_identity", "informal", None),
        ("official", "l4_identity", "official", 0.2),
        ("name", "l0_basic_info", "informal", None),
        ("pattern", "l6_schema", "team", None),
        ("fact", "l2_fact", "policy", None),
    ):
        extra = {} if confidence is None else {"confidence": confidence}
        api.add(content, layer=layer, source_authority=authority, **extra)
    profile = ask(api, "brain_profile")
    assert texts(profile["l4"]) == ["official", "newer", "older", "doubted"]
    assert (texts(profile["l0"]), texts(profile["l6"]), profile["pinned"]) == (["name"], ["pattern"], [])
    assert profile["l4"][0]["confidence"] == 0.2 and profile["l4"][0]["conflicts"] == []
    assert profile["truncated"] is False
    cut = ask(api, "brain_profile", limit=2)
    assert (texts(cut["l4"]), cut["truncated"]) == (["official", "newer"], True)
    refused(api.get("/brain/profile", params={"limit": 0}), 422, "invalid_argument", "limit")


def test_a_profile_shows_active_memories_of_the_caller_only(api: Api) -> None:
    mine, other = api.of(user="mine"), api.of(user="other")
    gone = mine.add("forgotten", layer="l0_basic_info")["memory"]["memory_id"]
    succeeded(mine.request("DELETE", f"/brain/memory/{gone}"))
    mine.add("mine", layer="l0_basic_info")
    other.add("other's", layer="l0_basic_info")
    assert texts(ask(mine, "brain_profile")["l0"]) == ["mine"]
    assert sorted(texts(ask(api, "brain_profile")["l0"])) == ["mine", "other's"]
    assert ask(api.of(agent=fresh()), "brain_profile")["l0"] == []


def plans(api: Api, now: int) -> None:
    for content, until in (
        ("tomorrow", now + DAY),
        ("in an hour", now + 3600_000),
        ("next month", now + 30 * DAY),
        ("some day", None),
        ("long ago", now - 30 * DAY),
        ("yesterday", now - DAY),
    ):
        api.add(content, layer="l7_intention", **({} if until is None else {"valid_until": until}))
    api.add("a fact", valid_until=now + DAY)


def test_intentions_are_due_active_or_expired(tmp_path: Path) -> None:
    with server(tmp_path, clock=lambda: START) as running_server:
        api = running_server.api
        plans(api, START)
        found = ask(api, "brain_intentions")
        assert texts(found["due"]) == ["in an hour", "tomorrow"]
        assert texts(found["active"]) == ["next month", "some day"]
        assert texts(found["expired"]) == ["yesterday", "long ago"]
        assert (found["due_before"], found["truncated"]) == (START + 7 * DAY, False)
        assert [one["valid_until"] for one in found["active"]] == [START + 30 * DAY, None]
        wide = ask(api, "brain_intentions", due_before=START + 30 * DAY)
        assert texts(wide["due"]) == ["in an hour", "tomorrow", "next month"]
        assert ask(api, "brain_intentions", due_before=START - 1)["due"] == []
        cut = ask(api, "brain_intentions", limit=1)
        assert (texts(cut["due"]), texts(cut["expired"]), cut["truncated"]) == (
            ["in an hour"],
            ["yesterday"],
            True,
        )
        bad = {"due_before": "soon"}
        refused(api.get("/brain/intentions", params=bad), 422, "invalid_argument", "due_before")


async def intentions(brain: Brain) -> dict[str, list[tuple[str, str]]]:
    status, body = await call(brain, "brain_intentions", ME)
    assert status == 200
    names = ("due", "active", "expired")
    return {name: [(one["content"], one["status"]) for one in body[name]] for name in names}


@pytest.mark.anyio
async def test_the_sweep_archives_what_is_past_its_end_and_nothing_else(tmp_path: Path) -> None:
    clock = Clock(START)
    async with running(tmp_path, clock=clock) as brain:
        plan = await add(brain, ME, "plan", layer="l7_intention", valid_until=START + 10)
        later = await add(brain, ME, "later", layer="l7_intention", valid_until=START + 11)
        fact = await add(brain, ME, "fact", valid_until=START + 10)
        clock.ms = START + 9
        assert await sweep(brain) == 0
        clock.ms = START + 10
        # Due by the clock already; but a read writes nothing.
        assert (await intentions(brain))["expired"] == [("plan", "active")]
        assert [m.state.status for m in brain.current([plan])] == ["active"]
        assert await sweep(brain) == 1
        assert await sweep(brain) == 0
        assert await intentions(brain) == {
            "due": [("later", "active")],
            "active": [],
            "expired": [("plan", "archived")],
        }
        [archived, *others] = brain.current([plan, later, fact])
        assert (archived.version, archived.state.status_reason) == (2, "expired")
        assert {memory.state.status for memory in others} == {"active"}
        _, history = await call(brain, "brain_memory_history", ME, memory_id=plan)
        event = history["events"][0]
        assert (event["action"], event["key_id"], event["fields"]) == ("expire", "system", ["status"])
        await drained(brain)
        await check(brain)


@pytest.mark.anyio
async def test_the_sweep_goes_over_every_scope_and_any_number(tmp_path: Path) -> None:
    clock = Clock(START)
    async with running(tmp_path, clock=clock) as brain:
        plan = {"layer": "l7_intention", "valid_until": START}
        items = [{"content": f"plan {n}", **plan} for n in range(150)]
        await call(brain, "brain_memory_add_batch", ME, items=items)
        await add(brain, caller(None, agent="other"), "theirs", **plan)
        assert await sweep(brain) == 151


@pytest.mark.anyio
async def test_the_sweep_archives_what_has_an_end_of_its_own(tmp_path: Path) -> None:
    clock = Clock(START)
    async with running(tmp_path, clock=clock) as brain:
        fact = await add(brain, ME, "fact")
        # No operation of this view sets it yet.
        state = {"confidence": 0.7, "provenance": {"expires_at": START + 5}}
        this = versions.c.memory_id == fact
        await brain.write(lambda t: t.execute(update(versions).where(this).values(state=state)))
        assert await sweep(brain) == 0
        clock.ms = START + 5
        assert await sweep(brain) == 1
        found = brain.ledger.find(fact)
        assert found is not None and found.state.status == "archived"


@pytest.mark.anyio
async def test_the_sweeping_goes_on_every_minute_and_after_a_fault(tmp_path: Path) -> None:
    clock = Clock(START)
    rounds: list[float] = []

    async def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 2:
            await rename("away", "memories")
            clock.ms += 10
        if len(rounds) == 3:
            raise asyncio.CancelledError

    async with running(tmp_path, clock=clock) as brain:

        async def rename(old: str, new: str) -> None:
            statement = f"ALTER TABLE {old} RENAME TO {new}"
            await brain.write(lambda t: t.connection.exec_driver_sql(statement))

        await add(brain, ME, "plan", layer="l7_intention", valid_until=START + 10)
        await rename("memories", "away")
        with pytest.raises(asyncio.CancelledError):
            await keep_sweeping(brain, sleep)
        assert rounds == [60, 60, 60]
        assert (await intentions(brain))["expired"] == [("plan", "archived")]


def test_a_server_sweeps_as_soon_as_it_has_started(tmp_path: Path) -> None:
    with server(tmp_path, clock=lambda: START) as first:
        plan = first.api.add("plan", layer="l7_intention", valid_until=START + 10)["memory"]["memory_id"]
    with server(tmp_path, clock=lambda: START + 10) as second:
        eventually(lambda: second.api.memory(plan)["status"] == "archived")


def test_the_list_of_scopes_counts_the_memories_of_each_user(tmp_path: Path) -> None:
    with server(tmp_path) as running_server:
        api = running_server.api
        assert ask(api, "brain_scopes")["agents"] == []
        for agent, user, count in (("b", "u", 2), ("a", "v", 1), ("a", "u", 1), ("a", "gone", 1)):
            for number in range(count):
                api.of(agent, user).add(f"{number}")
        gone = api.of("a", "gone")
        memory_id = gone.list()["memories"][0]["memory_id"]
        succeeded(gone.request("DELETE", f"/brain/memory/{memory_id}"))
        answer = ask(api, "brain_scopes")
        assert answer["agents"] == [
            {
                "agent_id": "a",
                "memories": 2,
                "users": [{"user_id": "u", "memories": 1}, {"user_id": "v", "memories": 1}],
            },
            {"agent_id": "b", "memories": 2, "users": [{"user_id": "u", "memories": 2}]},
        ]
        assert answer["truncated"] is False
        cut = ask(api, "brain_scopes", limit=1)
        assert (len(cut["agents"]), cut["truncated"]) == (1, True)
        refused(api.get("/brain/admin/scopes", params={"limit": 0}), 422, "invalid_argument", "limit")


@pytest.mark.anyio
async def test_the_list_of_scopes_needs_the_right_and_shows_one_product(tmp_path: Path) -> None:
    async with running(tmp_path) as brain:
        await add(brain, caller("u", product="p"), "p's")
        await add(brain, caller("u", product="q"), "q's")
        status, body = await call(brain, "brain_scopes", caller(None, product="q"))
        assert (status, body["agents"][0]["memories"], len(body["agents"])) == (200, 1, 1)
        reader = ME._replace(rights=frozenset({"read", "write"}))
        status, body = await call(brain, "brain_scopes", reader)
        assert (status, body["code"]) == (403, "forbidden")
