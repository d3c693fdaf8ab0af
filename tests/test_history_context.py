"""Where a memory comes from, when it happened and where it stood, set anew; and the timeline that follows."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client

from service.mcp_tools import TOOLSETS
from service.operations import BY_NAME
from tests.historic import Door, history_server, over_http
from tests.keyed import Clock, keyed_server
from tests.processes import stdio
from tests.serving import Server, fresh, server, succeeded


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with history_server(tmp_path_factory.mktemp("context")) as running:
        yield running


@pytest.fixture
def door(running: Server) -> Door:
    api = running.api.of(fresh("context"))
    return Door(api, over_http(api))


def test_what_is_left_out_is_kept_and_null_clears(door: Door) -> None:
    memory = door.remember(
        "The bridge opened.",
        source="radio",
        event_at="2024-05-01T12:00:00Z",
        session_id="s",
        session_position=3,
        material_type="observation",
        origin_id="wire-1",
        capture_context="evening news only",
    )
    names = ("source", "event_at", "session_id", "session_position", "origin_id", "capture_context")
    kept = {name: memory[name] for name in names}
    moved = door.ask("set_history_context", id=memory["id"], event_at="2024-06-01T12:00:00+02:00")["memory"]
    assert {name: moved[name] for name in names} == kept | {"event_at": "2024-06-01T10:00:00Z"}
    cleared = door.ask("set_history_context", id=memory["id"], **dict.fromkeys(names))["memory"]
    assert {name: cleared[name] for name in names} == dict.fromkeys(names)
    assert cleared["created_at"] == memory["created_at"]
    version = door.details(memory["id"])["version"]
    same = door.ask("set_history_context", id=memory["id"], source=None, reason="Again.")["memory"]
    assert same == cleared and door.details(memory["id"])["version"] == version, "nothing changed"
    for wrong, field in (
        ({}, None),
        ({"session_position": 1}, "session_position"),
        ({"event_at": "2024-06-01"}, "event_at"),
        ({"sorce": "x"}, "sorce"),
    ):
        door.refuse(422, "invalid_argument", "set_history_context", field, id=memory["id"], **wrong)
    entries = succeeded(door.api.get("/brain/audit", params={"memory_id": memory["id"]}))["entries"]
    assert [one["fields"] for one in entries if one["action"] == "set_history_context"][-1] == ["event_at"]


def test_material_changes_only_within_its_layer(door: Door) -> None:
    memory = door.remember("Seen from the hill.")
    moved = door.ask("set_history_context", id=memory["id"], material_type="observation")["memory"]
    assert (moved["material_type"], moved["layer"]) == ("observation", "l2_fact")
    door.refuse(409, "conflict_state", "set_history_context", id=memory["id"], material_type="utterance")
    back = door.ask("set_history_context", id=memory["id"], material_type=None)["memory"]
    assert back["material_type"] == "unspecified"
    turn = door.api.add("Hello.", kind="message", session_id="chat")["memory"]["memory_id"]
    door.refuse(409, "conflict_state", "set_history_context", id=turn, source="Ana")


def test_a_position_that_was_left_is_nobody_elses(door: Door) -> None:
    first = door.remember("First.", session_id="s", session_position=0)["id"]
    second = door.remember("Second.", session_id="s", session_position=1)["id"]
    door.refuse(409, "position_taken", "set_history_context", id=first, session_position=1)
    door.ask("set_history_context", id=first, session_position=5)
    for taken in (0, 1, 5):
        door.refuse(409, "position_taken", "remember", content="x", session_id="s", session_position=taken)
    door.refuse(409, "position_taken", "set_history_context", id=second, session_position=0)
    back = door.ask("set_history_context", id=first, session_position=0)["memory"]
    assert back["session_position"] == 0, "it may come back itself"
    door.refuse(409, "position_taken", "remember", content="x", session_id="s", session_position=5)
    turn = door.api.add("And then?", kind="message", session_id="s")["memory"]["memory_id"]
    assert door.details(turn)["session_position"] == 6, "what is appended comes after it too"
    with_session = {"content": "Elsewhere.", "session_id": "t", "session_position": 0}
    assert door.remember(**with_session)["session_position"] == 0


def test_every_view_sees_the_new_place_at_once_and_the_stores_agree(running: Server, door: Door) -> None:
    ids = [
        door.remember(f"Turn {at} of the talk.", session_id="talk", session_position=at)["id"]
        for at in range(3)
    ]
    lone = door.remember("The talk was long.")["id"]
    door.ask("set_history_context", id=ids[0], session_position=9, event_at="2020-01-01T00:00:00Z")
    door.ask("set_history_context", id=lone, session_id="talk", session_position=4)
    found = door.api.search("long talk", session_id="talk", context=2, limit=1)["results"][0]
    assert found["memory_id"] == lone
    beside = [[one["memory_id"] for one in found["context"][side]] for side in ("before", "after")]
    assert beside == [[ids[1], ids[2]], [ids[0]]]
    early = door.api.search("talk", memory_at_to=1_600_000_000_000)["results"]
    assert [one["memory_id"] for one in early] == [ids[0]]
    assert [one["memory_id"] for one in door.api.list(session_id="talk")["memories"]] == [lone, *ids[::-1]]
    running.settle()
    running.evict(door.api)
    cold = door.api.memory(ids[0], include="details")
    assert (cold["memory_at"], cold["details"]["session_position"]) == (1_577_836_800_000, 9)
    report = running.portal.call(running.brain.doctor.examine).document()
    assert report["clean"], report


def test_the_timeline_goes_by_events_with_the_unknown_last(door: Door) -> None:
    events = {"b": "2024-05-02T00:00:00Z", "a": "2024-05-01T00:00:00.5+02:00", "c": "2024-05-03T00:00:00Z"}
    for text, at in events.items():
        door.remember(text, event_at=at, session_id="s", frame="F" if text == "c" else None)
    door.remember("unknown one", session_id="s")
    door.remember("unknown two")

    def told(**given: object) -> list[str]:
        return [one["content"] for one in door.ask("timeline", **given)["memories"]]

    assert told() == ["a", "b", "c", "unknown one", "unknown two"]
    assert told(session_id="s") == ["a", "b", "c", "unknown one"]
    assert told(frame="f") == ["c"]
    assert told(since="2024-05-02T00:00:00Z") == ["b", "c"], "the bounds are in"
    assert told(since="2024-05-01T00:00:00+02:00", until="2024-05-02T01:00:00+01:00") == ["a", "b"]
    assert door.ask("timeline", since="2024-05-02T00:00:00Z")["unknown"] == 2
    pages, cursor = [], None
    while True:
        page = door.ask("timeline", limit=2, cursor=cursor)
        pages.append([one["content"] for one in page["memories"]])
        door.remember(f"later {len(pages)}")  # known to be the last: nothing is skipped or repeated
        if (cursor := page["next_cursor"]) is None or len(pages) == 3:
            break
    assert pages == [["a", "b"], ["c", "unknown one"], ["unknown two", "later 1"]]
    for wrong, field in (
        ({"since": "2024-05-02"}, "since"),
        ({"since": "2024-05-02T00:00:00Z", "until": "2024-05-01T00:00:00Z"}, "until"),
        ({"cursor": "x"}, "cursor"),
        ({"cursor": "W251bGwsMSwyXQ"}, "cursor"),
    ):
        door.refuse(422, "invalid_argument", "timeline", field, **wrong)


def test_a_frame_is_one_whatever_its_spelling(door: Door) -> None:
    first = door.remember("The limit is 30.", frame=" Team-A ")
    second = door.remember("The limit is 30.", frame="TEAM-A")
    other = door.remember("The limit is 30.", frame="team-b")
    assert second["duplicate_of"] == first["id"] and other["duplicate_of"] is None
    merged = door.api.add("The limit is 30.", frame="team-a")
    assert merged["deduplicated"] is True, "the brain view knows it as the same frame"
    assert [one["memory_id"] for one in door.api.search("limit", frame="tEAM-a")["results"]]
    assert door.ask("list_frames")["frames"][0] == {"frame": "Team-A", "memories": 2}
    moved = door.ask("set_frame", id=other["id"], frame="Team-A", reason="They merged.")["memory"]
    assert moved["frame"] == "Team-A"
    assert door.ask("set_frame", id=other["id"], frame=None)["memory"]["frame"] is None
    door.refuse(422, "invalid_argument", "set_frame", "frame", id=other["id"], frame=" ")
    newer = succeeded(
        door.api.post(
            "/brain/memory/supersede", {"content": "New.", "supersedes": [first["id"]], "frame": "team-A"}
        )
    )
    door.refuse(409, "conflict_state", "set_frame", id=newer["memory"]["memory_id"], frame="team-b")


def test_the_queue_names_related_memories_as_a_group(door: Door) -> None:
    ids = [door.remember(f"The ferry to Hydra leaves at {hour}.")["id"] for hour in ("eight", "nine")]
    lone = door.remember("Quarterly invoices are late.")["id"]
    promoted = door.remember("The ferry to Hydra is blue.")["id"]
    door.ask("promote", id=promoted, reason="It is.")
    door.api.add("Is there a ferry?", kind="message", session_id="chat")
    queue = door.ask("due_for_consolidation")
    assert [one["id"] for one in queue["memories"]] == [*ids, lone] and queue["total"] == 3
    groups = [one["group"] for one in queue["memories"]]
    assert groups[0] == groups[1] is not None and groups[2] is None
    assert door.ask("due_for_consolidation", days=1)["memories"] == []
    assert len(door.ask("due_for_consolidation", limit=1)["memories"]) == 1


def test_over_twelve_pins_there_is_a_warning_and_twelve_places(door: Door) -> None:
    ids = [door.anchor(f"Anchor number {number}.") for number in range(13)]
    last = door.ask("pin", id=ids[-1], reason="Again.")
    assert last["pins"] == 13 and "12" in last["warning"]
    recalled = door.ask("recall", limit=1)
    assert len(recalled["anchors"]) == 12 and recalled["totals"]["anchors"] == 13
    assert ids[0] not in [one["id"] for one in recalled["anchors"]], "the last pinned first"
    unpinned = door.ask("unpin", id=ids[1], reason="Less so.")
    assert (unpinned["pins"], unpinned["warning"]) == (12, None)


def test_working_memories_fade_and_consolidated_ones_do_not(tmp_path_factory: pytest.TempPathFactory) -> None:
    clock = Clock()
    with server(tmp_path_factory.mktemp("fading"), clock=clock) as running:
        door = Door(running.api, over_http(running.api))
        old = door.remember("The gate code is on paper.")["id"]
        kept = door.remember("On paper is the gate code.")["id"]  # the same words, equally near
        door.ask("promote", id=kept, reason="Durable.")
        clock.now += 365 * 24 * 3600 * 1000
        new = door.remember("The code gate is on paper.")["id"]
        order = [one["id"] for one in door.ask("recall", query="gate code")["memories"]]
        assert order == [kept, new, old], "consolidated, then the newest"
        assert [one["id"] for one in door.ask("recall")["memories"]] == [kept, new, old]


def test_a_client_of_the_toolset_has_the_seeds_world_and_nothing_else(tmp_path: Path) -> None:
    command = stdio(tmp_path)
    command.args[-1] = "history"

    async def live() -> tuple[set[str], list[str]]:
        async with Client(command) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            await client.call_tool("remember", {"content": "The ferry is blue, code F-7.", "source": "Ana"})
            found = await client.call_tool("recall", {"query": "F-7"})
            assert found.structured_content is not None
            return names, [one["content"] for one in found.structured_content["memories"]]

    names, found = asyncio.run(live())
    assert names == {name for name, operation in BY_NAME.items() if "history" in operation.toolsets}
    assert len(names) == 22 and found == ["The ferry is blue, code F-7."]


def test_a_memory_saved_without_proof_is_searched_but_not_recalled(tmp_path: Path) -> None:
    with keyed_server(tmp_path, mcp={"toolsets": list(TOOLSETS)}) as keyed:
        agent = keyed.holder("acme")
        door = Door(agent, over_http(agent))
        body = {"text": "Prefer the blue ferry.", "memory_type": "preference"}
        saved = succeeded(agent.post("/brain/memories", body))["memory_id"]
        assert [one["memory_id"] for one in agent.search("blue ferry")["results"]] == [saved]
        assert door.ask("recall", query="blue ferry")["memories"] == []
        door.remember("The blue ferry is late.")
        assert [one["content"] for one in door.ask("recall", query="blue ferry")["memories"]] == [
            "The blue ferry is late."
        ]
