"""Links between memories, and the walk along them."""

from typing import Any

import httpx
import jsonschema
import pytest

from models.links import LINK_TYPES
from service.operations import BY_NAME
from service.schemas import output_schema
from tests.serving import JSON, Api, Server, fresh, refused, succeeded

pytest_plugins = ["tests.serving_fixtures"]

MISSING = "00000000-0000-7000-8000-000000000000"


def add(api: Api, content: str, **fields: object) -> str:
    return str(api.add(content, **fields)["memory"]["memory_id"])


def send(api: Api, method: str, start: str, type: str, end: str, **options: Any) -> httpx.Response:
    return api.request(method, f"/brain/links/{start}/{type}/{end}", **options)


def link(api: Api, start: str, type: str, end: str, **options: Any) -> JSON:
    answer = succeeded(send(api, "PUT", start, type, end, **options))
    jsonschema.validate(answer, output_schema(BY_NAME["brain_memory_link"]))
    return answer


def unlink(api: Api, start: str, type: str, end: str, **options: Any) -> JSON:
    answer = succeeded(send(api, "DELETE", start, type, end, **options))
    jsonschema.validate(answer, output_schema(BY_NAME["brain_memory_unlink"]))
    return answer


def related(api: Api, memory_id: str, **params: object) -> JSON:
    answer = succeeded(api.get(f"/brain/memory/{memory_id}/related", params=params))
    jsonschema.validate(answer, output_schema(BY_NAME["brain_memory_related"]))
    return answer


def reached(answer: JSON) -> dict[str, int]:
    return {node["content"]: node["hops"] for node in answer["nodes"]}


def version(api: Api, memory_id: str) -> int:
    return int(api.memory(memory_id, include="details")["details"]["version"])


def events(api: Api, memory_id: str) -> list[str]:
    answer = succeeded(api.get(f"/brain/memory/{memory_id}/history"))
    return [event["action"] for event in answer["events"]]


@pytest.mark.parametrize("type", LINK_TYPES)
def test_a_link_is_set_once_and_taken_away_once(api: Api, type: str) -> None:
    one, two = add(api, "one"), add(api, "two")
    edge = {"from": one, "to": two, "type": type, "weight": 1.0}
    first, again = link(api, one, type, two), link(api, one, type, two)
    assert (first["created"], again["created"]) == (True, False)
    assert edge.items() <= first.items()
    for start, other in ((one, "two"), (two, "one")):
        answer = related(api, start)
        assert (reached(answer), answer["edges"]) == ({other: 1}, [edge])
    before = events(api, one) + events(api, two)
    link(api, one, type, two)
    assert events(api, one) + events(api, two) == before  # nothing new, so no event
    assert unlink(api, one, type, two)["removed"] is True
    assert unlink(api, one, type, two)["removed"] is False
    assert related(api, one)["nodes"] == []
    assert link(api, one, type, two)["created"] is True


def test_a_link_makes_no_version_but_evidence_enters_the_state_of_what_rests_on_it(api: Api) -> None:
    one, two = add(api, "one"), add(api, "two")
    for type in LINK_TYPES:
        link(api, one, type, two)
    assert (version(api, one), version(api, two)) == (1, 2)
    assert api.memory(two, include="details")["details"]["evidence_ids"] == [one]
    unlink(api, one, "evidence_for", two)
    assert (version(api, one), version(api, two)) == (1, 3)
    assert api.memory(two, include="details")["details"]["evidence_ids"] == []


def test_links_hold_after_the_partition_was_loaded_again(shared_server: Server, api: Api) -> None:
    one, two, three = (add(api, name) for name in ("one", "two", "three"))
    link(api, one, "explains", two)
    link(api, one, "related", three)
    unlink(api, one, "related", three)
    before = related(api, one)
    shared_server.evict(api)
    after = related(api, one)
    assert (after["nodes"], after["edges"]) == (before["nodes"], before["edges"])
    assert reached(after) == {"two": 1}


