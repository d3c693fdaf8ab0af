"""Lists, their cursors, and the counts of a scope."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest

from service.operations import BY_NAME
from service.schemas import output_schema
from tests.serving import JSON, Api, Server, refused

pytest_plugins = ["tests.serving_fixtures"]

LIST = "/brain/memory"


def contents(answer: JSON) -> list[str]:
    return [memory["content"] for memory in answer["memories"]]


def walk(api: Api, **params: Any) -> list[str]:
    """Every page, one after the other."""
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = api.list(**params, **({"cursor": cursor} if cursor else {}))
        seen += contents(page)
        cursor = page["next_cursor"]
        if cursor is None:
            return seen


@pytest.fixture
def filled(api: Api) -> Api:
    """Five memories that differ in what can be filtered by."""
    api.batch([
        {"content": "plain"},
        {"content": "hoi4", "tags": ["hoi4", "b"], "layer": "l5_knowledge"},
        {"content": "hoi", "tags": ["hoi"], "source_authority": "policy"},
        {"content": "said", "kind": "message", "session_id": "s-1", "layer": "l1_raw"},
        {"content": "said too", "kind": "message", "session_id": "s-2", "layer": "l1_raw", "tags": ["b"]},
    ])  # fmt: skip
    return api


@pytest.mark.parametrize(("params", "expected"), [
    ({}, ["said too", "said", "hoi", "hoi4", "plain"]),
    ({"order": "oldest"}, ["plain", "hoi4", "hoi", "said", "said too"]),
    ({"layer": "l5_knowledge"}, ["hoi4"]),
    ({"tag": "hoi"}, ["hoi"]),
    ({"tag": "HOI"}, []),
    ({"tag": "b"}, ["said too", "hoi4"]),
    ({"authority": "policy"}, ["hoi"]),
    ({"kind": "message"}, ["said too", "said"]),
    ({"kind": "memory", "tag": "b"}, ["hoi4"]),
    ({"session_id": "s-1"}, ["said"]),
    ({"status": "active", "layer": "l2_fact"}, ["hoi", "plain"]),
    ({"status": "archived"}, []),
    ({"status": "forgotten"}, []),
    ({"updated_since": 0}, ["said too", "said", "hoi", "hoi4", "plain"]),
    ({"updated_since": 253402300799999}, []),
], ids=str)  # fmt: skip
def test_each_filter_leaves_exactly_what_it_names(filled: Api, params: JSON, expected: list[str]) -> None:
    answer = filled.list(**params)
    jsonschema.validate(answer, output_schema(BY_NAME["brain_memory_list"]))
    assert contents(answer) == expected
    assert (answer["total"], answer["next_cursor"]) == (len(expected), None)
    assert walk(filled, **params, limit=1) == expected


def test_a_memory_that_changes_counts_as_updated(filled: Api) -> None:
    newest = filled.list(limit=1)["memories"][0]["gmt_created"]
    filled.add("hoi4", layer="l5_knowledge", tags=["new"])
    assert "hoi4" in contents(filled.list(updated_since=newest))
    assert contents(filled.list(tag="new")) == ["hoi4"]


def test_a_page_is_full_until_the_last_and_total_counts_all(api: Api) -> None:
    api.batch([{"content": str(number)} for number in range(7)])
    first = api.list(limit=3)
    second = api.list(limit=3, cursor=first["next_cursor"])
    third = api.list(limit=3, cursor=second["next_cursor"])
    assert [contents(page) for page in (first, second, third)] == [["6", "5", "4"], ["3", "2", "1"], ["0"]]
    assert [page["total"] for page in (first, second, third)] == [7, 7, 7]
    assert third["next_cursor"] is None
    assert contents(api.list()) == ["6", "5", "4", "3", "2", "1", "0"]
    # The size of a page is no filter: it may change on the way.
    assert contents(api.list(limit=100, cursor=first["next_cursor"])) == ["3", "2", "1", "0"]


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_a_walk_neither_skips_nor_repeats_while_others_write(api: Api, order: str) -> None:
    before = [f"before-{number}" for number in range(40)]
    api.batch([{"content": text} for text in before])

    def write(writer: int) -> None:
        for number in range(15):
            api.of(user=f"user-{writer}").add(f"meanwhile-{writer}-{number}")
            api.add(before[number], tags=[f"{writer}-{number}"])  # a new version of an old one

    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(write, writer) for writer in range(3)]
        walks = [walk(api, order=order, limit=4) for _ in range(3)]
        for future in writing:
            future.result()
    for seen in walks:
        assert len(seen) == len(set(seen))
        assert [text for text in seen if text.startswith("before")] == (
            before if order == "oldest" else before[::-1]
        )


def test_a_cursor_belongs_to_its_filters_its_user_and_its_agent(filled: Api) -> None:
    cursor = filled.list(limit=1)["next_cursor"]
    for params in ({"layer": "l2_fact"}, {"order": "oldest"}, {"status": "archived"}, {"tag": "b"}):
        answer = filled.get(LIST, params={"cursor": cursor, **params})
        problem = refused(answer, 422, "invalid_argument", "cursor")
        assert "start again without it" in problem["detail"]
    for other in (filled.of(user="alex"), filled.of(agent="another")):
        refused(other.get(LIST, params={"cursor": cursor}), 422, "invalid_argument", "cursor")


def forged(cursor: str, seq: object, at: object = None) -> str:
    """A cursor that says another place; what is opaque can be read all the same."""
    _, _, filters = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    return base64.urlsafe_b64encode(json.dumps([seq, at, filters]).encode()).decode().rstrip("=")


def test_a_cursor_that_is_not_ours_is_refused(filled: Api) -> None:
    cursor = filled.list(limit=1)["next_cursor"]
    places = (2**63, 2**64 - 1, 10**30, -1, None, "x", 1.5, True, [1])
    garbage = [
        "",
        "garbage",
        "🦊",
        cursor[:-4],
        cursor + "x" * 8,
        "W10",
        "bnVsbA",
        "e30",
        "a" * 512,
        "%00",
        "MQ",
    ]
    moments = (forged(cursor, 1, at) for at in places if at is not None)
    for bad in (*garbage, *(forged(cursor, place) for place in places), *moments):
        refused(filled.get(LIST, params={"cursor": bad}), 422, "invalid_argument", "cursor")


def test_stats_count_by_each_axis(shared_server: Server, filled: Api) -> None:
    filled.of(user="alex").add("alex's own")
    shared_server.settle()
    answer = filled.stats()
    jsonschema.validate(answer, output_schema(BY_NAME["brain_stats"]))
    assert answer["total"] == 6
    assert answer["layers"] == {"l1_raw": 2, "l2_fact": 3, "l5_knowledge": 1}
    assert answer["statuses"] == {"active": 6}
    assert answer["authorities"] == {"informal": 5, "policy": 1}
    assert answer["kinds"] == {"memory": 4, "message": 2}
    assert (answer["model"], answer["dimensions"]) == ("hash", 64)
    assert (answer["index_lag"], answer["last_rebuild"]) == (0, None)
    assert filled.of(user="alex").stats()["total"] == 1
    empty = filled.of(agent="nobody").stats()
    assert (empty["total"], empty["layers"]) == (0, {})
