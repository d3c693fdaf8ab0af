"""Facts over HTTP: what memories assert corroborates or contradicts what others assert, one rule for all."""

import itertools
from typing import Any

import pytest

from tests.serving import Api, fresh, refused, succeeded
from tests.test_amendments import contents, delete, patch, restore, supersede

pytest_plugins = ["tests.serving_fixtures"]
JSON = dict[str, Any]
SOURCES = {"Ann": "team", "Bob": "informal"}


def fact(object: str, subject: str = "Ana", predicate: str = "lives in", single: bool = True) -> JSON:
    return {"subject": subject, "predicate": predicate, "object": object, "single_valued": single}


def state(object: str, *more: JSON, **fields: Any) -> JSON:
    """What to add: a memory that asserts one fact, and perhaps more."""
    return {"content": f"Ana lives in {object}.", "facts": [fact(object), *more]} | fields


def add(api: Api, object: str, *more: JSON, **fields: Any) -> JSON:
    answer: JSON = api.add(**state(object, *more, **fields))
    return answer


def id_of(answer: JSON) -> str:
    memory_id: str = answer["memory"]["memory_id"]
    return memory_id


def status(api: Api, answer: JSON) -> str:
    found: str = api.memory(id_of(answer))["status"]
    return found


def test_a_later_answer_replaces_the_earlier_one(api: Api) -> None:
    old = add(api, "Porto")
    new = add(api, "Lisbon")
    assert new["superseded"] == [id_of(old)] == new["memory"]["supersedes"] and new["conflicts"] == []
    assert contents(api, "Where does Ana live?") == ["Ana lives in Lisbon."]


@pytest.mark.parametrize(("subject", "predicate"), [("ANA", "lives in"), ("ana\u200b", " Lives  IN ")])
def test_a_question_is_the_same_however_it_is_spelt(api: Api, subject: str, predicate: str) -> None:
    old = add(api, "Porto")
    new = api.add("Elsewhere.", facts=[fact("Lisbon", subject, predicate)])
    assert new["superseded"] == [id_of(old)]


def test_an_equal_answer_of_another_source_corroborates(api: Api) -> None:
    first = add(api, "Porto", actor="Ann")
    again = api.add("Porto is where Ana lives.", facts=[fact("PORTO")], actor="Bob")
    assert again["superseded"] == again["conflicts"] == []
    for answer in (first, again):
        got = api.memory(id_of(answer), include="details")
        assert got["status"] == "active" and got["confidence"] == 0.91
    repeat = api.add("Ana? She lives in Porto.", facts=[fact("Porto")], actor="bob ")
    assert api.memory(id_of(first))["confidence"] == 0.91, "a source says it once"
    assert api.memory(id_of(repeat))["confidence"] == 0.91


def test_what_may_have_several_answers_has_several(api: Api) -> None:
    for object in ("tea", "coffee"):
        answer = api.add(f"Ana likes {object}.", facts=[fact(object, predicate="likes", single=False)])
        assert answer["superseded"] == answer["conflicts"] == []
    only = api.add("Ana likes water only.", facts=[fact("water", predicate="likes")])
    assert len(only["superseded"]) == 2, "one side that says so is enough"


def test_disjoint_times_of_validity_are_two_facts(api: Api) -> None:
    old = add(api, "Porto", valid_until=1000)
    new = add(api, "Lisbon", valid_from=1000)
    assert new["superseded"] == new["conflicts"] == [] and status(api, old) == "active"
    overlapping = add(api, "Faro", valid_from=500, valid_until=1500)
    assert len(overlapping["superseded"]) == 2


def test_a_memory_that_is_moved_in_time_meets_those_that_are_there(api: Api) -> None:
    old, new = add(api, "Porto", valid_until=1000), add(api, "Lisbon", valid_from=1000)
    succeeded(patch(api, id_of(old), {"valid_until": 2000}))
    got = api.memory(id_of(old))
    assert (got["status"], got["superseded_by"]) == ("superseded", [id_of(new)]), "the later one stands"


