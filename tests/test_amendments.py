"""Changing memories over HTTP: update, supersede, delete, restore, with versions and their errors."""

from typing import Any

import pytest

from tests.serving import Api, Server, refused, succeeded

pytest_plugins = ["tests.serving_fixtures"]
JSON = dict[str, Any]


def patch(api: Api, memory_id: str, body: JSON, **options: Any) -> Any:
    return api.request("PATCH", f"/brain/memory/{memory_id}", body, **options)


def supersede(api: Api, content: str, *old: str, **fields: Any) -> Any:
    return api.post("/brain/memory/supersede", {"content": content, "supersedes": list(old)} | fields)


def delete(api: Api, memory_id: str, **query: Any) -> Any:
    return api.request("DELETE", f"/brain/memory/{memory_id}", params=query)


def restore(api: Api, memory_id: str) -> Any:
    return api.post(f"/brain/memory/{memory_id}/restore", {})


def details(api: Api, memory_id: str) -> JSON:
    answer: JSON = api.memory(memory_id, include="details")
    return answer["details"] | {"status": answer["status"]}


def add(api: Api, content: str, **fields: Any) -> str:
    memory_id: str = api.add(content, **fields)["memory"]["memory_id"]
    return memory_id


def contents(api: Api, query: str) -> list[str]:
    answer = succeeded(api.post("/brain/memory/search", {"query": query}))
    return [hit["content"] for hit in answer["results"]]


# Update


def test_an_edit_in_place_keeps_all_that_it_does_not_name(api: Api) -> None:
    fields = {
        "tags": ["a", "b"],
        "metadata": {"k": [1, None]},
        "valid_until": 9_000_000_000_000,
        "memory_at": 5,
    }
    memory_id = add(api, "The gate code is 4711.", source_authority="team", confidence=0.5, **fields)
    before = api.memory(memory_id)
    answer = succeeded(patch(api, memory_id, {"tags": ["c"]}))
    assert answer["superseded"] == [] and answer["memory"]["memory_id"] == memory_id
    after = api.memory(memory_id)
    changed = {name for name in after if after[name] != before[name]} - {"elapsed_ms", "request_id", "source"}
    assert changed == {"tags"} and after["tags"] == ["c"]
    assert details(api, memory_id)["version"] == 2


def test_new_content_makes_a_new_memory_and_leaves_the_old_ones_own(api: Api) -> None:
    fields = {"tags": ["t"], "metadata": {"k": 2.50}, "source_authority": "official", "frame": "ops"}
    old = add(api, "The office is in Bern.", **fields)
    answer = succeeded(patch(api, old, {"content": "The office is in Basel."}))
    new = answer["memory"]
    assert answer["superseded"] == [old] and new["memory_id"] != old and new["supersedes"] == [old]
    assert (new["tags"], new["custom"], new["source_authority"]) == (["t"], {"k": 2.5}, "official")
    assert details(api, new["memory_id"])["frame"] == "ops"
    was = api.memory(old)
    assert (was["content"], was["status"], was["is_latest"]) == (
        "The office is in Bern.",
        "superseded",
        False,
    )
    assert was["superseded_by"] == [new["memory_id"]]
    assert contents(api, "Where is the office?") == ["The office is in Basel."]


@pytest.mark.parametrize(("body", "field"), [
    ({"content": ""}, "content"), ({"content": None}, "body"), ({}, "body"), ({"tags": None}, "body"),
    ({"contents": "x"}, "contents"), ({"layer": "l2_fact"}, "layer"), ({"confidence": 2}, "confidence"),
    ({"valid_from": 5, "valid_until": 5}, "valid_until"),
    ({"source_authority": "policy"}, "source_authority"),
])  # fmt: skip
def test_a_wrong_edit_is_refused_and_changes_nothing(api: Api, body: JSON, field: str) -> None:
    memory_id = add(api, "Stays as it is.")
    refused(patch(api, memory_id, body), 422, "invalid_argument", field)
    assert details(api, memory_id)["version"] == 1
    assert api.memory(memory_id)["content"] == "Stays as it is."


def test_null_clears_what_can_be_cleared(api: Api) -> None:
    memory_id = add(api, "Valid for a while.", valid_until=1, confidence=0.2)
    assert api.memory(memory_id)["speculate"] is not None
    succeeded(patch(api, memory_id, {"valid_until": None, "confidence": None}))
    after = api.memory(memory_id)
    assert after["speculate"] is None and after["confidence"] == 0.7


def test_what_was_said_keeps_its_text_but_takes_tags(api: Api) -> None:
    memory_id = add(api, "I said so.", kind="message")
    refused(patch(api, memory_id, {"content": "I did not."}), 409, "immutable_layer")
    assert succeeded(patch(api, memory_id, {"tags": ["quote"]}))["memory"]["tags"] == ["quote"]


