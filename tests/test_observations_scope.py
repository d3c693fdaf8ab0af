"""The observations view shows nothing of other agents and users: their ids are answered exactly like ids that
never existed, in every place that takes one, through both doors."""

import json
from typing import Any

import pytest

from service.operations_observations import OPERATIONS
from tests.observing import Http, View
from tests.serving import JSON, fresh

pytest_plugins = ["tests.observing_fixtures"]

MISSING = 7_777
NEW: JSON = {"type": "change", "title": "Mine now."}

# Every place that takes the id of a row, with its source and what else it needs.
PLACES: list[tuple[str, str, str, JSON]] = [
    ("get_observations", "ids", "memory", {"include_suppressed": True}),
    ("get_observations", "ids", "observation", {"source": "observation"}),
    ("get_observations", "ids", "session_summary", {"source": "session_summary"}),
    ("compress_observations", "ids", "observation", {"replacement": NEW}),
    ("govern_memory", "ids", "memory", {"action": "delete"}),
    ("govern_memory", "ids", "memory", {"action": "reject", "dry_run": True}),
    ("set_session_label", "id", "session_summary", {"topic": "Mine"}),
    ("observation_timeline", "id", "observation", {}),
    ("observation_timeline", "id", "memory", {"source": "memory"}),
]
TAKE_NONE = {
    "add_observation", "search_observations", "add_session_summary", "save_memory", "suppress_memory",
    "unsuppress_memory",
}  # fmt: skip


def test_every_operation_that_takes_an_id_has_its_row() -> None:
    assert {operation.name for operation in OPERATIONS} == TAKE_NONE | {name for name, _, _, _ in PLACES}


@pytest.fixture
def others(view: View) -> dict[str, int]:
    """Ids by source of another user of the agent."""
    other = View(Http(view.api.of(user="other")), view.server, view.api.of(user="other"))
    session = {"host": "h", "project": "/repo", "session_id": "s"}
    return {
        "memory": other.save("canary of another"),
        "observation": other.observe("canary of another, seen"),
        "session_summary": other.sum_up("canary of another, asked", **session),
    }


@pytest.mark.parametrize(("name", "place", "source", "rest"), PLACES, ids=str)
def test_an_id_of_another_user_is_answered_like_one_that_never_was(
    view: View, others: dict[str, int], name: str, place: str, source: str, rest: JSON
) -> None:
    me = View(Http(view.api.of(user="me")), view.server, view.api.of(user="me"))

    def answer(id: int) -> Any:
        status, document = me.door.ask(name, {**rest, place: [id] if place == "ids" else id})
        document.pop("request_id")
        return json.loads(json.dumps([status, document]).replace(str(id), "ID"))

    assert answer(others[source]) == answer(MISSING)
    assert answer(MISSING)[0] == 404
    shown = View(Http(view.api.of(user="other")), view.server, view.api.of(user="other"))
    assert shown.detail(others["memory"])["status"] == "active"


def test_a_suppression_target_tells_nothing_of_another_users_ids(view: View, others: dict[str, int]) -> None:
    me = View(Http(view.api.of(user="me")), view.server, view.api.of(user="me"))
    for id in (others["memory"], MISSING):
        problem = me.refused("suppress_memory", 404, "not_found", target=f"memory:{id}")
        assert problem["detail"] == f"memory id(s) not found: [{id}]"


def test_evidence_says_nothing_of_others_ids(view: View) -> None:
    other = view.api.of(user="other").add("canary of another")["memory"]["memory_id"]
    elsewhere = view.api.of(fresh("elsewhere")).add("canary of another")["memory"]["memory_id"]
    me = View(Http(view.api.of(user="me")), view.server, view.api.of(user="me"))
    shown = []
    for evidence in (other, elsewhere, "018f3e5a-0000-7000-8000-000000000000"):
        answer = me.call("save_memory", text=f"Rests on {len(shown)}.", evidence_ids=[evidence])
        memory = me.api.memory(answer["memory_id"], include="details,evidence")
        assert memory["details"]["evidence_ids"] == [] == memory["evidence"]
        shown.append(me.detail(answer["id"])["classification"])
    assert len(set(shown)) == 1


def test_agents_have_ids_of_their_own(view: View) -> None:
    other = view.api.of(fresh("observer"))
    theirs = View(Http(other), view.server, other)
    assert view.save("Mine.") == theirs.save("Theirs.") == 1
    assert view.detail(1)["text"] == "Mine." and theirs.detail(1)["text"] == "Theirs."
    view.missing(2)
    found = view.call("search_observations", query="theirs mine")["results"]
    assert [hit["title"] for hit in found] == ["Mine."]


def test_without_a_user_the_whole_agent_is_read(view: View, others: dict[str, int]) -> None:
    assert view.detail(others["memory"])["text"] == "canary of another"
    found = view.call("search_observations", query="canary of another")["results"]
    assert len(found) == 3
    # But observations of another user are not merged into one of the default user's.
    view.refused(
        "compress_observations", 422, "invalid_argument", "ids", ids=[others["observation"]], replacement=NEW
    )
