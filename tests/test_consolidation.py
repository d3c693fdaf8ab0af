"""`brain_consolidation`: which memories are due to be summed up, in which groups, and until when."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from sqlalchemy import update

from models.answers import MemoryFields
from service.consolidation import FULL
from service.operations import BY_NAME
from service.schemas import output_schema
from stores.schema import versions
from tests.serving import JSON, Api, Server, eventually, fresh, refused, server, succeeded
from tests.state.brains import Clock

START = 1_700_000_000_000
MINUTE = 60_000


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock(START)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("consolidation"), clock=clock) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@pytest.fixture
def api(served: Server) -> Api:
    return served.api.of(fresh())


def due(api: Api, **params: Any) -> list[JSON]:
    answer = succeeded(api.get("/brain/consolidation", params={"quiet_minutes": 0} | params))
    jsonschema.validate(answer, output_schema(BY_NAME["brain_consolidation"]))
    return list(answer["groups"])


def ids(groups: list[JSON]) -> list[list[str]]:
    return [group["memory_ids"] for group in groups]


def add(api: Api, content: str, **fields: Any) -> str:
    memory_id: str = api.add(content, **fields)["memory"]["memory_id"]
    return memory_id


def talk(api: Api, number: int, session: str = "s", start: int = 0, **fields: Any) -> list[str]:
    messages = [{"role": "user", "content": f"turn {start + n}"} for n in range(number)]
    found: list[str] = api.add(messages=messages, session_id=session, **fields)["memory_ids"]
    return found


def herons(api: Api, number: int = 3, **fields: Any) -> list[str]:
    """Memories on one topic."""
    return [add(api, f"heron database note {n}", **fields) for n in range(number)]


def test_a_session_is_due_when_it_is_quiet(api: Api, clock: Clock) -> None:
    turns = talk(api, 3)
    clock.ms += 30 * MINUTE - 1
    assert due(api, quiet_minutes=30) == []
    clock.ms += 1
    [group] = due(api, quiet_minutes=30)
    assert group == {
        "reason": "session",
        "suggested_layer": "l3_summary",
        "memory_ids": turns,
        "user_id": "default",
        "session_id": "s",
        "frame": None,
        "since": clock.ms - 30 * MINUTE,
        "until": clock.ms - 30 * MINUTE,
    }
    talk(api, 1, start=3)
    assert due(api, quiet_minutes=30) == [], "it goes on"
    assert due(api, quiet_minutes=30, min_size=50) == []


def test_a_small_session_is_not_due(api: Api) -> None:
    talk(api, 2)
    assert due(api) == []
    assert len(due(api, min_size=2)) == 1


def test_a_long_session_is_due_in_runs_as_soon_as_one_is_full(api: Api) -> None:
    turns = talk(api, FULL + 3)
    assert ids(due(api, quiet_minutes=30)) == [turns[:FULL]]
    assert ids(due(api)) == [turns[:FULL], turns[FULL:]]


@pytest.mark.parametrize("layer", ["l3_summary", "l5_knowledge", "l6_schema"])
def test_what_a_summary_rests_on_is_due_no_more(api: Api, layer: str) -> None:
    turns = talk(api, 4)
    [group] = due(api)
    summary = add(api, "They took turns.", layer=layer, evidence_ids=group["memory_ids"])
    assert due(api) == []
    later = talk(api, 3, start=4)
    assert ids(due(api)) == [later]
    succeeded(api.request("DELETE", f"/brain/memory/{summary}"))
    assert ids(due(api)) == [turns + later], "without the summary it is to be done again"


def test_a_fact_that_was_drawn_from_a_turn_sums_nothing_up(api: Api) -> None:
    turns = talk(api, 3)
    add(api, "A fact.", evidence_ids=turns, source_raw_memory_id=turns[0])
    assert ids(due(api)) == [turns]


def test_what_was_derived_from_its_source_counts_as_summed_up(api: Api) -> None:
    turns = talk(api, 4)
    add(api, "Turn nought, in short.", layer="l3_summary", source_raw_memory_id=turns[0])
    assert ids(due(api)) == [turns[1:]]


def test_memories_on_one_topic_are_a_group(api: Api) -> None:
    notes = herons(api)
    add(api, "entirely different matter")
    [group] = due(api)
    assert (group["reason"], group["memory_ids"]) == ("topic", notes)
    assert (group["suggested_layer"], group["session_id"]) == ("l5_knowledge", None)
    assert ids(due(api)) == ids(due(api)), "the same each time"


@pytest.mark.parametrize(
    ("layer", "raised"),
    [("l1_raw", "l3_summary"), ("l2_fact", "l5_knowledge"), ("l3_summary", "l6_schema")],
)
def test_a_group_is_raised_to_the_layer_above(api: Api, layer: str, raised: str) -> None:
    herons(api, layer=layer)
    assert [group["suggested_layer"] for group in due(api)] == [raised]


@pytest.mark.parametrize(
    "layer", ["l0_basic_info", "l4_identity", "l5_knowledge", "l6_schema", "l7_intention"]
)
def test_what_is_general_already_is_not_summed_up(api: Api, layer: str) -> None:
    herons(api, layer=layer)
    assert due(api) == []


def test_a_link_ties_memories_to_one_topic(api: Api) -> None:
    alone = [add(api, text) for text in ("sparrow", "finch eats", "wren nests here")]
    assert due(api) == []
    for one, other in ((alone[2], alone[0]), (alone[1], alone[2])):
        succeeded(api.request("PUT", f"/brain/links/{one}/related/{other}"))
    assert ids(due(api)) == [alone]
    other_layer = add(api, "owl", layer="l3_summary")
    succeeded(api.request("PUT", f"/brain/links/{other_layer}/related/{alone[0]}"))
    assert ids(due(api)) == [alone], "layers are not mixed"


def test_users_and_frames_are_kept_apart(api: Api) -> None:
    for user in ("ada", "bob"):
        herons(api.of(user=user), 2)
    herons(api, 2, frame="f")
    herons(api, 2, frame="g")
    assert due(api) == []
    groups = due(api, min_size=2)
    assert sorted((group["user_id"], group["frame"] or "") for group in groups) == [
        ("ada", ""), ("bob", ""), ("default", "f"), ("default", "g"),
    ]  # fmt: skip
    assert [group["user_id"] for group in due(api.of(user="bob"), min_size=2)] == ["bob"]
    assert due(api.of(agent=fresh()), min_size=2) == []


def test_only_what_is_active_valid_and_harmless_is_summed_up(served: Server, api: Api, clock: Clock) -> None:
    notes = herons(api, 6)
    succeeded(api.request("DELETE", f"/brain/memory/{notes[0]}", params={"mode": "archive"}))
    succeeded(api.request("DELETE", f"/brain/memory/{notes[1]}"))
    succeeded(api.request("PATCH", f"/brain/memory/{notes[2]}", {"valid_until": clock.ms + 1}))
    clock.ms += 1
    marked = {"confidence": 0.7, "provenance": {"security_sensitive": True}}
    this = versions.c.memory_id == notes[3]

    async def mark() -> None:
        await served.brain.write(lambda t: t.execute(update(versions).where(this).values(state=marked)))
        served.brain.residents.evict_all()

    served.portal.call(mark)
    assert ids(due(api, min_size=2)) == [notes[4:]]


def test_groups_that_have_waited_longest_come_first_within_the_limit(api: Api, clock: Clock) -> None:
    sessions = []
    for name in ("a", "b", "c"):
        sessions.append(talk(api, 3, session=name))
        clock.ms += MINUTE
    talk(api, 3, session="a", start=3)
    assert [group["session_id"] for group in due(api)] == ["b", "c", "a"]
    answer = succeeded(api.get("/brain/consolidation", params={"quiet_minutes": 0, "limit": 2}))
    assert (ids(answer["groups"]), answer["truncated"]) == (sessions[1:], True)
    assert succeeded(api.get("/brain/consolidation"))["truncated"] is False


def test_in_full_the_memories_are_there_and_nothing_is_changed(api: Api) -> None:
    talk(api, 3)
    before = api.list()["memories"]
    [group] = due(api, detail="full")
    assert [memory["memory_id"] for memory in group["memories"]] == group["memory_ids"]
    assert all(set(memory) == set(MemoryFields.__annotations__) for memory in group["memories"])
    assert "memories" not in due(api)[0]
    assert api.list()["memories"] == before


def test_groups_are_the_same_when_the_partition_is_loaded_anew(served: Server, api: Api) -> None:
    talk(api, 4)
    herons(api, 4)
    before = due(api)
    served.evict(api)
    assert due(api) == before and len(before) == 2


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("min_size", 1),
        ("min_size", 51),
        ("quiet_minutes", -1),
        ("limit", 0),
        ("detail", "all"),
        ("user", "x"),
    ],
)
def test_an_argument_out_of_its_bounds_is_refused(api: Api, field: str, bad: Any) -> None:
    refused(api.get("/brain/consolidation", params={field: bad}), 422, "invalid_argument", field)
