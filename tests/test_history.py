"""The history of a memory's chain: every version as it stood, and what was done."""

from itertools import pairwise

import jsonschema

from service.operations import BY_NAME
from service.schemas import output_schema
from tests.serving import JSON, Api, Server, refused, succeeded

pytest_plugins = ["tests.serving_fixtures"]


def history(api: Api, memory_id: str) -> JSON:
    answer = succeeded(api.get(f"/brain/memory/{memory_id}/history"))
    jsonschema.validate(answer, output_schema(BY_NAME["brain_memory_history"]))
    return answer


def add(api: Api, content: str, **fields: object) -> str:
    return str(api.add(content, **fields)["memory"]["memory_id"])


def supersede(api: Api, content: str, *old: str, **fields: object) -> str:
    body = {"content": content, "supersedes": list(old), **fields}
    return str(succeeded(api.post("/brain/memory/supersede", body))["memory"]["memory_id"])


def delete(api: Api, memory_id: str, **params: object) -> None:
    succeeded(api.request("DELETE", f"/brain/memory/{memory_id}", params=params))


def contents(answer: JSON) -> list[tuple[str, str, int]]:
    return [(v["content"], v["status"], v["version"]) for v in answer["versions"]]


def test_a_new_memory_has_one_version_and_one_event(api: Api) -> None:
    memory_id = add(api, "The limit is 30.", tags=["a"], metadata={"k": 1.50})
    answer = history(api, memory_id)
    [version] = answer["versions"]
    shown = api.memory(memory_id)
    extra = {"version", "from", "to", "source"}
    assert {k: v for k, v in version.items() if k not in extra} == {
        k: shown[k] for k in version.keys() - extra
    }
    assert (version["version"], version["from"], version["to"]) == (1, shown["gmt_created"], None)
    [event] = answer["events"]
    assert (event["action"], event["memory_id"], event["fields"]) == ("brain_memory_add", memory_id, [])
    assert event["at"] == shown["gmt_created"]
    assert answer["truncated"] is False


def test_versions_show_each_state_as_it_stood_and_follow_each_other_without_a_gap(api: Api) -> None:
    memory_id = add(api, "The limit is 30.", tags=["a"])
    for tag in ("b", "c"):
        api.add("The limit is 30.", tags=[tag])
    versions = history(api, memory_id)["versions"]
    assert [version["tags"] for version in versions] == [["a", "b", "c"], ["a", "b"], ["a"]]
    assert [version["version"] for version in versions] == [3, 2, 1]
    assert versions[0]["to"] is None
    assert all(newer["from"] == older["to"] for newer, older in pairwise(versions))


def test_the_whole_chain_is_shown_from_any_of_its_memories(api: Api) -> None:
    first, other = add(api, "one"), add(api, "another one")
    second = supersede(api, "two", first, other)
    third = supersede(api, "three", second)
    add(api, "a stranger")
    answers = [history(api, memory_id) for memory_id in (first, other, second, third)]
    shown = {name: answers[0][name] for name in ("versions", "events")}
    assert all({name: answer[name] for name in shown} == shown for answer in answers)
    assert contents(answers[0]) == [
        ("three", "active", 1),
        ("two", "superseded", 2),
        ("two", "active", 1),
        ("another one", "superseded", 2),
        ("another one", "active", 1),
        ("one", "superseded", 2),
        ("one", "active", 1),
    ]
    old = next(v for v in shown["versions"] if (v["content"], v["version"]) == ("one", 1))
    assert (old["is_latest"], old["superseded_by"]) == (True, None)
    seqs = [event["seq"] for event in shown["events"]]
    assert seqs == sorted(seqs, reverse=True)


def test_a_forgotten_memory_of_the_chain_appears_without_its_text_in_every_version(api: Api) -> None:
    first = add(api, "canary one", tags=["canary"], metadata={"canary": "canary"})
    second = supersede(api, "two", first)
    delete(api, first)
    for asked in (first, second):
        answer = history(api, asked)
        hidden = [version for version in answer["versions"] if version["memory_id"] == first]
        assert [version["status"] for version in hidden] == ["forgotten", "superseded", "active"]
        assert "canary" not in api.get(f"/brain/memory/{asked}/history").text
    refused(api.get(f"/brain/memory/{first}"), 410, "memory_forgotten")


def test_a_restored_memory_shows_its_text_but_for_the_version_that_was_forgotten(api: Api) -> None:
    memory_id = add(api, "text")
    delete(api, memory_id)
    succeeded(api.post(f"/brain/memory/{memory_id}/restore", {}))
    versions = history(api, memory_id)["versions"]
    assert [(v["status"], v["content"]) for v in versions] == [
        ("active", "text"),
        ("forgotten", ""),
        ("active", "text"),
    ]


def test_events_hold_no_text(api: Api) -> None:
    memory_id = add(api, "xyzzy", tags=["xyzzy"])
    api.add("xyzzy", tags=["plugh"])
    events = history(api, memory_id)["events"]
    assert [event["fields"] for event in events] == [["tags", "evidence_ids"], []]
    assert "xyzzy" not in str(events)


def test_an_unknown_a_foreign_and_a_purged_memory_have_no_history(api: Api) -> None:
    mine = api.of(user="mine")
    memory_id = add(mine, "mine")
    path = f"/brain/memory/{memory_id}/history"
    missing = "00000000-0000-7000-8000-000000000000"
    unknown = refused(mine.get(f"/brain/memory/{missing}/history"), 404, "memory_not_found")
    for stranger in (api.of(user="other"), api.of(agent="other-agent")):
        foreign = refused(stranger.get(path), 404, "memory_not_found")
        assert foreign["detail"].replace(memory_id, missing) == unknown["detail"]
    refused(mine.get("/brain/memory/no-id/history"), 404, "memory_not_found")
    assert len(history(api, memory_id)["versions"]) == 1  # who names no user reads the whole scope
    succeeded(mine.post("/brain/purge", {"memory_id": memory_id}))
    refused(mine.get(path), 404, "memory_not_found")


def test_a_long_chain_is_cut_and_says_so(shared_server: Server, api: Api) -> None:
    memory_id = add(api, "0")
    for number in range(1, 210):
        memory_id = supersede(api, str(number), memory_id)
    answer = history(api, memory_id)
    assert answer["truncated"] is True
    assert len({version["memory_id"] for version in answer["versions"]}) == 200
    assert contents(answer)[0] == ("209", "active", 1)