def test_an_older_answer_is_filed_as_history_of_the_newer(api: Api) -> None:
    new = add(api, "Lisbon", memory_at=2000)
    old = add(api, "Porto", memory_at=1000)
    assert (old["memory"]["status"], old["memory"]["superseded_by"]) == ("superseded", [id_of(new)])
    assert api.memory(id_of(new))["supersedes"] == [id_of(old)]
    chain = api.memory(id_of(old), include="chain")["chain"]
    assert [one["memory_id"] for one in chain] == [id_of(new), id_of(old)]
    older = add(api, "Faro", memory_at=500)
    assert older["memory"]["status"] == "superseded"


def test_an_older_answer_has_one_successor_though_several_agree_on_the_newer(api: Api) -> None:
    new = add(api, "Lisbon", memory_at=2000)
    api.add("Lisbon is where Ana lives.", facts=[fact("Lisbon")], memory_at=3000)
    old = add(api, "Porto", memory_at=1000)
    assert len(old["memory"]["superseded_by"]) == 1
    assert status(api, new) == "active"


def test_a_lower_authority_is_kept_in_conflict_and_the_higher_one_stands(api: Api) -> None:
    policy = add(api, "Porto", source_authority="policy")
    low = add(api, "Lisbon")
    assert (low["memory"]["status"], low["superseded"]) == ("conflicted", [])
    [conflict] = low["conflicts"]
    assert api.memory(id_of(policy), include="details")["details"]["conflicts"] == [conflict]
    assert low["memory"]["speculate"] == "probably wrong: a higher authority says otherwise"
    assert api.memory(id_of(policy))["confidence"] == 0.95, "a lower one casts no doubt"
    assert contents(api, "Where does Ana live?") == ["Ana lives in Porto."]
    high = add(api, "Faro", source_authority="policy")
    assert id_of(policy) in high["superseded"]


def test_whoever_wants_no_conflict_writes_nothing(api: Api) -> None:
    add(api, "Porto", source_authority="policy")
    refused(api.try_add(**state("Lisbon", on_conflict="error")), 409, "lower_authority")
    assert api.list(status="conflicted")["total"] == 0
    assert add(api, "Faro", source_authority="policy", on_conflict="error")["superseded"]


@pytest.mark.parametrize(("one", "other", "rule"), [
    ({"frame": "work"}, {"frame": "home"}, "frame"), ({"layer": "l1_raw"}, {}, "raw"),
    ({}, {"layer": "l1_raw"}, "raw"),
])  # fmt: skip
def test_across_frames_and_of_what_was_said_nothing_is_replaced(
    api: Api, one: JSON, other: JSON, rule: str
) -> None:
    first, second = add(api, "Porto", **one), add(api, "Lisbon", **other)
    assert second["superseded"] == [] and len(second["conflicts"]) == 1
    assert (status(api, first), status(api, second)) == ("active", "active")
    [found] = succeeded(api.get("/brain/conflicts"))["conflicts"]
    assert (found["rule"], found["reason"]) == (rule, None)


def test_a_memory_that_asserts_more_is_not_replaced_by_one_that_asserts_less(api: Api) -> None:
    first = add(api, "Porto", fact("blue", predicate="likes"))
    second = add(api, "Lisbon")
    assert second["superseded"] == [] and len(second["conflicts"]) == 1
    assert status(api, first) == "active"
    whole = add(api, "Faro", fact("red", predicate="likes"))
    assert set(whole["superseded"]) == {id_of(first), id_of(second)}


def test_what_comes_back_is_what_the_others_leave_it(api: Api) -> None:
    old = add(api, "Porto")
    succeeded(delete(api, id_of(old), mode="archive"))
    new = add(api, "Lisbon")
    assert new["superseded"] == []
    succeeded(restore(api, id_of(old)))
    got = api.memory(id_of(old))
    assert (got["status"], got["superseded_by"]) == ("superseded", [id_of(new)]), "the later one stands"


def test_what_is_revived_meets_those_that_came_meanwhile(api: Api) -> None:
    old = add(api, "Porto")
    head = id_of(supersede(api, "Nobody knows where Ana lives.", id_of(old)).json())
    policy = add(api, "Lisbon", source_authority="policy")
    assert policy["superseded"] == []
    succeeded(delete(api, head, revive=True))
    assert status(api, old) == "superseded" and status(api, policy) == "active"


