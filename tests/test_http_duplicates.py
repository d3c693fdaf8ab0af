"""Duplicates are united by their normalised text only, and one write that comes many times is one."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.serving import JSON, Api, refused, server

pytest_plugins = ["tests.serving_fixtures"]


def test_an_equal_memory_gets_the_tags_and_evidence_of_the_second(api: Api) -> None:
    ground = api.add("Seen on the bill.")["memory"]["memory_id"]
    more = api.add("Heard on the phone.")["memory"]["memory_id"]
    first = api.try_add("The limit is 30.", tags=["a", "b"], evidence_ids=[ground])
    second = api.try_add("  the LIMIT\u00a0is\n30.\u200b", tags=["b", "c"], evidence_ids=[more, ground])
    assert (first.status_code, second.status_code) == (201, 200)
    one, two = first.json(), second.json()
    assert (one["deduplicated"], two["deduplicated"], two["indexed"]) == (False, True, True)
    assert one["memory_ids"] == two["memory_ids"]
    memory = api.memory(one["memory"]["memory_id"], include="details")
    assert memory["content"] == "The limit is 30."  # as it was written first
    assert memory["tags"] == ["a", "b", "c"]
    assert memory["details"]["evidence_ids"] == [ground, more]
    assert memory["details"]["version"] == 2
    assert memory["gmt_created"] == one["memory"]["gmt_created"]
    assert api.list(tag="c")["total"] == api.list(tag="a")["total"] == 1


def test_an_equal_memory_that_brings_nothing_new_changes_nothing(api: Api) -> None:
    id = api.add("Nothing new.", tags=["a"])["memory"]["memory_id"]
    assert api.add("nothing NEW.", metadata={"ignored": True}, confidence=0.1)["deduplicated"]
    memory = api.memory(id, include="details")
    assert (memory["details"]["version"], memory["custom"], memory["confidence"]) == (1, {}, 0.7)


def test_uniting_never_goes_over_the_limit_of_tags(api: Api) -> None:
    id = api.add("Many tags.", tags=[f"a{n}" for n in range(60)])["memory"]["memory_id"]
    refused(api.try_add("many tags.", tags=[f"b{n}" for n in range(5)]), 422, "invalid_argument", "tags")
    assert len(api.memory(id)["tags"]) == 60


@pytest.mark.parametrize("other", [
    {"layer": "l4_identity"}, {"frame": "team-a"}, {"valid_from": 1}, {"valid_until": 9_999_999_999_999},
    {"kind": "message"}, {"content": "The limit is 50."}, {"content": "The limit is not 30."},
    {"content": "The limit is 30"}, {"content": "Thelimitis30."}, {"on_duplicate": "keep"},
], ids=str)  # fmt: skip
def test_what_differs_is_not_a_duplicate(api: Api, other: JSON) -> None:
    first = api.add("The limit is 30.")
    second = api.add(**{"content": "The limit is 30."} | other)
    assert not second["deduplicated"] and first["memory_ids"] != second["memory_ids"]
    assert api.stats()["total"] == 2
    assert api.memory(first["memory"]["memory_id"], include="details")["details"]["version"] == 1


def test_another_user_or_agent_does_not_share_a_memory(api: Api) -> None:
    alex, sam = api.of(user="alex"), api.of(user="sam")
    ids = [caller.add("We share nothing.")["memory"]["memory_id"] for caller in (api, alex, sam)]
    assert len(set(ids)) == 3
    assert api.stats()["total"] == 3 and alex.stats()["total"] == 1


def test_a_duplicate_may_be_refused_and_then_names_the_memory_that_exists(api: Api) -> None:
    id = api.add("Only once.")["memory"]["memory_id"]
    problem = refused(api.try_add("only once.", on_duplicate="error"), 409, "duplicate")
    assert id in problem["detail"] and "on_duplicate" in problem["hint"]
    assert api.stats()["total"] == 1


def test_a_united_write_is_replayed_with_its_own_status(api: Api) -> None:
    api.add("Same.")
    answers = [api.try_add("same.", idempotency_key="k") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.json().get("replayed") for answer in answers] == [None, True]
    assert answers[1].json()["deduplicated"]


def test_a_key_belongs_to_one_request_of_one_user(api: Api) -> None:
    first = api.add("one", idempotency_key="k")["memory_ids"]
    refused(api.try_add("two", idempotency_key="k"), 409, "idempotency_key_reused")
    refused(api.try_add("one", idempotency_key="k", tags=["t"]), 409, "idempotency_key_reused")
    assert api.of(user="alex").add("two", idempotency_key="k")["memory_ids"] != first
    assert api.of(user="default").add("one", idempotency_key="k")["memory_ids"] == first  # the same partition


def test_a_key_is_forgotten_after_seven_days(tmp_path: Path) -> None:
    week = 7 * 24 * 3600 * 1000
    now = [1_700_000_000_000]
    with server(tmp_path, clock=lambda: now[0]) as running:
        first = running.api.add("Once a week.", idempotency_key="k", on_duplicate="keep")
        now[0] += week
        again = running.api.add("Once a week.", idempotency_key="k", on_duplicate="keep")
        assert (again["memory_ids"], again["replayed"]) == (first["memory_ids"], True)
        now[0] += 1
        other = running.api.add("Another thing.", idempotency_key="k")
        assert other["memory_ids"] != first["memory_ids"] and "replayed" not in other


def test_eight_clients_that_write_the_same_at_once_share_one_memory(api: Api) -> None:
    def write(client: int) -> JSON:
        return api.add("All at once.", tags=[f"client-{client}"])

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(write, range(8)))
    [id] = {id for answer in answers for id in answer["memory_ids"]}
    assert sum(not answer["deduplicated"] for answer in answers) == 1
    memory = api.memory(id, include="details")
    assert set(memory["tags"]) == {f"client-{client}" for client in range(8)}
    assert memory["details"]["version"] == 8


def test_eight_clients_with_one_key_write_once(api: Api) -> None:
    def write(_: int) -> tuple[int, JSON]:
        answer = api.try_add("Retried.", idempotency_key="k", on_duplicate="keep")
        return answer.status_code, answer.json()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(write, range(8)))
    assert {status for status, _ in answers} == {201}
    assert len({answer["memory"]["memory_id"] for _, answer in answers}) == 1
    assert sum("replayed" not in answer for _, answer in answers) == 1
    assert api.stats()["total"] == 1