def test_the_same_content_again_is_an_edit_in_place(api: Api) -> None:
    memory_id = add(api, "Same text.")
    answer = succeeded(patch(api, memory_id, {"content": "Same text.", "tags": ["x"]}))
    assert answer["memory"]["memory_id"] == memory_id and answer["superseded"] == []


def test_an_edit_that_changes_nothing_makes_no_version(api: Api) -> None:
    memory_id = add(api, "Calm.", tags=["x"])
    succeeded(patch(api, memory_id, {"tags": ["x"]}))
    assert details(api, memory_id)["version"] == 1


def test_a_version_that_is_past_is_refused_by_argument_and_by_header(api: Api) -> None:
    memory_id = add(api, "Contended.")
    etag = api.get(f"/brain/memory/{memory_id}").headers["etag"]
    succeeded(patch(api, memory_id, {"tags": ["first"]}, headers={"if-match": etag}))
    refused(patch(api, memory_id, {"tags": ["second"]}, headers={"if-match": etag}), 412, "version_conflict")
    refused(patch(api, memory_id, {"tags": ["second"], "expected_version": 1}), 412, "version_conflict")
    assert api.memory(memory_id)["tags"] == ["first"]
    succeeded(patch(api, memory_id, {"tags": ["second"], "expected_version": 2}))
    succeeded(patch(api, memory_id, {"tags": ["third"]}, headers={"if-match": "*"}))
    refused(patch(api, memory_id, {"tags": []}, headers={"if-match": "nonsense"}), 422, "invalid_argument")


def test_a_repeat_with_the_same_key_changes_once(api: Api) -> None:
    memory_id = add(api, "Version one.")
    body = {"content": "Version two.", "idempotency_key": "k"}
    first = succeeded(patch(api, memory_id, body))
    again = succeeded(patch(api, memory_id, body))
    assert again["memory"]["memory_id"] == first["memory"]["memory_id"] and again["replayed"] is True
    refused(patch(api, memory_id, body | {"content": "Three."}), 409, "idempotency_key_reused")


# Supersede


def test_a_new_memory_replaces_several_at_once(api: Api) -> None:
    a, b = add(api, "Lunch is at noon."), add(api, "Lunch is at one.")
    answer = supersede(api, "Lunch is at half past twelve.", a, b)
    assert answer.status_code == 201
    new = answer.json()["memory"]
    assert answer.json()["superseded"] == new["supersedes"] == [a, b] and answer.json()["conflicts"] == []
    assert contents(api, "When is lunch?") == ["Lunch is at half past twelve."]


def test_only_a_head_can_be_replaced_and_the_refusal_names_it(api: Api) -> None:
    old = add(api, "One.")
    head = supersede(api, "Two.", old).json()["memory"]["memory_id"]
    problem = refused(supersede(api, "Other two.", old), 409, "conflict_state")
    assert head in problem["detail"]
    assert contents(api, "Two.") == ["Two."]


def test_of_many_at_once_exactly_one_replaces_a_head(shared_server: Server, api: Api) -> None:
    from concurrent.futures import ThreadPoolExecutor

    old = add(api, "Contended head.")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: supersede(api, f"Successor {n}.", old).status_code, range(8)))
    assert sorted(answers) == [201] + [409] * 7
    assert len(api.memory(old)["superseded_by"]) == 1


def test_a_lower_authority_replaces_nothing(api: Api) -> None:
    policy = add(api, "Never share keys.", source_authority="policy")
    lower = {"source_authority": "team"}
    refused(supersede(api, "Share keys.", policy, **lower, on_conflict="error"), 409, "lower_authority")
    assert api.list()["total"] == 1
    answer = succeeded(supersede(api, "Share keys.", policy, **lower))
    assert answer["memory"]["status"] == "conflicted" and answer["superseded"] == []
    assert details(api, policy)["conflicts"] == answer["conflicts"] != []
    assert api.memory(policy)["status"] == "active"
    assert contents(api, "keys") == ["Never share keys."]
    assert supersede(api, "Never ever share keys.", policy, source_authority="policy").status_code == 201


def test_an_add_may_replace_too_and_a_batch_answers_for_each(api: Api) -> None:
    old = add(api, "Colour is red.")
    results = api.batch([
        {"content": "Colour is blue.", "supersedes": [old]},
        {"content": "Colour is green.", "supersedes": [old]},
        {"content": "Unrelated."},
    ])["results"]  # fmt: skip
    assert [result["status"] for result in results] == [201, 409, 201]
    assert results[0]["superseded"] == [old]