def test_an_equal_text_that_asserts_something_new_is_no_duplicate(api: Api) -> None:
    first = api.add("Ana moved.")
    second = api.add("Ana moved.", facts=[fact("Porto")])
    assert second["deduplicated"] is False and id_of(second) != id_of(first)
    third = api.add("Ana  moved.", facts=[fact("porto")])
    assert third["deduplicated"] is False or id_of(third) == id_of(second)


def test_facts_are_shown_and_are_links_of_the_graph(api: Api) -> None:
    added = add(api, "Porto", fact("blue", predicate="likes"))
    shown = [fact("Porto"), fact("blue", predicate="likes")]
    assert api.memory(id_of(added), include="details")["details"]["facts"] == shown
    related = succeeded(api.get(f"/brain/memory/{id_of(added)}/related"))
    assert related["facts"] == [{"memory_id": id_of(added)} | one for one in shown]
    other = api.add("Bob lives there, too.", facts=[fact("Porto", subject="Bob")])
    nodes = succeeded(api.get(f"/brain/memory/{id_of(added)}/related"))["nodes"]
    assert [node["memory_id"] for node in nodes] == [id_of(other)], "by the place that both assert"


@pytest.mark.parametrize("wrong", [
    [{"subject": "Ana"}], [fact("Porto") | {"object": " "}], [fact("Porto") | {"value": 1}],
    [fact("x" * 257)], [fact(str(n)) for n in range(33)], "Ana",
])  # fmt: skip
def test_facts_that_are_none_are_refused_by_name(api: Api, wrong: Any) -> None:
    problem = refused(api.try_add("Something.", facts=wrong), 422, "invalid_argument")
    assert problem["errors"][0]["field"].startswith("facts")
    refused(api.try_add("Said.", kind="message", facts=[fact("Porto")]), 422, "invalid_argument")


def test_new_content_asserts_what_it_is_given_and_nothing_of_the_old(api: Api) -> None:
    old = add(api, "Porto")
    new = succeeded(patch(api, id_of(old), {"content": "Ana moved.", "facts": [fact("Lisbon")]}))
    assert new["conflicts"] == [] and new["superseded"] == [id_of(old)]
    plain = succeeded(patch(api, id_of(new), {"content": "Ana is on the road."}))
    assert api.memory(id_of(plain), include="details")["details"]["facts"] == []
    refused(patch(api, id_of(plain), {"facts": []}), 422, "invalid_argument")


WRITES = [
    {"object": "Porto", "memory_at": 1000, "source_authority": "policy"},
    {"object": "Lisbon", "memory_at": 2000, "source_authority": "informal"},
    {"object": "Faro", "memory_at": 3000, "source_authority": "team"},
    {"object": "Braga", "memory_at": 4000, "source_authority": "informal"},
]
MORE = [
    {"object": "Porto", "memory_at": 1000, "source_authority": "team"},
    {"object": "Lisbon", "memory_at": 2000, "source_authority": "team"},
    {"object": "Faro", "memory_at": 3000, "source_authority": "policy"},
    {"object": "Braga", "memory_at": 4000, "source_authority": "team"},
]


@pytest.mark.parametrize(("writes", "expected"), [
    (WRITES, {"Porto": "active", "Lisbon": "superseded", "Faro": "conflicted", "Braga": "conflicted"}),
    (MORE, {"Porto": "superseded", "Lisbon": "superseded", "Faro": "active", "Braga": "conflicted"}),
])  # fmt: skip
def test_with_times_the_outcome_is_the_same_in_whatever_order_they_arrive(
    api: Api, writes: list[JSON], expected: JSON
) -> None:
    disputes = set()
    for order in itertools.permutations(writes):
        mine = api.of(fresh("order"))
        items = [state(**one) for one in order]
        results = mine.batch(items)["results"]
        memories = {one["memory"]["content"]: one["memory_ids"][0] for one in results}
        found = {text: mine.memory(memory_id) for text, memory_id in memories.items()}
        assert {
            one["object"]: found[f"Ana lives in {one['object']}."]["status"] for one in writes
        } == expected, order
        pairs = succeeded(mine.get("/brain/conflicts"))["conflicts"]
        disputes.add(frozenset(frozenset(side["content"] for side in one["sides"]) for one in pairs))
    assert len(disputes) == 1
