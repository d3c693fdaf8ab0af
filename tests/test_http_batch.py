"""Batches: each item answers for itself, or all or none; and the messages of a conversation."""

from typing import Any

import jsonschema
import pytest

from service.operations import BY_NAME
from service.schemas import output_schema
from tests.serving import JSON, Api, refused

pytest_plugins = ["tests.serving_fixtures"]

BATCH = "/brain/memory/batch"
BAD: list[tuple[Any, str]] = [
    ({"content": " "}, "content"),
    ({"content": "a", "layer": "l9"}, "layer"),
    ({"content": "half \ud800 of a pair"}, "content"),
    ({"content": "a\0b"}, "content"),
    ({"content": "a", "metadata": {"n": 2**63}}, "metadata.n"),
    ({"contents": "a"}, "contents"),
    ({"content": "a", "evidence_ids": ["nobody"]}, "evidence_ids[0]"),
    ("only text", "body"),
    (None, "body"),
]
each_bad = pytest.mark.parametrize(("item", "field"), BAD, ids=lambda value: ascii(value)[:40])


def contents(api: Api) -> list[str]:
    """What is stored, in the order of writing."""
    return [memory["content"] for memory in api.list(order="oldest", limit=100)["memories"]]


@each_bad
def test_a_bad_item_answers_for_itself_and_the_others_are_stored(api: Api, item: Any, field: str) -> None:
    answer = api.batch([{"content": "first"}, item, {"content": "last"}])
    jsonschema.validate(answer, output_schema(BY_NAME["brain_memory_add_batch"]))
    first, bad, last = answer["results"]
    assert (first["status"], bad["status"], last["status"]) == (201, 422, 201)
    assert first["memory"]["content"] == "first" and last["memory"]["content"] == "last"
    error = bad["error"]
    assert (error["code"], error["request_id"]) == ("invalid_argument", answer["request_id"])
    assert field in [error["field"] for error in error["errors"]]
    assert contents(api) == ["first", "last"]


@each_bad
def test_an_atomic_batch_with_a_bad_item_stores_nothing_and_names_the_item(
    api: Api, item: Any, field: str
) -> None:
    api.add("before")
    answer = api.post(BATCH, {"items": [{"content": "first"}, item], "atomic": True})
    problem = refused(answer, 422, "invalid_argument")
    assert f"items[1].{field}" in [error["field"] for error in problem["errors"]]
    assert problem["detail"].startswith("items[1]: ")
    assert contents(api) == ["before"]


def test_an_atomic_batch_without_a_bad_item_stores_all(api: Api) -> None:
    results = api.batch([{"content": str(number)} for number in range(30)], atomic=True)["results"]
    assert [result["memory"]["content"] for result in results] == [str(number) for number in range(30)]
    assert contents(api) == [str(number) for number in range(30)]


def test_an_atomic_batch_is_refused_for_what_only_the_ledger_knows_too(api: Api) -> None:
    api.add("taken", session_id="s", session_position=3)
    items = [{"content": "free"}, {"content": "clash", "session_id": "s", "session_position": 3}]
    problem = refused(api.post(BATCH, {"items": items, "atomic": True}), 409, "position_taken")
    assert problem["errors"][0]["field"] == "items[1]"
    assert contents(api) == ["taken"]
    assert [result["status"] for result in api.batch(items)["results"]] == [201, 409]
    assert contents(api) == ["taken", "free"]


def test_every_id_of_a_batch_works_at_once_and_has_its_own_place(api: Api) -> None:
    results = api.batch([{"content": f"Fact {number}."} for number in range(200)])["results"]
    ids = [result["memory"]["memory_id"] for result in results]
    assert len(set(ids)) == 200 and all(result["indexed"] for result in results)
    for place in (0, 99, 199):
        assert api.memory(ids[place])["content"] == f"Fact {place}."
    assert api.search("Fact 199")["results"][0]["memory_id"] == ids[199]


def test_equal_items_of_one_batch_are_united(api: Api) -> None:
    first, second = api.batch([{"content": "Same", "tags": ["a"]}, {"content": "same ", "tags": ["b"]}])[
        "results"
    ]
    assert (first["status"], second["status"], second["deduplicated"]) == (201, 200, True)
    assert first["memory_ids"] == second["memory_ids"]
    assert second["memory"]["tags"] == ["a", "b"]


def test_items_have_idempotency_keys_of_their_own_which_single_adds_share(api: Api) -> None:
    once = api.add("once", idempotency_key="k")
    items: list[JSON] = [
        {"content": "once", "idempotency_key": "k"},
        {"content": "other", "idempotency_key": "k"},
        {"content": "new", "idempotency_key": "n"},
        {"content": "new", "idempotency_key": "n"},
    ]
    results = api.batch(items)["results"]
    assert [result["status"] for result in results] == [201, 409, 201, 201]
    assert [result.get("replayed") for result in results] == [True, None, None, True]
    assert results[0]["memory_ids"] == once["memory_ids"]
    assert results[1]["error"]["code"] == "idempotency_key_reused"
    assert results[2]["memory_ids"] == results[3]["memory_ids"]
    assert contents(api) == ["once", "new"]