def test_what_was_said_is_superseded_by_what_was_said_later_and_keeps_its_text(api: Api) -> None:
    said = add(api, "I eat everything.", kind="message", actor="Noor")
    later = add(api, "I eat no meat again.", kind="message", actor="Noor", supersedes=[said])
    old = api.memory(said)
    assert (old["layer"], old["content"]) == ("l1_raw", "I eat everything.")
    assert (old["status"], old["superseded_by"]) == ("superseded", [later])
    assert contents(api, "what does Noor eat") == ["I eat no meat again."]


def test_another_frame_and_another_user_are_not_replaced(api: Api) -> None:
    framed = add(api, "Holds for A.", frame="a")
    refused(supersede(api, "New.", framed), 409, "conflict_state")
    theirs = add(api.of(user="bob"), "Bob's.")
    refused(supersede(api, "New.", theirs), 422, "invalid_argument", "supersedes[0]")
    refused(supersede(api.of(user="eve"), "New.", theirs), 404, "memory_not_found")
    refused(supersede(api.of("stranger-agent"), "New.", theirs), 404, "memory_not_found")


# Delete and restore


def test_a_forgotten_memory_is_shown_nowhere_and_comes_back_whole(api: Api) -> None:
    memory_id = add(api, "The password is swordfish.", tags=["secret"], metadata={"k": 1})
    before = api.memory(memory_id)
    answer = succeeded(delete(api, memory_id, reason="asked to"))
    assert (answer["status"], answer["version"], answer["revived"]) == ("forgotten", 2, [])
    problem = refused(api.get(f"/brain/memory/{memory_id}"), 410, "memory_forgotten")
    assert "swordfish" not in str(problem)
    assert contents(api, "swordfish password") == []
    listed = [
        succeeded(api.get("/brain/memory", params={"status": s}))["total"] for s in ("active", "forgotten")
    ]
    assert listed == [0, 0]
    refused(delete(api, memory_id), 410, "memory_forgotten")
    succeeded(restore(api, memory_id))
    after = api.memory(memory_id)
    assert {**after, **_timing(before)} == before
    assert contents(api, "swordfish password") == ["The password is swordfish."]


def _timing(answer: JSON) -> JSON:
    return {name: answer[name] for name in ("elapsed_ms", "request_id", "source")}


def test_an_archived_memory_is_readable_by_id_and_found_when_asked_for(api: Api) -> None:
    memory_id = add(api, "Old habit: faxing.")
    succeeded(delete(api, memory_id, mode="archive"))
    assert api.memory(memory_id)["status"] == "archived"
    assert contents(api, "faxing") == []
    body = {"query": "faxing", "statuses": ["archived"]}
    assert len(succeeded(api.post("/brain/memory/search", body))["results"]) == 1


def test_a_deleted_head_revives_what_it_replaced_only_when_told(api: Api) -> None:
    old = add(api, "Room 1.")
    head = supersede(api, "Room 2.", old).json()["memory"]["memory_id"]
    succeeded(delete(api, head))
    assert api.memory(old)["status"] == "superseded" and contents(api, "Room") == []
    succeeded(restore(api, head))
    assert succeeded(delete(api, head, revive=True))["revived"] == [old]
    was = api.memory(old)
    assert (was["status"], was["superseded_by"], was["is_latest"]) == ("active", None, True)
    succeeded(restore(api, head))
    assert api.memory(head)["supersedes"] is None


def test_a_superseded_memory_that_was_forgotten_comes_back_as_history(api: Api) -> None:
    old = add(api, "First.")
    supersede(api, "Second.", old)
    succeeded(delete(api, old))
    assert succeeded(restore(api, old))["memory"]["status"] == "superseded"
    assert contents(api, "Second.") == ["Second."]


def test_only_what_was_taken_away_can_be_restored(api: Api) -> None:
    memory_id = add(api, "Here all the time.")
    refused(restore(api, memory_id), 409, "conflict_state")
    refused(restore(api, "018f0000-0000-7000-8000-000000000000"), 404, "memory_not_found")
    refused(delete(api, memory_id, mode="shred"), 422, "invalid_argument", "mode")
    refused(delete(api, memory_id, moed="archive"), 422, "invalid_argument", "moed")


def test_changes_survive_a_cold_read_in_both_stores(shared_server: Server, api: Api) -> None:
    memory_id = add(api, "Kept in step.")
    succeeded(patch(api, memory_id, {"tags": ["new"]}))
    shared_server.settle()
    shared_server.evict(api)
    cold = api.memory(memory_id)
    assert (cold["source"], cold["tags"]) == ("vdb", ["new"])
