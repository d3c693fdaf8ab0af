"""GET /brain/memory/{id}: the seed's twenty fields, from both stores, and the entity tag."""

import re
from pathlib import Path

import jsonschema
import pytest

from models.layers import LAYERS
from service.operations import BY_NAME
from service.schemas import output_schema
from tests.serving import JSON, Api, Server, fresh, refused, server

pytest_plugins = ["tests.serving_fixtures"]

FIELDS = {
    "tags", "layer", "custom", "source", "status", "content", "user_id", "agent_id", "is_latest", "memory_at",
    "memory_id", "speculate", "confidence", "elapsed_ms", "request_id", "supersedes", "gmt_created",
    "superseded_by", "source_authority", "source_raw_memory_id",
}  # fmt: skip
OF_THE_CALL = {"source", "elapsed_ms", "request_id"}
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
layers = pytest.mark.parametrize("layer", LAYERS)
schema = output_schema(BY_NAME["brain_memory_get"])


def of_the_memory(answer: JSON) -> JSON:
    return {name: value for name, value in answer.items() if name not in OF_THE_CALL}


@layers
def test_a_memory_written_with_nothing_but_text_has_the_twenty_fields(api: Api, layer: str) -> None:
    added = api.add("Nothing but text.", layer=layer)["memory"]
    answer = api.memory(added["memory_id"])
    jsonschema.validate(answer, schema)
    assert set(answer) == FIELDS
    assert UUID7.fullmatch(answer.pop("memory_id"))
    assert type(answer.pop("gmt_created")) is int
    assert answer.pop("elapsed_ms") >= 0 and answer.pop("request_id")
    assert answer.pop("source") in ("vdb", "graph")
    assert answer == {
        "content": "Nothing but text.",
        "layer": layer,
        "status": "active",
        "is_latest": True,
        "supersedes": None,
        "superseded_by": None,
        "tags": [],
        "custom": {},
        "user_id": "default",
        "agent_id": api.agent,
        "memory_at": None,
        "speculate": None,
        "confidence": 0.7,
        "source_authority": "informal",
        "source_raw_memory_id": None,
    }


@layers
def test_a_memory_written_with_everything_gives_it_back(api: Api, layer: str) -> None:
    raw = api.add("What was said.", layer="l1_raw", source_authority="official")["memory"]["memory_id"]
    given: JSON = {
        "layer": layer,
        "tags": ["b", "a"],
        "memory_at": 1_700_000_000_123,
        "source_authority": "official",
        "source_raw_memory_id": raw,
    }
    added = api.of(user="alex").try_add("What follows from it.", **given)
    refused(added, 422, "invalid_argument", "source_raw_memory_id")  # alex does not read the default user's
    id = api.add("What follows from it.", **given, metadata={"k": [1]}, confidence=0.5)["memory"]["memory_id"]
    answer = api.memory(id)
    jsonschema.validate(answer, schema)
    assert {name: answer[name] for name in given} == given
    assert (answer["custom"], answer["confidence"]) == ({"k": [1]}, 0.5)


@layers
def test_the_vector_store_and_the_graph_give_the_same_answer(
    shared_server: Server, api: Api, layer: str
) -> None:
    ids = [
        api.add("Cold and warm.", layer=layer)["memory"]["memory_id"],
        api.add("Warm and cold: ⛄", layer=layer, memory_at=-5, metadata={"x": None, "f": 2.50}, tags=["t"],
                valid_until=1, kind="message", actor="Mel", session_id="s")["memory"]["memory_id"],
    ]  # fmt: skip
    shared_server.settle()
    for id in ids:
        shared_server.evict(api)
        cold = api.memory(id, include="details")
        api.search("warm")  # loads the partition
        warm = api.memory(id, include="details")
        assert (cold["source"], warm["source"]) == ("vdb", "graph")
        assert of_the_memory(cold) == of_the_memory(warm)


def test_a_memory_that_waits_for_the_vector_store_is_read_from_the_ledger(tmp_path: Path) -> None:
    with server(tmp_path, vdb={"read_deadline_ms": 1, "gather_ms": 0}) as running:
        id = running.api.add("Read at once.")["memory"]["memory_id"]
        answer = running.api.memory(id)
        assert (answer["content"], answer["source"]) == ("Read at once.", "graph")


