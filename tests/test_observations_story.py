"""The observations view as it is used: one story through the views, several writers at once, and the official
client over stdio."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client, StdioServerParameters

from service.operations import BY_NAME
from service.operations_observations import OPERATIONS
from service.schemas import output_schema
from tests.equivalence import check
from tests.observing import View, query
from tests.processes import BRAIN, environment
from tests.serving import succeeded

pytest_plugins = ["tests.observing_fixtures"]

LINES = [
    {"role": "user", "text": "Why is the ferry timetable slow?", "at": "2026-01-02T08:00:00Z"},
    {
        "role": "assistant",
        "text": "The timetable cache is cold: lighthouse-42 shows it.",
        "at": "2026-01-02T08:01:00Z",
    },
]


def transcript() -> str:
    """What Claude Code would have written."""
    return "\n".join(
        json.dumps(
            {
                "type": line["role"],
                "sessionId": "s1",
                "cwd": "/repo",
                "timestamp": line["at"],
                "uuid": f"u{number}",
                "message": {"role": line["role"], "content": line["text"]},
            }
        )
        for number, line in enumerate(LINES)
    )


def test_a_transcript_becomes_an_observation_and_a_fact_that_lead_back_to_it(view: View) -> None:
    session = {"host": "claude-code", "project": "/repo", "session_id": "s1"}
    taken = view.call("ingest_transcript", content=transcript(), host="claude-code", project="/repo")
    assert (taken["status"], taken["inserted"]) == ("ok", 2)
    [listed] = view.call("list_raw_sessions", sample=1)["sessions"]
    assert listed["user_message_samples"] == [LINES[0]["text"]]
    [hit] = view.call("search_raw", query="lighthouse-42")["messages"]
    message = view.call("get_raw_messages", **session)["messages"][1]
    assert hit["memory_id"] == message["memory_id"]

    observed = view.call(
        "add_observation", type="discovery", title="The timetable cache is cold", project="/repo",
        narrative=message["content"], content_session_id="s1",
    )  # fmt: skip
    view.sum_up("Why is the timetable slow?", intent="fix", topic="Cold cache", **session)
    fact = {"subject": "timetable", "predicate": "cache", "object": "cold", "single_valued": True}
    added = view.api.add(
        "The timetable's cache is cold.", source_raw_memory_id=message["memory_id"], facts=[fact]
    )["memory"]
    saved = view.call(
        "save_memory", text="Warm the timetable's cache at start.", project="/repo", topic_key="cache",
        memory_type="decision", evidence_ids=[observed["memory_id"], added["memory_id"]],
    )  # fmt: skip

    [labelled] = view.call("list_raw_sessions")["sessions"]
    assert labelled["display_label"] == "0102｜fix｜Cold cache"
    found = {hit["memory_id"] for hit in view.api.search("cold timetable cache", limit=20)["results"]}
    assert {message["memory_id"], observed["memory_id"], added["memory_id"], saved["memory_id"]} <= found
    back = view.api.memory(added["memory_id"])["source_raw_memory_id"]
    assert view.api.memory(back)["content"] == LINES[1]["text"]
    chain = view.api.memory(saved["memory_id"], include="evidence")["evidence"]
    assert {one["memory_id"] for one in chain} == {observed["memory_id"], added["memory_id"]}
    shown = view.detail(saved["id"])
    assert shown["classification"] == "current"
    number = view.api.memory(added["memory_id"], include="details")["details"]["number"]
    assert view.detail(number)["temporal_facts"][0]["object"] == "cold"

    recalled = view.call("recall", query="cold timetable cache")
    assert added["memory_id"] in {one["id"] for one in recalled["memories"]}
    for act in ("promote", "pin"):
        view.call(act, id=added["memory_id"], reason="It was measured.")
    assert [one["id"] for one in view.call("recall", limit=1)["anchors"]] == [added["memory_id"]]
    pinned = succeeded(view.api.get("/brain/profile"))["pinned"]
    assert [one["source_raw_memory_id"] for one in pinned] == [message["memory_id"]]


def test_versions_that_come_at_once_leave_one_head_and_no_id_twice(http_view: View) -> None:
    def save(number: int) -> Any:
        return http_view.call("save_memory", text=f"Version {number}.", project="/repo", topic_key="k")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(save, range(40)))
    rows = query(
        http_view.server,
        "SELECT m.number, v.status FROM memories m JOIN versions v USING (memory_id) "
        "WHERE m.agent = ? AND v.to_seq IS NULL",
        http_view.api.agent,
    )
    assert sorted(number for number, _ in rows) == list(range(1, 41))
    assert [number for number, status in rows if status == "active"] == [1]
    assert {answer["id"] for answer in answers} <= set(range(1, 41))
    http_view.server.settle()
    http_view.server.portal.call(check, http_view.server.brain)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_the_official_client_calls_every_tool_over_stdio(tmp_path: Path) -> None:
    command, *arguments = BRAIN
    door = StdioServerParameters(
        command=command,
        args=[*arguments, "mcp", "--data", str(tmp_path), "--toolsets", "observations"],
        env=environment(),
    )
    given: dict[str, Any] = {
        "save_memory": {"text": "The ferry sails at noon.", "project": "/repo"},
        "add_observation": {"type": "bugfix", "title": "Ferry was late"},
        "add_session_summary": {"request": "Why late?", "host": "h", "session_id": "s"},
        "get_observations": {"ids": [1]},
        "search_observations": {"query": "ferry"},
        "observation_timeline": {"id": 1},
        "set_session_label": {"id": 1, "intent": "fix"},
        "suppress_memory": {"target": "memory:1"},
        "unsuppress_memory": {"target": "memory:1"},
        "govern_memory": {"ids": [1], "action": "stale"},
        "compress_observations": {"ids": [1], "replacement": {"type": "change", "title": "Ferries"}},
    }
    assert given.keys() == {operation.name for operation in OPERATIONS}
    async with Client(door) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert given.keys() <= tools.keys()
        for name, arguments in given.items():
            result = await client.call_tool(name, arguments)
            assert not result.is_error, (name, result.structured_content)
            schema = tools[name].output_schema
            assert schema == output_schema(BY_NAME[name])
            jsonschema.Draft202012Validator(schema).validate(result.structured_content)
            [block] = result.content
            assert json.loads(block.text) == result.structured_content
        failed = await client.call_tool("get_observations", {"ids": [7]})
        assert failed.is_error and failed.structured_content["code"] == "not_found"


def test_the_story_outlives_a_purge_of_its_session(view: View) -> None:
    view.call("ingest_transcript", content=transcript(), host="claude-code", project="/repo")
    id = view.save("Kept.", project="/repo")
    succeeded(view.api.post("/brain/purge", {"session_id": "s1", "wait": True}))
    assert view.detail(id)["text"] == "Kept."
