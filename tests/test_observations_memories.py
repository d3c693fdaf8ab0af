"""Saved memories: topics and their heads, trust, governance and suppression, through both doors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.keyed import Keyed, keyed_server
from tests.observing import Clock, Http, View, query
from tests.serving import eventually, refused, succeeded

pytest_plugins = ["tests.observing_fixtures"]

TOPIC = {"project": "/repo", "topic_key": "deploy"}


def save(view: View, text: str, **fields: Any) -> dict[str, Any]:
    return view.call("save_memory", text=text, **fields)


def test_a_new_version_takes_the_id_over_and_the_old_one_gets_another(view: View) -> None:
    first = save(view, "Deploy on Fridays.", **TOPIC)
    other = view.save("Something else.", project="/repo")
    second = save(view, "Deploy on Mondays.", **TOPIC)
    third = save(view, "Deploy daily.", **TOPIC)
    assert first["id"] == second["id"] == third["id"] != other
    [old] = second["superseded"]
    [middle] = third["superseded"]
    assert len({first["id"], other, old, middle}) == 4
    shown = {one["id"]: one for one in view.details(first["id"], old, middle)}
    assert [shown[id]["text"] for id in (first["id"], middle, old)] == [
        "Deploy daily.",
        "Deploy on Mondays.",
        "Deploy on Fridays.",
    ]
    assert shown[old]["status"] == shown[old]["classification"] == "superseded"
    assert shown[old]["classification_reason"] == "status_superseded"
    assert shown[first["id"]]["classification"] == "current"
    # The brain view and its stores say the same.
    for answer, number in ((first, old), (second, middle), (third, first["id"])):
        assert view.api.memory(answer["memory_id"], include="details")["details"]["number"] == number
    view.server.settle()
    view.server.evict(view.api)
    for answer, number in ((third, first["id"]), (first, old), (second, middle)):
        assert view.api.memory(answer["memory_id"], include="details")["details"]["number"] == number
    hits = view.api.search("deploy")["results"]
    assert hits[0]["content"] == "Deploy daily."
    assert not {first["memory_id"], second["memory_id"]} & {hit["memory_id"] for hit in hits}


def test_the_id_is_the_heads_in_every_store_when_it_is_read_cold(view: View) -> None:
    first = save(view, "Deploy on Fridays.", **TOPIC)
    second = save(view, "Deploy on Mondays.", **TOPIC)
    view.server.settle()
    view.server.evict(view.api)
    cold = view.api.memory(second["memory_id"], include="details")
    assert cold["source"] == "vdb" and cold["details"]["number"] == first["id"]


def test_another_project_has_a_head_of_its_own(view: View) -> None:
    here, there = (save(view, f"Deploy in {p}.", project=p, topic_key="deploy") for p in ("/a", "/b"))
    assert here["id"] != there["id"] and there["superseded"] == []


def test_a_segment_replaces_nothing(view: View) -> None:
    head = save(view, "Deploy on Fridays.", **TOPIC)
    for first in (1, 11):
        fields = {"covered_from_event_id": first, "covered_to_event_id": first + 9, "layer": "l3_summary"}
        assert save(view, f"From {first} on.", **TOPIC, **fields)["superseded"] == []
    assert view.detail(head["id"])["status"] == "active"
    assert len(view.detail(head["id"])["topic_trace"]) == 2


@pytest.mark.parametrize(
    ("memory_type", "layer"),
    [
        ("preference", "l4_identity"),
        ("architecture", "l5_knowledge"),
        ("Procedure ", "l5_knowledge"),
        ("lesson", "l5_knowledge"),
        ("decision", "l2_fact"),
        ("anything", "l2_fact"),
    ],
)
def test_the_type_says_the_layer_unless_it_is_told(view: View, memory_type: str, layer: str) -> None:
    saved = save(view, "x", memory_type=memory_type)
    assert view.api.memory(saved["memory_id"])["layer"] == layer
    assert view.detail(saved["id"])["memory_type"] == memory_type.strip().lower()
    told = save(view, "y", memory_type=memory_type, layer="l7_intention")
    assert view.api.memory(told["memory_id"])["layer"] == "l7_intention"


def test_what_was_given_is_shown_and_the_host_is_never_guessed(view: View) -> None:
    saved = save(
        view,
        "First line of it.\nAnd more.",
        project="/repo",
        session_id="s1",
        files=["a.py", "b c.py"],
        branch="main",
        reference_time_epoch=1_700_000_000,
        valid_from_epoch=1_700_000_100,
        facts=[{"subject": "ferry", "predicate": "sails at", "object": "noon"}],
    )
    shown = view.detail(saved["id"])
    assert shown["title"] == "First line of it." and shown["files"] == '["a.py","b c.py"]'
    assert (shown["session_id"], shown["branch"], shown["topic_key"]) == ("s1", "main", None)
    memory = view.api.memory(saved["memory_id"], include="details")
    assert memory["memory_at"] == 1_700_000_000_000
    assert memory["details"]["valid_from"] == 1_700_000_100_000
    assert memory["details"]["facts"][0]["object"] == "noon"
    [(details,)] = query(view.server, "SELECT details FROM memories WHERE memory_id = ?", saved["memory_id"])
    assert '"host": "unknown"' in details
    long = view.detail(view.save("w" * 200))
    assert long["title"] == "w" * 80
    view.refused("save_memory", 422, "invalid_argument", text="x", layer="l1_raw")


def test_the_same_key_writes_once_whatever_the_door(view: View) -> None:
    one = save(view, "Once.", idempotency_key="k", **TOPIC)
    two = save(view, "Once.", idempotency_key="k", **TOPIC)
    assert two["replayed"] is True and two["memory_id"] == one["memory_id"]
    problem = view.refused("save_memory", 409, "idempotency_key_reused", text="Twice.", idempotency_key="k")
    assert "Twice" not in problem["detail"]
    observed = [view.call("add_observation", type="change", title="t", idempotency_key="k") for _ in range(2)]
    assert observed[0]["id"] == observed[1]["id"]


def test_govern_is_all_or_nothing(view: View) -> None:
    ids = [view.save(f"Statement {n}.") for n in range(3)]
    versions = {str(id): 1 for id in ids}
    view.call("govern_memory", ids=[ids[1]], action="acknowledge")
    problem = view.refused(
        "govern_memory", 412, "version_conflict", ids=ids, action="delete", expected_versions=versions
    )
    assert f"memory {ids[1]} is at version 2, not 1" in problem["detail"]
    assert view.refused("govern_memory", 404, "not_found", ids=[*ids, 99], action="delete")
    assert {one["status"] for one in view.details(*ids)} == {"active"}
    versions[str(ids[1])] = 2
    dry = view.call("govern_memory", ids=ids, action="delete", expected_versions=versions, dry_run=True)
    assert {one["status"] for one in dry["memories"]} == {"deleted"}
    assert {one["status"] for one in view.details(*ids)} == {"active"}
    done = view.call("govern_memory", ids=ids, action="delete", expected_versions=versions, reason="old")
    assert [(one["id"], one["status"]) for one in done["memories"]] == [(id, "deleted") for id in ids]
    assert [one["version"] for one in done["memories"]] == [2, 3, 2]
    assert {one["status"] for one in view.details(*ids)} == {"deleted"}
    assert view.api.search("statement")["results"] == []
    assert view.call("search_observations", query="statement")["results"] == []
    bad = {"ids": ids, "action": "delete"}
    for versions in ({"99": 1}, {str(ids[0]): 0}, {str(ids[0]): "1"}):
        view.refused("govern_memory", 422, "invalid_argument", **bad, expected_versions=versions)


def test_governed_memories_can_be_restored_and_governed_anew(view: View) -> None:
    id = view.save()
    stale = view.call("govern_memory", ids=[id], action="stale")["memories"][0]
    again = view.call("govern_memory", ids=[id], action="stale")["memories"][0]
    assert stale == again
    view.call("govern_memory", ids=[id], action="delete")
    assert view.detail(id)["status"] == "deleted"
    view.refused("govern_memory", 409, "conflict_state", ids=[id], action="reject")
    succeeded(view.api.post(f"/brain/memory/{stale['memory_id']}/restore", {}))
    assert view.detail(id)["status"] == "active"
    view.call("govern_memory", ids=[id], action="reject")
    assert view.detail(id)["status"] == "rejected"
    assert view.api.memory(stale["memory_id"])["status"] == "negated"


def test_acknowledging_clears_what_was_flagged(view: View) -> None:
    base = save(view, "The base.")
    resting = save(view, "Rests on it.", evidence_ids=[base["memory_id"]])
    view.call("govern_memory", ids=[base["id"]], action="delete")
    flagged = view.api.memory(resting["memory_id"], include="details")["details"]
    assert flagged["fallen"] == [base["memory_id"]] and flagged["review_due_at"] is not None
    view.call("govern_memory", ids=[resting["id"]], action="acknowledge")
    cleared = view.api.memory(resting["memory_id"], include="details")["details"]
    assert cleared["fallen"] == [] and cleared["review_due_at"] is None
    assert cleared["last_reviewed_at"] is not None


def test_a_suppression_outlives_versions_and_counts_for_later_memories(view: View) -> None:
    id = view.save("Deploy on Fridays.", **TOPIC)
    view.call("suppress_memory", target=f"memory:{id}")
    assert view.save("Deploy on Mondays.", **TOPIC) == id
    view.missing(id)
    view.call("suppress_memory", target="pattern:secret plan")
    view.missing(view.save("The Secret Plan of May."))
    for bad in ("memory", "memory:", "memory:x", "user:1", "pattern: ", ":x"):
        view.refused("suppress_memory", 422, "invalid_argument", "target", target=bad)
    view.refused("suppress_memory", 404, "not_found", target="memory:404")
    assert view.api.memory(save(view, "Another secret plan.")["memory_id"])["status"] == "active"


def test_a_topics_conflict_with_a_higher_authority_is_opened_not_won(view: View) -> None:
    first = save(view, "Deploy on Fridays.", **TOPIC)
    raised = succeeded(
        view.api.post(
            "/brain/memory", {"content": "Deploy on Fridays.", "source_authority": "policy", "supersedes": []}
        )
    )
    assert raised["superseded"] == [first["memory_id"]]  # an equal text of a higher authority
    assert view.detail(first["id"])["status"] == "superseded"
    second = save(view, "Deploy on Mondays.", **TOPIC)
    assert second["superseded"] == [] and second["id"] != first["id"]


# With keys


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with keyed_server(tmp_path_factory.mktemp("keyed"), clock=Clock()) as running:
        eventually(lambda: running.server.brain.meaning.fingerprint() is not None)
        running.create("first")
        yield running


def holder(keyed: Keyed, product: str, **fields: Any) -> View:
    api = keyed.holder(product, **fields)
    return View(Http(api), keyed.server, api)


def verdict(view: View, id: int) -> str:
    detail = view.detail(id)
    assert detail["current_context_eligible"] is (detail["classification"] == "current")
    return str(detail["classification_reason"])


def test_a12_an_agents_save_is_current_when_it_is_proved(keyed: Keyed) -> None:
    agent = holder(keyed, "a12")
    evidence = [agent.api.add("What was seen.")["memory"]["memory_id"]]
    proved = {"evidence_ids": evidence, "confidence": 0.8, "valid_from_epoch": 100}
    number = iter(range(100))

    def reason(**fields: Any) -> str:
        return verdict(agent, agent.save(f"Statement {next(number)}.", **(proved | fields)))

    assert reason() == "current_eligible"
    prefix = "legacy_unverified_"
    assert reason(confidence=0.79) == f"{prefix}confidence_below_floor"
    assert reason(confidence=None) == f"{prefix}confidence_missing"
    assert reason(valid_from_epoch=None) == f"{prefix}validity_start_missing"
    assert reason(evidence_ids=[]) == f"{prefix}provenance_missing"
    for bad in ("nonsense", "018f3e5a-0000-7000-8000-000000000000"):
        assert reason(evidence_ids=[*evidence, bad]) == f"{prefix}provenance_malformed"


def test_evidence_that_is_forgotten_later_proves_nothing_any_more(keyed: Keyed) -> None:
    agent = holder(keyed, "forgetting")
    evidence = agent.api.add("What was seen.")["memory"]["memory_id"]
    id = agent.save(evidence_ids=[evidence], confidence=0.9, valid_from_epoch=1)
    assert verdict(agent, id) == "current_eligible"
    succeeded(agent.api.request("DELETE", f"/brain/memory/{evidence}"))
    assert verdict(agent, id) == "legacy_unverified_provenance_malformed"


def test_two_current_rows_of_a_key_and_a_mutable_type_doubt_each_other(keyed: Keyed) -> None:
    agent = holder(keyed, "rivals")
    evidence = [agent.api.add("What was seen.")["memory"]["memory_id"]]
    fields = {"evidence_ids": evidence, "confidence": 0.9, "valid_from_epoch": 1, **TOPIC}
    agent.call("save_memory", text="One.", memory_type="decision", **fields)
    second = agent.call("save_memory", text="Two.", memory_type="decision", **fields)
    succeeded(agent.api.request("DELETE", f"/brain/memory/{second['memory_id']}", params={"revive": "true"}))
    third = agent.call("save_memory", text="Three.", memory_type="decision", **fields)
    succeeded(agent.api.post(f"/brain/memory/{second['memory_id']}/restore", {}))
    reason = "legacy_unverified_mutable_state_identity_missing"
    numbers = [
        agent.api.memory(one["memory_id"], include="details")["details"]["number"] for one in (second, third)
    ]
    assert [verdict(agent, number) for number in numbers] == [reason, reason]
    person = holder(keyed, "rivals", acts_for_user=True)
    assert verdict(person, person.save("A person's.", memory_type="decision")) == "current_eligible"


def test_who_may_not_claim_an_authority_may_not_govern_it(keyed: Keyed) -> None:
    official = holder(keyed, "authority", authority="policy")
    informal = holder(keyed, "authority")
    added = official.api.add("The rule.", source_authority="policy")["memory"]["memory_id"]
    number = official.api.memory(added, include="details")["details"]["number"]
    mine = informal.save("Mine.")
    for action in ("delete", "reject", "stale", "acknowledge"):
        informal.refused("govern_memory", 403, "authority_not_allowed", ids=[mine, number], action=action)
    assert {one["status"] for one in informal.details(mine, number)} == {"active"}
    assert official.call("govern_memory", ids=[number], action="acknowledge")


def test_rights_and_scopes_hold(keyed: Keyed, tmp_path: Path) -> None:
    mine, other = holder(keyed, "scope-a"), holder(keyed, "scope-b")
    id = mine.save("Mine alone.")
    assert other.missing(id) == f"memory id(s) not found: [{id}]"
    assert other.save("Theirs.") == id
    assert other.detail(id)["text"] == "Theirs."
    reader = holder(keyed, "scope-a", rights=["read"])
    assert reader.detail(id)["text"] == "Mine alone."
    reader.refused("save_memory", 403, "forbidden", text="x")
    reader.refused("suppress_memory", 403, "forbidden", target=f"memory:{id}")
    mine.call("suppress_memory", target="pattern:theirs")
    assert other.detail(id)


def test_users_see_only_their_own_and_suppress_only_their_own(view: View) -> None:
    ada, bob = (
        View(Http(view.api.of(user=user)), view.server, view.api.of(user=user)) for user in ("ada", "bob")
    )
    id = ada.save("Ada's plan.", facts=[{"subject": "Ada", "predicate": "likes", "object": "tea"}])
    assert bob.missing(id) == f"memory id(s) not found: [{id}]"
    bob.refused("govern_memory", 404, "not_found", ids=[id], action="delete")
    bob.refused("suppress_memory", 404, "not_found", target=f"memory:{id}")
    bob.call("suppress_memory", target="entity:Ada")
    bob.call("suppress_memory", target="pattern:plan")
    assert ada.detail(id) and view.detail(id)
    assert bob.call("search_observations", query="plan")["results"] == []
    view.call("suppress_memory", target=f"memory:{id}")  # names no user and reaches all
    ada.missing(id)
    assert ada.call("unsuppress_memory", target=f"memory:{id}")["changed"] is True
    assert view.detail(id)


def test_purge_leaves_no_word_of_a_memory_behind(view: View) -> None:
    canary = "kestrel-canary"
    saved = save(
        view,
        f"The {canary} plan.",
        title=f"{canary} title",
        project=f"/{canary}",
        topic_key=f"{canary}-key",
        facts=[{"subject": canary, "predicate": "is", "object": "a bird"}],
        files=[f"{canary}.py"],
        evidence_ids=[f"{canary}-evidence"],
    )
    kept = save(view, "Something else, topic other.", topic_key="other")
    for target in (
        f"memory:{saved['id']}",
        f"topic_key:{canary}-key",
        f"entity:{canary}",
        f"pattern:{canary} PLAN",
    ):
        view.call("suppress_memory", target=target)
    view.call("suppress_memory", target="pattern:something ELSE")
    view.details(saved["id"], include_suppressed=True)
    succeeded(view.api.post("/brain/purge", {"memory_id": saved["memory_id"], "wait": True}))
    view.missing(saved["id"], include_suppressed=True)
    for (table,) in query(view.server, "SELECT name FROM sqlite_master WHERE type = 'table'"):
        found = [row for row in query(view.server, f'SELECT * FROM "{table}"') if canary in repr(row).lower()]
        assert found == [], table
    view.missing(kept["id"])  # what hid another one still does


def test_a_purge_of_everything_takes_every_suppression_along(view: View) -> None:
    view.save()
    view.call("suppress_memory", target="pattern:never matched canary", idempotency_key="k")
    succeeded(view.api.post("/brain/purge", {"all": True, "confirm": view.api.agent, "wait": True}))
    for table in ("suppressions", "idempotency"):
        assert query(view.server, f"SELECT * FROM {table} WHERE agent = ?", view.api.agent) == []


def test_forgetting_hides_a_memory_here_too(view: View) -> None:
    saved = save(view, "Forget me.")
    succeeded(view.api.request("DELETE", f"/brain/memory/{saved['memory_id']}"))
    view.missing(saved["id"])
    refused(view.api.get(f"/brain/memory/{saved['memory_id']}"), 410, "memory_forgotten")