def test_a_link_with_an_idempotency_key_is_written_once(api: Api) -> None:
    one, two, three = (add(api, name) for name in ("one", "two", "three"))
    key = {"headers": {"Idempotency-Key": "k"}}
    assert link(api, one, "related", two, **key)["created"] is True
    unlink(api, one, "related", two)
    again = link(api, one, "related", two, **key)
    assert (again["created"], again["replayed"]) == (True, True)
    assert related(api, one)["nodes"] == []
    refused(send(api, "PUT", one, "related", three, **key), 409, "idempotency_key_reused")
    assert unlink(api, one, "related", two, **key)["removed"] is False  # of another operation
    assert unlink(api, one, "related", two, **key)["replayed"] is True


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_what_cannot_be_linked_is_refused_and_named(api: Api, method: str) -> None:
    mine, other = api.of(user="mine"), api.of(user="other")
    one, two, theirs = add(mine, "one"), add(mine, "two"), add(other, "theirs")
    for start, end in ((one, MISSING), (MISSING, two), (one, theirs), (theirs, one), (one, "no-id")):
        refused(send(mine, method, start, "related", end), 404, "memory_not_found")
    refused(send(mine, method, one, "related", one), 422, "invalid_argument", "to_id")
    refused(send(mine, method, one, "supersedes", two), 422, "invalid_argument", "type")
    refused(send(mine, method, one, "loves", two), 422, "invalid_argument", "type")
    refused(send(mine, method, one, "related", "x" * 65), 422, "invalid_argument", "to_id")
    succeeded(mine.request("DELETE", f"/brain/memory/{two}"))
    refused(send(mine, method, one, "related", two), 410, "memory_forgotten")
    refused(send(mine, "POST", one, "related", two), 405, "method_not_allowed")


@pytest.mark.parametrize("odd", ["%00", "🦊", "%2E%2E", "%F0%9F", "a%2Fb", "{from_id}", "null", "x" * 3000])
def test_no_id_makes_a_server_error(api: Api, odd: str) -> None:
    one = add(api, "one")
    for method in ("PUT", "DELETE"):
        for start, type, end in ((odd, "related", one), (one, odd, one), (one, "related", odd)):
            assert send(api, method, start, type, end).status_code in (404, 422)
    for view in ("history", "related"):
        assert api.get(f"/brain/memory/{odd}/{view}").status_code in (404, 422)


def test_what_a_memory_was_derived_from_when_it_was_written_stays(api: Api) -> None:
    raw = add(api, "said", kind="message", session_id="s")
    fact = add(api, "a fact", source_raw_memory_id=raw)
    assert link(api, fact, "derived_from", raw)["created"] is False
    refused(send(api, "DELETE", fact, "derived_from", raw), 409, "conflict_state")
    assert api.memory(fact)["source_raw_memory_id"] == raw


def test_no_memory_rests_on_more_than_64_others(api: Api) -> None:
    ids = [one["memory_ids"][0] for one in api.batch([{"content": str(n)} for n in range(65)])["results"]]
    fact = add(api, "a fact", evidence_ids=ids[:64])
    refused(send(api, "PUT", ids[64], "evidence_for", fact), 422, "invalid_argument", "to_id")


def test_a_walk_goes_as_many_hops_as_asked_in_both_directions_and_through_circles(api: Api) -> None:
    a, b, c, d, e = (add(api, name) for name in "abcde")
    for start, end in ((a, b), (c, b), (c, d), (d, e), (d, a)):
        link(api, start, "related", end)
    assert reached(related(api, a)) == {"b": 1, "d": 1}
    two = related(api, a, hops=2)
    assert reached(two) == {"b": 1, "d": 1, "c": 2, "e": 2}
    assert {(edge["from"], edge["to"]) for edge in two["edges"]} == {(a, b), (d, a), (c, b), (c, d), (d, e)}
    assert len(two["edges"]) == 5
    for hops in (0, 4):
        refused(api.get(f"/brain/memory/{a}/related", params={"hops": hops}), 422, "invalid_argument", "hops")


def test_only_links_of_the_types_that_are_named_are_followed(api: Api) -> None:
    a, b, c, d = (add(api, name) for name in "abcd")
    link(api, a, "explains", b)
    link(api, a, "updates", c)
    link(api, c, "explains", d)
    assert reached(related(api, a, types="explains", hops=3)) == {"b": 1}
    assert reached(related(api, a, types="explains,updates", hops=3)) == {"b": 1, "c": 1, "d": 2}
    refused(
        api.get(f"/brain/memory/{a}/related", params={"types": "likes"}), 422, "invalid_argument", "types[0]"
    )


