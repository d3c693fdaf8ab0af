"""What a search shows around its results: the versions behind a head, neighbours, linked memories, and how it
all stood at an earlier time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from models.answers import MemoryFields
from service.operations import BY_NAME
from service.schemas import output_schema
from tests.serving import JSON, Api, Server, eventually, fresh, refused, server, succeeded
from tests.state.brains import Clock
from tests.test_as_of import START, lived, steps

FIELDS = set(MemoryFields.__annotations__)


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock(START)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("options"), clock=clock) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@pytest.fixture
def api(served: Server) -> Api:
    return served.api.of(fresh())


def search(api: Api, query: str, **fields: Any) -> list[JSON]:
    """The results of a search, checked against the published schema."""
    answer = api.search(query, **fields)
    jsonschema.validate(answer, output_schema(BY_NAME["brain_memory_search"]))
    assert answer["abstained"] == (not answer["results"])
    scores = [hit["score"] for hit in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    return list(answer["results"])


def texts(memories: list[JSON]) -> list[str]:
    return [memory["content"] for memory in memories]


def add(api: Api, content: str, **fields: Any) -> str:
    memory_id: str = api.add(content, **fields)["memory"]["memory_id"]
    return memory_id


def update(api: Api, memory_id: str, content: str) -> str:
    new: str = succeeded(api.request("PATCH", f"/brain/memory/{memory_id}", {"content": content}))["memory"][
        "memory_id"
    ]
    return new


def link(api: Api, from_id: str, to_id: str, type: str = "related") -> None:
    succeeded(api.request("PUT", f"/brain/links/{from_id}/{type}/{to_id}"))


def versions_of_a_limit(api: Api, clock: Clock) -> list[str]:
    """A chain of three, oldest first, a millisecond apart."""
    ids = [add(api, "The limit is 30 a minute.")]
    for number in (40, 50):
        clock.ms += 1
        ids.append(update(api, ids[-1], f"The limit is {number} a minute."))
    return ids


def talk(api: Api, *said: str, session: str = "s") -> list[str]:
    messages = [{"role": "user", "content": text} for text in said]
    ids: list[str] = api.add(messages=messages, session_id=session)["memory_ids"]
    return ids


# Versions


def test_a_head_names_all_that_led_up_to_it(api: Api, clock: Clock) -> None:
    first, second, third = versions_of_a_limit(api, clock)
    add(api, "Another limit is never reached.")
    hits = search(api, "limit a minute")
    assert hits[0]["memory_id"] == third and hits[0]["chain"] == [second, first]
    assert "chain" not in hits[1], "it replaced nothing"
    assert {first, second}.isdisjoint(hit["memory_id"] for hit in hits)


def test_a_forgotten_version_keeps_its_place_in_the_chain(api: Api, clock: Clock) -> None:
    first, second, third = versions_of_a_limit(api, clock)
    succeeded(api.request("DELETE", f"/brain/memory/{second}"))
    [hit] = search(api, "limit a minute", include_history=True, limit=1)
    assert (hit["memory_id"], hit["chain"]) == (third, [second, first])
    shown = texts(search(api, "limit a minute", include_history=True))
    assert shown == ["The limit is 50 a minute.", "The limit is 30 a minute."]


def test_a_memory_that_replaced_several_names_them_newest_first(api: Api, clock: Clock) -> None:
    ids = []
    for text in ("Lunch is at noon.", "Lunch is in the canteen."):
        ids.append(add(api, text))
        clock.ms += 1
    new = {"content": "Lunch is at one, in the garden.", "supersedes": ids}
    succeeded(api.post("/brain/memory/supersede", new))
    [hit] = search(api, "lunch")
    assert hit["chain"] == ids[::-1]


def test_history_stands_beneath_its_head(api: Api, clock: Clock) -> None:
    versions_of_a_limit(api, clock)
    hits = search(api, "limit is 30 a minute", include_history=True)
    assert texts(hits)[0] == "The limit is 50 a minute."
    assert {hit["status"] for hit in hits[1:]} == {"superseded"} and len(hits) == 3
    assert ["chain" in hit for hit in hits] == [True, False, False]
    assert len(search(api, "limit is 30 a minute")) == 1
    archived = search(api, "limit", include_history=True, statuses=["archived"])
    assert {hit["status"] for hit in archived} == {"superseded"}, "history is found besides what is asked for"


def replaced(api: Api, clock: Clock, **new: Any) -> tuple[str, str]:
    """A memory and the other words that replaced it, among others."""
    old = add(api, "Ann keeps the key of the garden gate.")
    add(api, "The harbour is cold in winter.")
    clock.ms += 1
    body = {"content": "Ask Bob instead.", "supersedes": [old]} | new
    return old, succeeded(api.post("/brain/memory/supersede", body))["memory"]["memory_id"]


ASKED = "who keeps the key of the garden gate"


def test_the_words_of_an_earlier_version_find_what_replaced_it(api: Api, clock: Clock) -> None:
    old, new = replaced(api, clock)
    [best, *others] = search(api, ASKED, explain=True)
    assert (best["memory_id"], best["chain"], best["explain"]["version"]) == (new, [old], old)
    assert best["explain"]["words"] > 0.5 and "words" in best["matched_by"]
    assert not any("version" in hit["explain"] for hit in others)
    assert "version" not in search(api, "ask Bob", explain=True)[0]["explain"], "its own text is nearer"
    last = update(api, new, "Nobody knows.")
    assert search(api, ASKED)[0]["memory_id"] == last, "through all of a chain"
    history = [hit["memory_id"] for hit in search(api, ASKED, include_history=True)]
    assert history[0] == last and {old, new} <= set(history)


def test_an_earlier_version_that_the_filters_leave_out_finds_nothing(api: Api, clock: Clock) -> None:
    _, new = replaced(api, clock, tags=["keys"])
    assert search(api, ASKED)[0]["memory_id"] == new
    assert new not in {hit["memory_id"] for hit in search(api, ASKED, tags=["keys"])}


def test_a_forgotten_version_finds_nothing_any_more(api: Api, clock: Clock) -> None:
    old, new = replaced(api, clock)
    succeeded(api.request("DELETE", f"/brain/memory/{old}"))
    for hit in search(api, ASKED, explain=True):
        assert hit["explain"]["words"] == 0 and "version" not in hit["explain"]
    succeeded(api.request("POST", f"/brain/memory/{old}/restore"))
    assert search(api, ASKED)[0]["memory_id"] == new


# Neighbours


def test_context_shows_the_turns_beside_a_hit(api: Api) -> None:
    talk(api, "zero", "one", "two", "heron", "four", "five", "six")
    talk(api, "elsewhere", session="other")
    [hit] = search(api, "heron", context=2, limit=1)
    assert texts(hit["context"]["before"]) == ["one", "two"]
    assert texts(hit["context"]["after"]) == ["four", "five"]
    for turn in hit["context"]["before"] + hit["context"]["after"]:
        assert set(turn) == FIELDS
    [wide] = search(api, "heron", context=5, limit=1)
    assert texts(wide["context"]["before"]) == ["zero", "one", "two"]
    assert texts(wide["context"]["after"]) == ["four", "five", "six"]
    [plain] = search(api, "heron", limit=1)
    assert "context" not in plain


def test_context_passes_over_turns_that_are_not_asked_for(api: Api) -> None:
    ids = talk(api, "zero", "archived", "forgotten", "heron", "four")
    succeeded(api.request("DELETE", f"/brain/memory/{ids[1]}", params={"mode": "archive"}))
    succeeded(api.request("DELETE", f"/brain/memory/{ids[2]}"))
    [hit] = search(api, "heron", context=1, limit=1)
    assert texts(hit["context"]["before"]) == ["zero"]
    [hit] = search(api, "heron", context=1, limit=1, statuses=["active", "archived"])
    assert texts(hit["context"]["before"]) == ["archived"]


def test_a_memory_without_a_session_has_no_neighbours(api: Api) -> None:
    add(api, "heron")
    add(api, "placed nowhere: ibis", session_id="s")
    for query in ("heron", "ibis"):
        assert search(api, query, context=5)[0]["context"] == {"before": [], "after": []}


# Links


def test_linked_memories_follow_the_results_with_their_path(api: Api) -> None:
    heron = add(api, "The heron is a database.")
    near, far = add(api, "Backups run at night."), add(api, "Tapes lie in the vault.")
    link(api, heron, near, "explains")
    link(api, far, near)
    hits = search(api, "heron database", hops=1, explain=True)
    assert [hit["memory_id"] for hit in hits if "graph" in hit["matched_by"]] == [near]
    hits = search(api, "heron database", hops=1, explain=True, limit=2)
    assert [hit["memory_id"] for hit in hits] == [heron, near]
    assert hits[1]["matched_by"][-1] == "graph" and hits[1]["score"] < hits[0]["score"]
    first = {"from": heron, "to": near, "type": "explains", "weight": 1.0}
    assert hits[1]["explain"]["path"] == [first] and "path" not in hits[0]["explain"]
    hits = search(api, "heron database", hops=2, explain=True, limit=5)
    assert [hit["memory_id"] for hit in hits] == [heron, near, far]
    second = {"from": far, "to": near, "type": "related", "weight": 1.0}
    assert hits[2]["explain"]["path"] == [first, second]
    assert "explain" not in search(api, "heron database", hops=1, limit=2)[1]


def test_linked_memories_keep_to_the_limit_and_the_filters(api: Api, clock: Clock) -> None:
    heron = add(api, "The heron is a database.", tags=["t"])
    for number, layer in enumerate(("l2_fact", "l5_knowledge", "l2_fact", "l2_fact")):
        link(api, heron, add(api, f"Linked {number}.", layer=layer, tags=["t"] * (number % 2)))
    old = add(api, "Linked, and replaced.")
    link(api, heron, old)
    update(api, old, "The replacement.")

    def linked(**fields: Any) -> set[str]:
        hits = search(api, "heron database", **fields)
        by_graph = ["graph" in hit["matched_by"] for hit in hits]
        assert by_graph == sorted(by_graph), "after the others"
        return {hit["content"] for hit in hits if "graph" in hit["matched_by"]}

    assert linked() == set()
    assert linked(hops=1) == {f"Linked {number}." for number in range(4)}
    assert len(linked(hops=1, limit=4)) == 2 and len(search(api, "heron", hops=1, limit=4)) == 4
    assert linked(hops=1, limit=1) == set()
    assert linked(hops=1, tags=["t"]) == {"Linked 1.", "Linked 3."}
    assert linked(hops=1, layers=["l2_fact"], tags=["t"]) == {"Linked 3."}
    assert "Linked, and replaced." in linked(hops=1, include_history=True, limit=20)
    assert "The replacement." in linked(hops=2, limit=20), "through what is not shown itself"


def test_nothing_is_linked_to_no_results(api: Api) -> None:
    link(api, add(api, "The heron is a database."), add(api, "Backups run at night."))
    answer = api.search("unrelated zebra", hops=2)
    assert (answer["results"], answer["abstained"]) == ([], True)


def test_a_link_to_another_user_is_followed_as_far_as_the_caller_reaches(api: Api) -> None:
    mine, other = api.of(user="mine"), api.of(user="other")
    heron, theirs = add(mine, "The heron is a database."), add(other, "Not for everybody.")
    link(api, heron, theirs)
    assert texts(search(mine, "heron database", hops=2)) == ["The heron is a database."]
    assert texts(search(api, "heron database", hops=1, limit=2)) == texts(
        [mine.memory(heron), other.memory(theirs)]
    )


# An earlier time


@settings(
    max_examples=10,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps)
def test_a_search_finds_what_was_there_at_every_moment(served: Server, clock: Clock, done: list[Any]) -> None:
    api = served.api.of(fresh())
    model, moments = lived(api, clock, done)
    for time in moments:
        for status in ("active", "archived"):
            stood = [model.expected(memory_id, time) for memory_id in model.now]
            expected = {(s.content, s.tags) for s in stood if not isinstance(s, str) and s.status == status}
            found = search(api, "one two three", as_of=time, statuses=[status], limit=100)
            shown = {(hit["content"], tuple(hit["tags"])) for hit in found}
            # Equal texts take one place.
            assert shown <= expected and {c for c, _ in shown} == {c for c, _ in expected}


def test_everything_around_a_result_is_as_of_then_too(api: Api, clock: Clock) -> None:
    first, second, _ = versions_of_a_limit(api, clock)
    backups, tapes = add(api, "Backups run at night."), add(api, "Tapes lie in the vault.")
    link(api, second, backups)
    turn = talk(api, "zero", "heron", session=fresh())[0]
    then = clock.ms - 1  # when the second version was the head
    linked = clock.ms
    clock.ms += 5
    succeeded(api.request("DELETE", f"/brain/links/{second}/related/{backups}"))
    link(api, second, tapes)
    succeeded(api.request("DELETE", f"/brain/memory/{turn}", params={"mode": "archive"}))
    [hit] = search(api, "limit a minute", as_of=then)
    assert (hit["memory_id"], hit["chain"], hit["is_latest"]) == (second, [first], True)
    assert hit["superseded_by"] is None and hit["status"] == "active"
    assert len(search(api, "limit a minute", as_of=then, include_history=True)) == 2
    around = {"hops": 2, "include_history": True}
    for at, expected in ((linked, "Backups run at night."), (clock.ms, "Tapes lie in the vault.")):
        hits = search(api, "limit a minute", as_of=at, **around)
        assert [hit["content"] for hit in hits if "graph" in hit["matched_by"]] == [expected]
    [hit] = search(api, "heron", as_of=linked, context=1, limit=1)
    assert texts(hit["context"]["before"]) == ["zero"]
    assert search(api, "heron", context=1)[0]["context"]["before"] == []
    assert search(api, "limit a minute", as_of=START - 1) == []


def test_what_was_forgotten_since_stays_hidden(api: Api, clock: Clock) -> None:
    heron = add(api, "The heron is a database.")
    turns = talk(api, "secret", "ibis")
    link(api, turns[1], heron)
    clock.ms += 1
    for memory_id in (heron, turns[0]):
        succeeded(api.request("DELETE", f"/brain/memory/{memory_id}"))
    assert search(api, "heron database", as_of=clock.ms - 1) == []
    hits = search(api, "ibis", as_of=clock.ms - 1, context=5, hops=2)
    assert texts(hits) == ["ibis"] and hits[0]["context"]["before"] == []


def test_validity_is_judged_as_of_then(api: Api, clock: Clock) -> None:
    add(api, "The heron is a database.", valid_until=clock.ms + 5)
    clock.ms += 10
    [then], [now] = search(api, "heron", as_of=clock.ms - 10), search(api, "heron")
    assert then["speculate"] is None and now["speculate"] is not None


def test_the_past_is_that_of_the_caller_only(api: Api, clock: Clock) -> None:
    mine, other = api.of(user="mine"), api.of(user="other")
    add(mine, "The heron is mine.")
    add(other, "The heron is another's.")
    assert texts(search(mine, "heron", as_of=clock.ms)) == ["The heron is mine."]
    assert len(search(api, "heron", as_of=clock.ms)) == 2
    assert search(api.of(agent=fresh()), "heron", as_of=clock.ms) == []


def test_a_search_of_the_past_leaves_the_present_as_it_is(api: Api, served: Server, clock: Clock) -> None:
    versions_of_a_limit(api, clock)
    before = search(api, "limit a minute", include_history=True)
    size = served.brain.residents.size_bytes
    search(api, "limit a minute", as_of=clock.ms - 2)
    assert served.brain.residents.size_bytes == size
    assert texts(search(api, "limit a minute", include_history=True)) == texts(before)


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("context", 6), ("context", -1), ("context", True), ("hops", 3), ("hops", -1), ("hops", 1.0),
        ("include_history", 1), ("as_of", "now"), ("as_of", 10**15), ("as_of", 1.5),
    ],
)  # fmt: skip
def test_an_option_out_of_its_bounds_is_refused(api: Api, field: str, bad: Any) -> None:
    answer = api.post("/brain/memory/search", {"query": "heron", field: bad})
    refused(answer, 422, "invalid_argument", field)


def test_without_weights_for_late_interaction_nothing_is_looked_at_again(tmp_path: Path) -> None:
    weights = {"message.late": 0, "plain.late": 0, "multilingual.late": 0}
    with server(tmp_path, search={"weights": weights}) as plain:
        plain.api.add("The deploy day is Tuesday.")
        [hit] = plain.api.search("deploy day", explain=True)["results"]
        assert "late" not in hit["explain"]["terms"] and hit["explain"]["terms"]["dense"] is not None