def test_a_batch_that_comes_again_with_its_key_is_answered_from_memory(api: Api) -> None:
    items: list[Any] = [{"content": "a"}, {"content": "\ud800"}, {"content": "a", "tags": ["x"]}, None]
    first = api.post(BATCH, {"items": items, "idempotency_key": "k"})
    again = api.post(BATCH, {"items": items, "idempotency_key": "k"})
    assert (first.status_code, again.status_code) == (207, 207)
    one, two = first.json(), again.json()
    assert two["replayed"] is True and "replayed" not in one
    for before, after in zip(one["results"], two["results"], strict=True):
        assert before["status"] == after["status"]
        assert before.get("memory_ids") == after.get("memory_ids")
        assert before.get("error", {}).get("detail") == after.get("error", {}).get("detail")
    assert contents(api) == ["a"]
    for other in ([*items[:3], 5], items[:2], [{"content": "b"}, *items[1:]]):
        answer = api.post(BATCH, {"items": other, "idempotency_key": "k"})
        refused(answer, 409, "idempotency_key_reused")
    refused(
        api.post(BATCH, {"items": items, "atomic": True, "idempotency_key": "k2"}), 422, "invalid_argument"
    )
    assert api.batch(items[:1], atomic=True, idempotency_key="k2")["results"][0]["status"] == 200


# Messages


def said(*texts: str) -> list[JSON]:
    return [{"role": "user", "content": text} for text in texts]


def positions(api: Api, session: str) -> dict[str, int | None]:
    memories = api.list(session_id=session, order="oldest", limit=100)["memories"]
    details = (api.memory(memory["memory_id"], include="details") for memory in memories)
    return {memory["content"]: memory["details"]["session_position"] for memory in details}


def test_messages_are_stored_in_order_and_go_on_where_the_session_ended(api: Api) -> None:
    turns = [
        {"role": "user", "content": "Hi", "at": 5, "actor": "Mel"},
        {"role": "assistant", "content": "Hello"},
    ]
    first = api.add(messages=turns, session_id="s", tags=["chat"])
    second = api.add(messages=said("Hi", "Hi"), session_id="s")
    assert len(first["memory_ids"]) == 2 and len({*first["memory_ids"], *second["memory_ids"]}) == 4
    assert first["memory"]["content"] == "Hello"
    read = [api.memory(id, include="details") for id in (*first["memory_ids"], *second["memory_ids"])]
    assert [memory["details"]["session_position"] for memory in read] == [0, 1, 2, 3]
    assert [memory["layer"] for memory in read] == ["l1_raw"] * 4
    assert [memory["memory_at"] for memory in read] == [5, None, None, None]
    assert [memory["details"]["role"] for memory in read] == ["user", "assistant", "user", "user"]
    assert (read[0]["details"]["actor"], read[1]["tags"]) == ("Mel", ["chat"])


def test_the_same_text_in_two_sessions_is_two_messages_with_their_own_positions(api: Api) -> None:
    for session in ("s-1", "s-2", "s-1"):
        assert not api.add(messages=said("Yes."), session_id=session)["deduplicated"]
    assert api.list(kind="message")["total"] == 3
    assert positions(api, "s-2") == {"Yes.": 0}
    assert api.of(user="alex").add(messages=said("Yes."), session_id="s-1")["memory"]
    assert positions(api.of(user="alex"), "s-1") == {"Yes.": 0}


def test_a_message_in_the_middle_takes_the_free_position_that_it_names(api: Api) -> None:
    place = {"kind": "message", "session_id": "s"}
    api.add("first", **place, session_position=10)
    api.add("last", **place, session_position=20)
    api.add("middle", **place, session_position=15)
    api.add("appended", **place)
    assert positions(api, "s") == {"first": 10, "last": 20, "middle": 15, "appended": 21}
    taken = api.try_add("clash", **place, session_position=15)
    assert "15" in refused(taken, 409, "position_taken")["detail"]
    assert len(positions(api, "s")) == 4


def test_messages_that_come_again_with_their_key_are_not_appended(api: Api) -> None:
    first = api.add(messages=said("a", "b"), session_id="s", idempotency_key="k")
    again = api.add(messages=said("a", "b"), session_id="s", idempotency_key="k")
    assert (again["memory_ids"], again["replayed"]) == (first["memory_ids"], True)
    assert positions(api, "s") == {"a": 0, "b": 1}


def test_one_bad_message_stores_none_of_its_conversation(api: Api) -> None:
    for bad in ({"role": "user", "content": ""}, {"role": "boss", "content": "a"}, {"content": "a"}, "a"):
        answer = api.try_add(messages=[*said("good"), bad], session_id="s")
        problem = refused(answer, 422, "invalid_argument")
        assert problem["errors"][0]["field"].startswith("messages[1]")
    assert api.stats()["total"] == 0


@pytest.mark.parametrize(
    "field", [{"session_position": 1}, {"actor": "Mel"}, {"memory_at": 1}, {"kind": "memory"}]
)
def test_what_each_message_says_for_itself_is_not_said_for_all(api: Api, field: JSON) -> None:
    answer = api.try_add(messages=said("a"), session_id="s", **field)
    assert next(iter(field)) in refused(answer, 422, "invalid_argument")["detail"]