def test_a_session_is_walked_through_and_never_shown(api: Api) -> None:
    turns = [{"role": "user", "content": f"turn {n}"} for n in range(4)]
    ids = api.add(messages=turns, session_id="s")["memory_ids"]
    beside = related(api, ids[0], types="next", hops=2)
    assert reached(beside) == {"turn 1": 1, "turn 2": 2}
    session = related(api, ids[0], types="in_session", hops=3)
    assert reached(session) == {"turn 1": 1, "turn 2": 1, "turn 3": 1}
    assert all(edge["from"] == ids[0] and edge["type"] == "in_session" for edge in session["edges"])
    both = related(api, ids[0], limit=1)
    assert (reached(both), both["truncated"]) == ({"turn 1": 1}, True)  # its neighbour comes before the rest


def test_superseded_memories_are_reached_and_forgotten_ones_are_not(api: Api) -> None:
    old, gone = add(api, "old"), add(api, "canary")
    body = {"content": "new", "supersedes": [old]}
    new = succeeded(api.post("/brain/memory/supersede", body))["memory"]["memory_id"]
    beyond = add(api, "beyond")
    link(api, new, "related", gone)
    link(api, gone, "related", beyond)
    succeeded(api.request("DELETE", f"/brain/memory/{gone}"))
    answer = related(api, new, hops=3)
    assert reached(answer) == {"old": 1}
    assert answer["nodes"][0]["status"] == "superseded"
    assert gone not in str(answer)
    refused(api.get(f"/brain/memory/{gone}/related"), 410, "memory_forgotten")
    succeeded(api.post(f"/brain/memory/{gone}/restore", {}))
    assert reached(related(api, new, hops=2)) == {"old": 1, "canary": 1, "beyond": 2}


def test_a_walk_stays_with_the_user_who_is_named_and_crosses_users_when_none_is(
    shared_server: Server, api: Api
) -> None:
    mine, yours = api.of(user="mine"), api.of(user="yours")
    a, a2 = add(mine, "mine"), add(mine, "mine too")
    b, b2 = add(yours, "yours"), add(yours, "yours too")
    link(mine, a, "related", a2)
    link(yours, b, "related", b2)
    related(mine, a), related(yours, b)  # both are in memory now, and have to learn of it
    assert link(api, a, "related", b)["created"] is True
    for _ in ("resident", "loaded again"):
        assert reached(related(mine, a, hops=3)) == {"mine too": 1}
        assert b not in str(related(mine, a, hops=3))
        assert reached(related(yours, b, hops=3)) == {"yours too": 1}
        assert reached(related(api, a2, hops=3)) == {"mine": 1, "yours": 2, "yours too": 3}
        shared_server.evict(api)
    refused(mine.get(f"/brain/memory/{b}/related"), 404, "memory_not_found")
    refused(api.of(agent=fresh()).get(f"/brain/memory/{a}/related"), 404, "memory_not_found")
    assert reached(related(api, a)) == {"mine too": 1, "yours": 1}
    assert reached(related(api, b)) == {"yours too": 1, "mine": 1}
    assert unlink(api, a, "related", b)["removed"] is True
    assert reached(related(api, b, hops=3)) == {"yours too": 1}
    assert reached(related(api, a, hops=3)) == {"mine too": 1}


def test_a_limit_cuts_the_farthest_and_says_so(api: Api) -> None:
    a, b, c = (add(api, name) for name in "abc")
    link(api, a, "related", b)
    link(api, b, "related", c)
    cut = related(api, a, hops=2, limit=1)
    assert (reached(cut), cut["truncated"]) == ({"b": 1}, True)
    assert related(api, a, hops=2, limit=2)["truncated"] is False
    for limit in (0, 2001):
        params = {"limit": limit}
        refused(api.get(f"/brain/memory/{a}/related", params=params), 422, "invalid_argument", "limit")


def test_a_walk_visits_2000_at_the_most(api: Api) -> None:
    items = [{"kind": "message", "session_id": "s", "content": str(n)} for n in range(1000)]
    first = api.batch(items)["results"][0]["memory_ids"][0]
    api.batch(items)
    api.batch(items[:100])
    answer = related(api, first, types="in_session", limit=2000)
    assert answer["truncated"] is True
    assert len(answer["nodes"]) == 1998  # with the one asked for and the session
