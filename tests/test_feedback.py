"""Feedback over HTTP: heard once from each key, by rule."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.keyed import Keyed, keyed_server
from tests.serving import Api, fresh, refused, succeeded
from tests.test_amendments import contents, delete, supersede

JSON = dict[str, Any]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with keyed_server(tmp_path_factory.mktemp("feedback")) as running:
        running.create("first")
        yield running


@pytest.fixture
def keys(keyed: Keyed) -> list[Api]:
    """Three callers of one product, the last of them informal."""
    product = fresh("product")
    return [keyed.holder(product, authority=name) for name in ("policy", "policy", "informal")]


def say(api: Api, memory_id: str, verdict: str, **fields: Any) -> Any:
    return api.post(f"/brain/memory/{memory_id}/feedback", {"verdict": verdict} | fields)


def heard(api: Api, memory_id: str, verdict: str) -> tuple[bool, float]:
    answer = succeeded(say(api, memory_id, verdict))
    return answer["changed"], answer["memory"]["confidence"]


def add(api: Api, content: str = "The gate is blue.", **fields: Any) -> str:
    memory_id: str = api.add(content, **fields)["memory"]["memory_id"]
    return memory_id


def details(api: Api, memory_id: str) -> JSON:
    found: JSON = api.memory(memory_id, include="details")["details"]
    return found


def test_each_key_is_heard_once_for_each_verdict(keys: list[Api]) -> None:
    memory_id = add(keys[0])
    assert heard(keys[0], memory_id, "useful") == (True, 0.715)
    assert heard(keys[0], memory_id, "useful") == (False, 0.715)
    assert heard(keys[1], memory_id, "useful") == (True, 0.72925)
    assert heard(keys[0], memory_id, "confirmed") == (True, 0.756325)
    version = details(keys[0], memory_id)["version"]
    assert heard(keys[0], memory_id, "confirmed") == (False, 0.756325)
    after = details(keys[0], memory_id)
    assert after["version"] == version
    feedback = {"confirmed": 1, "useful": 2, "outdated": 0, "wrong": 0}
    assert after["confidence_terms"]["feedback"] == feedback


def test_what_a_key_says_in_the_end_takes_back_what_it_said(keys: list[Api]) -> None:
    memory_id = add(keys[0])
    assert heard(keys[0], memory_id, "outdated") == (True, 0.35)
    assert details(keys[0], memory_id)["review_due_at"] is not None
    assert heard(keys[0], memory_id, "confirmed") == (True, 0.73)
    found = details(keys[0], memory_id)
    assert found["review_due_at"] is None and found["last_reviewed_at"] is not None
    assert found["confidence_terms"]["feedback"]["outdated"] == 0


def test_a_memory_that_is_called_wrong_is_negated_and_comes_back_confirmed(keys: list[Api]) -> None:
    memory_id = add(keys[0])
    answer = succeeded(say(keys[0], memory_id, "wrong", note="It is green."))
    assert (answer["memory"]["status"], answer["memory"]["confidence"]) == ("negated", 0.14)
    assert contents(keys[0], "gate") == []
    assert keys[0].memory(memory_id)["content"] == "The gate is blue."
    back = succeeded(say(keys[0], memory_id, "confirmed"))["memory"]
    assert (back["status"], back["confidence"]) == ("active", 0.73)
    assert contents(keys[0], "gate") == ["The gate is blue."]


def test_a_lower_key_may_find_a_higher_memory_useful_and_say_nothing_else(keys: list[Api]) -> None:
    memory_id = add(keys[0], source_authority="policy")
    for verdict in ("wrong", "outdated", "confirmed"):
        refused(say(keys[2], memory_id, verdict), 403, "authority_not_allowed")
    before = keys[0].memory(memory_id)
    assert (before["status"], before["confidence"]) == ("active", 0.95)
    assert heard(keys[2], memory_id, "useful") == (True, 0.9525)


def test_feedback_needs_a_memory_that_is_in_use(keys: list[Api]) -> None:
    old = add(keys[0])
    supersede(keys[0], "The gate is green.", old)
    refused(say(keys[0], old, "wrong"), 409, "conflict_state")
    gone = add(keys[0], "Gone.")
    succeeded(delete(keys[0], gone))
    refused(say(keys[0], gone, "useful"), 410, "memory_forgotten")
    refused(say(keys[0], gone, "great"), 422, "invalid_argument", "verdict")
    refused(say(keys[0], old, "useful", note=""), 422, "invalid_argument", "note")
    refused(say(keys[0], old, "useful", expected_version=1), 412, "version_conflict")


def test_a_repeat_with_the_same_idempotency_key_is_a_replay(keys: list[Api]) -> None:
    memory_id = add(keys[0])
    first = succeeded(say(keys[0], memory_id, "useful", idempotency_key="k"))
    again = succeeded(say(keys[0], memory_id, "useful", idempotency_key="k"))
    assert (first["changed"], again["changed"], again["replayed"]) == (True, True, True)
    refused(say(keys[0], memory_id, "wrong", idempotency_key="k"), 409, "idempotency_key_reused")
