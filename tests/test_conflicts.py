"""Open conflicts over HTTP: listed with both sides and the rule's proposal, and resolved by a decision."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.serving import Api, Server, fresh, refused, succeeded
from tests.test_amendments import contents, delete, patch, restore, supersede
from tests.test_facts import add, fact, id_of, state, status

pytest_plugins = ["tests.serving_fixtures"]
JSON = dict[str, Any]
MISSING = "018f0000-0000-7000-8000-000000000000"


def listed(api: Api, **params: Any) -> JSON:
    return succeeded(api.get("/brain/conflicts", params=params))


def resolve(api: Api, conflict_id: str, adopted: str | None, **fields: Any) -> Any:
    return api.post(f"/brain/conflicts/{conflict_id}/resolve", {"adopted": adopted} | fields)


def pair(api: Api, **lower: Any) -> tuple[str, str, str]:
    """A policy memory, one that has lost to it, and their conflict."""
    high = add(api, "Porto", source_authority="policy")
    low = add(api, "Lisbon", **lower)
    return id_of(high), id_of(low), low["conflicts"][0]


def test_a_conflict_shows_both_sides_and_what_the_rule_proposes(api: Api) -> None:
    high, low, conflict_id = pair(api)
    answer = listed(api)
    assert (answer["total"], answer["next_cursor"]) == (1, None)
    [found] = answer["conflicts"]
    assert (found["conflict_id"], found["rule"]) == (conflict_id, "authority")
    assert {side["memory_id"]: side["status"] for side in found["sides"]} == {
        high: "active",
        low: "conflicted",
    }
    assert found["proposal"] == {"adopt": high, "because": "policy stands above informal"}
    got = api.memory(low, include="conflicts")["conflicts"]
    assert [(one["conflict_id"], one["against"], one["adopt"]) for one in got] == [(conflict_id, high, high)]
    assert api.memory(high, include="conflicts")["conflicts"][0]["against"] == low


def test_of_equal_authority_the_later_one_is_proposed_and_both_are_doubted(api: Api) -> None:
    add(api, "Porto", frame="work", source_authority="team")
    later = id_of(add(api, "Lisbon", frame="home", source_authority="team"))
    [found] = listed(api)["conflicts"]
    assert found["proposal"] == {"adopt": later, "because": "of equal authority, and later"}
    assert [side["confidence"] for side in found["sides"]] == [0.5, 0.5]
    assert [side["status"] for side in found["sides"]] == ["active", "active"]


def test_a_resolved_conflict_has_a_current_side_and_a_history(api: Api) -> None:
    high, low, conflict_id = pair(api)
    answer = succeeded(resolve(api, conflict_id, low, reason="Ana said so."))
    assert (answer["conflict_id"], answer["adopted"]) == (conflict_id, low)
    assert {side["memory_id"]: side["status"] for side in answer["sides"]} == {
        high: "superseded",
        low: "active",
    }
    assert api.memory(low)["supersedes"] == [high] and api.memory(high)["superseded_by"] == [low]
    assert api.memory(low, include="details")["details"]["conflicts"] == []
    assert api.memory(low)["speculate"] is None and api.memory(low)["confidence"] == 0.7
    assert contents(api, "Where does Ana live?") == ["Ana lives in Lisbon."]
    assert listed(api)["total"] == 0
    refused(resolve(api, conflict_id, high), 409, "conflict_state")


def test_with_nobody_adopted_both_stand(api: Api) -> None:
    high, low, conflict_id = pair(api)
    succeeded(resolve(api, conflict_id, None))
    assert (api.memory(high)["status"], api.memory(low)["status"]) == ("active", "active")
    assert listed(api)["total"] == 0
    assert api.memory(low)["supersedes"] is None


@pytest.mark.parametrize("adopted", [MISSING, "x"])
def test_only_a_side_can_be_adopted(api: Api, adopted: str) -> None:
    _, _, conflict_id = pair(api)
    refused(resolve(api, conflict_id, adopted), 422, "invalid_argument", "adopted")
    refused(api.post(f"/brain/conflicts/{conflict_id}/resolve", {}), 422, "invalid_argument", "adopted")
    assert listed(api)["total"] == 1


def test_who_has_lost_twice_is_adopted_only_when_the_other_conflict_is_resolved(api: Api) -> None:
    fields = {"source_authority": "policy"}
    home = id_of(add(api, "Porto", **fields))
    api.add("Ana is from Faro.", facts=[fact("Faro", predicate="was born in")], **fields)
    low = api.add("All is Lisbon.", facts=[fact("Lisbon"), fact("Lisbon", predicate="was born in")])
    first, second = low["conflicts"]
    refused(resolve(api, first, id_of(low)), 409, "conflict_state")
    assert (api.memory(home)["status"], status(api, low)) == ("active", "conflicted")
    with_home = listed(api)["conflicts"]
    keep = {one["conflict_id"]: one["sides"] for one in with_home}
    born = next(side["memory_id"] for side in keep[second] if side["memory_id"] != id_of(low))
    refused(resolve(api, second, None), 409, "conflict_state")
    succeeded(resolve(api, second, born))
    assert status(api, low) == "superseded"
    assert listed(api)["total"] == 0


def test_a_repeat_with_the_same_key_resolves_once(api: Api) -> None:
    high, _, conflict_id = pair(api)
    first = succeeded(resolve(api, conflict_id, high, idempotency_key="k"))
    again = succeeded(resolve(api, conflict_id, high, idempotency_key="k"))
    assert again["replayed"] is True
    assert [side["memory_id"] for side in again["sides"]] == [side["memory_id"] for side in first["sides"]]


def test_a_conflict_with_a_side_that_is_hidden_is_not_listed_and_comes_back_with_it(api: Api) -> None:
    high, low, conflict_id = pair(api)
    succeeded(delete(api, high))
    assert listed(api)["conflicts"] == [] and listed(api)["total"] == 0
    got = api.memory(low, include="details")
    assert (got["details"]["conflicts"], got["speculate"], got["status"]) == ([], None, "conflicted")
    refused(resolve(api, conflict_id, low), 409, "conflict_state")
    succeeded(restore(api, low))
    assert api.memory(low)["status"] == "active", "there is nobody left to have lost to"
    succeeded(restore(api, high))
    assert (api.memory(high)["status"], api.memory(low)["status"]) == ("active", "conflicted")
    assert [one["conflict_id"] for one in listed(api)["conflicts"]] == [conflict_id]


def test_a_purged_side_takes_its_conflicts_along(api: Api) -> None:
    high, low, conflict_id = pair(api)
    succeeded(api.post("/brain/purge", {"memory_id": high}))
    assert listed(api)["total"] == 0
    refused(resolve(api, conflict_id, low), 404, "conflict_not_found")
    assert api.memory(low, include="details")["details"]["conflicts"] == []


def test_conflicts_come_newest_first_page_by_page(api: Api) -> None:
    add(api, "Porto", source_authority="policy")
    opened = [add(api, f"Town {n}", frame=f"f{n}")["conflicts"][-1] for n in range(5)]
    total = listed(api)["total"]
    assert total >= 5
    seen: list[str] = []
    cursor: JSON = {}
    while True:
        page = listed(api, limit=2, **cursor)
        assert page["total"] == total
        seen += [one["conflict_id"] for one in page["conflicts"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert len(seen) == len(set(seen)) == total and set(opened) <= set(seen)
    refused(api.get("/brain/conflicts", params={"cursor": "x"}), 422, "invalid_argument", "cursor")


def test_nobody_sees_or_resolves_the_conflicts_of_others(api: Api) -> None:
    mine = api.of(user="mine")
    high, _, conflict_id = pair(mine)
    for stranger in (api.of(user="eve"), api.of(fresh("stranger")), api.of(fresh("stranger"), "mine")):
        assert listed(stranger)["total"] == 0
        theirs = refused(resolve(stranger, conflict_id, high), 404, "conflict_not_found")
        none = refused(resolve(stranger, MISSING, high), 404, "conflict_not_found")
        assert theirs["detail"].replace(conflict_id, MISSING) == none["detail"]
    assert listed(api)["total"] == 1, "who names no user reads the whole scope"
    assert add(api.of(user="eve"), "Faro")["conflicts"] == [], "facts are one user's"


def test_in_a_search_the_higher_authority_stands_first_and_names_the_conflict(api: Api) -> None:
    high, low, conflict_id = pair(api)
    found = api.search("In which town Ana lives", statuses=["active", "conflicted"])["results"]
    assert [hit["memory_id"] for hit in found][:2] == [high, low]
    assert [hit["conflicts"] for hit in found[:2]] == [[conflict_id]] * 2


def test_concurrent_supersedes_of_one_head_have_one_winner(shared_server: Server, api: Api) -> None:
    old = id_of(api.add("Contended.", source_authority="team"))
    authorities = ["team", "informal", "policy", "official"] * 3

    def write(n: int) -> tuple[int, JSON]:
        answer = supersede(api, f"Successor {n}.", old, source_authority=authorities[n])
        return answer.status_code, answer.json()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(write, range(12)))
    won = [body for code, body in answers if code == 201 and body["superseded"] == [old]]
    lost = [body for code, body in answers if code == 201 and body["superseded"] == []]
    refusals = [body["code"] for code, body in answers if code == 409]
    assert len(won) == 1 and len(won) + len(lost) + len(refusals) == 12
    assert all(body["conflicts"] and body["memory"]["status"] == "conflicted" for body in lost)
    assert set(refusals) <= {"conflict_state"}
    assert api.memory(old)["superseded_by"] == [won[0]["memory"]["memory_id"]]


def test_concurrent_answers_to_one_question_leave_one(api: Api) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: api.add(**state(f"Town {n}")), range(16)))
    assert all(answer["conflicts"] == [] for answer in answers)
    statuses = [status(api, answer) for answer in answers]
    assert sorted(statuses) == ["active"] + ["superseded"] * 15


def test_changing_the_frame_of_a_memory_in_a_chain_is_refused(api: Api) -> None:
    old = id_of(api.add("One."))
    new = supersede(api, "Two.", old).json()["memory"]["memory_id"]
    refused(patch(api, new, {"frame": "f"}), 409, "conflict_state")
