"""Whether a memory counts as current: the contract's rules as a table, each row the first rule that holds."""

from dataclasses import replace
from typing import Any

import pytest

from models.classification import classify
from models.layers import STATUSES
from models.memory import Memory, State
from models.observation_view import (
    first_line,
    in_project,
    layer_of,
    made_at,
    rfc3339,
    shown_status,
    title_of,
    updated_at,
)
from models.provenance import MemoryDetails, ObservationDetails, Provenance
from models.scope import Partition

NOW = 1_000_000
PROVED: dict[str, Any] = {"evidence_ids": ("e",), "stated_confidence": 0.8, "valid_from": 1}


def memory(trust: Any = "agent", details: dict[str, Any] | None = None, **state: Any) -> Memory:
    values = PROVED | state
    provenance = Provenance(
        topic_key=values.pop("topic_key", None), expires_at=values.pop("expires_at", None)
    )
    return Memory(
        memory_id="m",
        partition=Partition("p", "a", "u"),
        kind="memory",
        layer="l2_fact",
        content="One.\nTwo.",
        source_authority="informal",
        gmt_created=NOW - 10,
        seq=1,
        number=1,
        project="/repo",
        details=MemoryDetails(source_trust_class=trust, **(details or {})),
        state=State(provenance=provenance, **values),
    )


QUARANTINED: Any = {"status": "quarantined"}
SUPERSEDED: Any = {"status": "superseded"}
DECISION = {"memory_type": "decision"}


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (memory(), "current_eligible"),
        (memory(**QUARANTINED, expires_at=1), "status_quarantined"),
        (memory(valid_until=NOW), "validity_expired"),
        (memory(valid_until=NOW + 1), "current_eligible"),
        (memory(expires_at=NOW), "validity_expired"),
        (memory(expires_at=NOW + 1), "current_eligible"),
        (memory(**SUPERSEDED, expires_at=NOW - 1), "validity_expired"),
        (memory(**SUPERSEDED, valid_from=NOW + 1), "status_superseded"),
        (memory(valid_from=NOW + 1), "validity_not_yet_started"),
        (memory(valid_from=NOW), "current_eligible"),
        (memory(status="archived", valid_from=NOW + 1), "validity_not_yet_started"),
        (memory(status="archived"), "status_inactive"),
        (memory(status="negated"), "status_inactive"),
        (memory(status="conflicted"), "status_inactive"),
        (memory("user_prompt", evidence_ids=(), stated_confidence=None, valid_from=None), "current_eligible"),
        (memory("user_prompt", status="archived"), "status_inactive"),
        (memory(evidence_ids=()), "legacy_unverified_provenance_missing"),
        (memory(evidence_ids=("e", "x")), "legacy_unverified_provenance_malformed"),
        (memory(details={"evidence": ("x",)}), "legacy_unverified_provenance_malformed"),
        (memory(evidence_ids=(), details={"evidence": ("e",)}), "current_eligible"),
        (memory(stated_confidence=None), "legacy_unverified_confidence_missing"),
        (memory(stated_confidence=0.79), "legacy_unverified_confidence_below_floor"),
        (memory(stated_confidence=0.80), "current_eligible"),
        (memory(valid_from=None), "legacy_unverified_validity_start_missing"),
        (memory(evidence_ids=("x",), stated_confidence=None), "legacy_unverified_provenance_malformed"),
        (memory(stated_confidence=None, valid_from=None), "legacy_unverified_confidence_missing"),
    ],
)
def test_the_first_rule_that_holds_decides(one: Memory, reason: str) -> None:
    verdict = classify(one, NOW, {"e"}, rival=False)
    assert verdict.reason == reason
    assert verdict.eligible is (verdict.name == "current") is (reason == "current_eligible")
    names = {"status": verdict.name, "validity": verdict.name, "legacy": "legacy_unverified"}
    assert verdict.name == {
        "status_quarantined": "quarantined",
        "status_superseded": "superseded",
        "status_inactive": "inactive",
        "validity_expired": "expired",
        "validity_not_yet_started": "not_yet_valid",
        "current_eligible": "current",
    }.get(reason, names["legacy"])


@pytest.mark.parametrize(
    ("one", "doubted"),
    [
        (memory(topic_key="k", details=DECISION), True),
        (memory(topic_key="k", details={"memory_type": "architecture"}), True),
        (memory(topic_key="k", details={"memory_type": "preference"}), True),
        (memory(topic_key="k", details={"memory_type": "lesson"}), False),
        (memory(topic_key=" ", details=DECISION), False),
        (memory(details=DECISION), False),
        (memory("user_prompt", topic_key="k", details=DECISION), False),
    ],
)
def test_a_rival_puts_only_keyed_rows_of_mutable_types_in_doubt(one: Memory, doubted: bool) -> None:
    assert classify(one, NOW, {"e"}, rival=False).eligible
    verdict = classify(one, NOW, {"e"}, rival=True)
    reason = "legacy_unverified_mutable_state_identity_missing"
    assert verdict.reason == (reason if doubted else "current_eligible")


def test_a_row_that_has_vanished_is_unverified() -> None:
    verdict = classify(None, NOW, (), rival=False)
    assert (verdict.name, verdict.reason) == ("legacy_unverified", "legacy_unverified_row_missing")


def test_each_status_has_its_name_in_this_view() -> None:
    shown = {status: shown_status(memory(status=status)) for status in STATUSES}
    assert shown == {status: status for status in STATUSES} | {"negated": "rejected"}
    for reason in ("stale", "deleted", "expired", "compressed"):
        assert shown_status(memory(status="archived", status_reason=reason)) == reason
    assert shown_status(memory(status="archived", status_reason="spring cleaning")) == "archived"
    assert shown_status(memory(status="active", status_reason="stale")) == "active"


def test_times_and_titles() -> None:
    one = memory()
    assert made_at(one) == updated_at(one, one.gmt_created) == one.gmt_created
    stated = memory(details={"created_at": 0})
    assert made_at(stated) == updated_at(stated, stated.gmt_created) == 0
    assert updated_at(stated, NOW) == NOW
    assert title_of(one) == "One." and title_of(memory(details={"title": "T"})) == "T"
    assert first_line("\n  \n x\n") == "x" and first_line("é" * 90) == "é" * 80
    assert rfc3339(1_735_660_800_999) == "2024-12-31T16:00:00Z"
    assert rfc3339(-62_135_596_800_000) == "0001-01-01T00:00:00Z"
    assert layer_of("preference") == "l4_identity" and layer_of("x") == "l2_fact"


def test_only_a_memory_is_ever_seen_from_another_project() -> None:
    shared = memory(details={"shared": "global"})
    observation = replace(memory(), kind="observation", details=ObservationDetails("change"))
    assert in_project(shared, "/other") and not in_project(memory(), "/other")
    assert in_project(observation, "/repo") and not in_project(observation, "/other")
    assert in_project(replace(memory(), project=""), "")
    assert not in_project(replace(observation, project=""), "")
    assert in_project(replace(observation, project=""), None)
