"""What rests on a memory is flagged when that falls, and stays so until somebody has reviewed it."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.serving import Api, refused, succeeded
from tests.test_amendments import delete, restore, supersede
from tests.test_facts import add as state_fact
from tests.test_facts import id_of

pytest_plugins = ["tests.serving_fixtures"]
JSON = dict[str, Any]


def add(api: Api, content: str, **fields: Any) -> str:
    return id_of(api.add(content, **fields))


def flags(api: Api, memory_id: str) -> list[str]:
    """What it rests on and lost; checked against all that shows it."""
    got = api.memory(memory_id, include="details")
    found: list[str] = got["details"]["fallen"]
    assert (got["speculate"] is not None) == bool(found)
    assert (got["details"]["speculation_rule"] == "evidence_fell") == bool(found)
    assert (got["details"]["review_due_at"] is not None) == bool(found)
    return found


def say(api: Api, memory_id: str, verdict: str) -> JSON:
    return succeeded(api.post(f"/brain/memory/{memory_id}/feedback", {"verdict": verdict}))


def replace(api: Api, memory_id: str) -> None:
    assert supersede(api, "Known better now.", memory_id).status_code == 201


FALLS: dict[str, Callable[[Api, str], Any]] = {
    "superseded": replace,
    "forgotten": delete,
    "archived": lambda api, id: delete(api, id, mode="archive"),
    "negated": lambda api, id: say(api, id, "wrong"),
}


@pytest.mark.parametrize("how", FALLS)
def test_all_that_rests_on_a_memory_directly_or_not_is_flagged(api: Api, how: str) -> None:
    ground = add(api, "The bridge bears ten tons.", layer="l2_fact")
    first = add(api, "The lorry may pass.", evidence_ids=[ground])
    second = add(api, "All lorries may pass.", layer="l6_schema", evidence_ids=[first])
    aside = add(api, "The lorry is red.")
    FALLS[how](api, ground)
    assert (flags(api, first), flags(api, second)) == ([ground], [ground])
    assert flags(api, aside) == []


def test_what_was_derived_is_flagged_as_well(api: Api) -> None:
    raw = add(api, "I heard ten tons.", layer="l1_raw")
    derived = add(api, "The bridge bears ten tons.", source_raw_memory_id=raw)
    succeeded(delete(api, raw))
    assert flags(api, derived) == [raw]


def test_a_restored_source_clears_nothing_and_a_review_does(api: Api) -> None:
    ground = add(api, "The bridge bears ten tons.")
    first = add(api, "The lorry may pass.", evidence_ids=[ground])
    succeeded(delete(api, ground))
    succeeded(restore(api, ground))
    assert flags(api, first) == [ground]
    say(api, first, "useful")
    assert flags(api, first) == [ground], "only a review clears it"
    say(api, first, "confirmed")
    assert flags(api, first) == []
    succeeded(delete(api, ground))
    assert flags(api, first) == [ground], "and it may fall again"


def test_what_rests_on_a_contested_memory_is_flagged_unless_the_other_side_is_lower(api: Api) -> None:
    ground = id_of(state_fact(api, "Porto", source_authority="team", frame="a"))
    above = add(api, "Write to Porto.", evidence_ids=[ground])
    state_fact(api, "Lisbon", frame="b")
    assert flags(api, above) == [], "a lower authority casts no doubt"
    state_fact(api, "Faro", source_authority="team", frame="c")
    assert flags(api, above) == [ground]


def test_what_lost_to_a_higher_authority_takes_what_rests_on_it_along(api: Api) -> None:
    ground = id_of(state_fact(api, "Porto", memory_at=2000))
    above = add(api, "Write to Porto.", evidence_ids=[ground])
    state_fact(api, "Lisbon", source_authority="policy", memory_at=1000)
    assert api.memory(ground)["status"] == "conflicted" and flags(api, above) == [ground]


def test_what_is_written_or_linked_on_fallen_ground_is_flagged_at_once(api: Api) -> None:
    ground = add(api, "The bridge bears ten tons.")
    first = add(api, "The lorry may pass.", evidence_ids=[ground])
    replace(api, ground)
    late = add(api, "Lorries may always pass.", evidence_ids=[ground])
    later = add(api, "And buses.", evidence_ids=[first])
    linked = add(api, "And trams.")
    above = add(api, "And trains.", evidence_ids=[linked])
    succeeded(api.request("PUT", f"/brain/links/{ground}/evidence_for/{linked}"))
    assert (flags(api, late), flags(api, linked), flags(api, above)) == ([ground], [ground], [ground])
    assert flags(api, later) == [first]


def test_a_successor_that_names_what_it_replaced_as_its_evidence_knows_of_it(api: Api) -> None:
    ground = add(api, "The bridge bears ten tons.")
    new = supersede(api, "The bridge bears twelve tons.", ground, evidence_ids=[ground]).json()
    assert flags(api, id_of(new)) == []


def test_new_content_does_not_take_the_flag_away(api: Api) -> None:
    ground = add(api, "The bridge bears ten tons.")
    first = add(api, "The lorry may pass.", evidence_ids=[ground])
    succeeded(delete(api, ground))
    new = succeeded(api.request("PATCH", f"/brain/memory/{first}", {"content": "The lorry may pass now."}))
    assert flags(api, id_of(new)) == [ground]


def test_a_flagged_memory_is_never_current_in_silence(api: Api) -> None:
    ground = add(api, "The bridge bears ten tons.")
    add(api, "The lorry may pass the bridge.", evidence_ids=[ground])
    succeeded(delete(api, ground))
    [hit] = api.search("May the lorry pass the bridge?")["results"]
    assert hit["speculate"].startswith("may no longer hold")


def test_a_derived_memory_has_the_lowest_authority_of_what_it_was_drawn_from(api: Api) -> None:
    raw = add(api, "Somebody said so.", layer="l1_raw")
    low, high = add(api, "Low."), add(api, "High.", source_authority="official")
    fields = {"source_authority": "policy"}
    assert (
        api.add("So it is.", source_raw_memory_id=raw, **fields)["memory"]["source_authority"] == "informal"
    )
    for layer in ("l3_summary", "l6_schema"):
        drawn = api.add(f"In sum {layer}.", layer=layer, evidence_ids=[high], **fields)["memory"]
        assert (drawn["source_authority"], drawn["confidence"]) == ("official", 0.72)
        answer = api.request("PUT", f"/brain/links/{low}/evidence_for/{drawn['memory_id']}")
        refused(answer, 409, "conflict_state")
    stated = api.add("Stated.", evidence_ids=[low], **fields)["memory"]
    assert stated["source_authority"] == "policy", "evidence alone derives nothing"
    answer = api.request("PUT", f"/brain/links/{stated['memory_id']}/derived_from/{raw}")
    refused(answer, 409, "conflict_state")


def test_an_equal_summary_of_lower_grounds_is_kept_beside(api: Api) -> None:
    low, high = add(api, "Low."), add(api, "High.", source_authority="team")
    fields = {"layer": "l3_summary", "source_authority": "team"}
    first = api.add("In sum.", evidence_ids=[high], **fields)
    second = api.add("In sum.", evidence_ids=[low], **fields)
    assert second["deduplicated"] is False and second["memory"]["source_authority"] == "informal"
    assert api.memory(id_of(first), include="details")["details"]["evidence_ids"] == [high]


def test_evidence_is_shown_with_what_became_of_it(api: Api) -> None:
    ground = add(api, "The bridge bears ten tons.", actor="Ann")
    other = add(api, "So says the sign.", actor="Bob")
    above = add(api, "The lorry may pass.", evidence_ids=[ground, other], actor="Eve")
    replace(api, other)
    found = api.memory(above, include="evidence")["evidence"]
    assert [(one["memory_id"], one["status"], one["counted"]) for one in found] == [
        (ground, "active", True), (other, "superseded", False),
    ]  # fmt: skip