def test_after_a_restart_a_memory_is_read_from_the_vector_store_first(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        first = running.api.add("Here to stay.", metadata={"n": 1.0})["memory"]
        running.settle()
    with server(tmp_path) as running:
        cold = running.api.memory(first["memory_id"])
        running.api.search("stay")
        warm = running.api.memory(first["memory_id"])
    assert (cold["source"], warm["source"]) == ("vdb", "graph")
    assert of_the_memory(cold) == of_the_memory(warm) == of_the_memory(first)


def test_details_are_one_more_key_and_nothing_else_is_known(api: Api) -> None:
    id = api.add("Told by Mel.", actor="Mel", frame="team-a", confidence=0.25)["memory"]["memory_id"]
    answer = api.memory(id, include="details")
    jsonschema.validate(answer, schema)
    assert set(answer) == FIELDS | {"details"}
    details = answer["details"]
    assert (details["actor"], details["frame"], details["stated_confidence"]) == ("Mel", "team-a", 0.25)
    assert (details["version"], details["kind"], details["session_position"]) == (1, "memory", None)
    for wrong in ({"include": "everything"}, {"include": ""}):
        refused(api.get(f"/brain/memory/{id}", params=wrong), 422, "invalid_argument", "include[0]")
    refused(
        api.get(f"/brain/memory/{id}", params={"includes": "details"}), 422, "invalid_argument", "includes"
    )


def test_an_expired_memory_is_said_to_be_probably_no_longer_current(api: Api) -> None:
    id = api.add("The offer stands.", valid_until=1000)["memory"]["memory_id"]
    answer = api.memory(id, include="details")
    assert answer["speculate"] == "probably no longer current: valid until 1000 (epoch ms)"
    assert answer["details"]["speculation_rule"] == "validity_expired"


def test_the_entity_tag_is_weak_and_answers_304_until_the_memory_changes(api: Api) -> None:
    id = api.add("Tag me.")["memory"]["memory_id"]
    path = f"/brain/memory/{id}"
    tag = api.get(path).headers["etag"]
    assert tag.startswith('W/"')
    for held in (tag, f'"other", {tag}', tag.removeprefix("W/"), "*"):
        unchanged = api.get(path, headers={"if-none-match": held})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["etag"] == tag and unchanged.headers["x-request-id"]
    assert api.add("tag  ME.", tags=["new"])["deduplicated"]
    changed = api.get(path, headers={"if-none-match": tag})
    assert (changed.status_code, changed.json()["tags"]) == (200, ["new"])
    assert changed.headers["etag"] != tag


def test_a_head_request_has_the_headers_of_a_get_and_no_body(api: Api) -> None:
    id = api.add("Only headers.")["memory"]["memory_id"]
    head = api.request("HEAD", f"/brain/memory/{id}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["etag"] == api.get(f"/brain/memory/{id}").headers["etag"]


@pytest.mark.parametrize(
    "name",
    ["🦊", "%ff", "a" * 5000, "null", "0", "%0a", "a%20b", "search", "..%09", "018f3e5a",
     "018f3e5a-0000-4000-8000-000000000000", "018f3e5a-0000-7000-8000-000000000000"],
)  # fmt: skip
def test_what_is_not_the_id_of_a_memory_is_not_found(api: Api, name: str) -> None:
    refused(api.get(f"/brain/memory/{name}"), 404, "memory_not_found")


@pytest.mark.parametrize("name", ["", "..%2f", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "a%2fb", "%00", "id%00"])
def test_a_path_that_no_id_can_stand_in_is_no_route(api: Api, name: str) -> None:
    refused(api.get(f"/brain/memory/{name}"), 404, "not_found")


def test_an_id_is_only_known_as_it_was_given(api: Api) -> None:
    id = api.add("Lower case.")["memory"]["memory_id"]
    for other in (id.upper(), id.replace("-", ""), f"%20{id}", f"{id}%0a", "{" + id + "}"):
        refused(api.get(f"/brain/memory/{other}"), 404, "memory_not_found")
    refused(api.get(f"/brain/memory/{id}", params={"memory_id": fresh()}), 422, "invalid_argument")
