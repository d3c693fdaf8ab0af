"""Public faults of systems like this one, tried on ours: the cases of the collection, by number. Case 1 is in
test_http_metadata.py, case 17 in test_http_scope.py."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from models.embedding import Encoder
from tests.serving import JSON, Api, refused, server

pytest_plugins = ["tests.serving_fixtures", "tests.embedding_fixtures"]

SEARCH = "/brain/memory/search"
ROWS = 6_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """6,000 memories that share a word, on a server of their own: nobody waits until Chroma has them all."""
    with server(tmp_path_factory.mktemp("large")) as running:
        for start in range(0, ROWS, 1000):
            items = [{"content": f"shared item {number}"} for number in range(start, start + 1000)]
            assert all(result["status"] == 201 for result in running.api.batch(items)["results"])
        yield running.api


@pytest.mark.parametrize("limit", [1, 10, 100])
def test_case_4_a_limit_is_kept_over_many_rows(large: Api, limit: int) -> None:
    answer = large.search("shared item 4711", limit=limit)
    assert len(answer["results"]) == limit
    assert answer["total_candidates"] == ROWS
    assert answer["results"][0]["content"] == "shared item 4711"
    assert len({hit["memory_id"] for hit in answer["results"]}) == limit


@pytest.mark.parametrize("limit", [101, 4097, 10**6, 0, -1, "5", 2.0, None, [5]])
def test_case_4_a_limit_that_is_not_kept_is_refused(large: Api, limit: Any) -> None:
    refused(large.post(SEARCH, {"query": "shared", "limit": limit}), 422, "invalid_argument", "limit")


def hits(api: Api, **filters: Any) -> set[str]:
    return {hit["content"] for hit in api.search("tagged", limit=100, **filters)["results"]}


def test_case_5_tags_are_whole_words_in_a_list(api: Api) -> None:
    for name, tags in {"one": ["test"], "two": ["a", "b"], "none": [], "other": ["hoi4"], "a": ["a"]}.items():
        added = api.add(f"tagged {name}", tags=tags)["memory"]
        assert added["tags"] == tags == api.memory(added["memory_id"])["tags"]
    assert api.add("unlike the others", tags=["b", "a", "b"])["memory"]["tags"] == ["b", "a"]
    refused(api.try_add("tagged text", tags="a,b"), 422, "invalid_argument", "tags")
    assert hits(api, tags=["a", "b"]) == {"tagged two", "tagged a", "unlike the others"}
    assert hits(api, tags=["a", "b"], tags_match="all") == {"tagged two", "unlike the others"}
    assert hits(api, tags=["b", "a", "b"], tags_match="all") == {"tagged two", "unlike the others"}
    assert hits(api, tags=["hoi"]) == hits(api, tags=["t"]) == hits(api, tags=["a,b"]) == set()
    assert hits(api, tags=["hoi4"]) == {"tagged other"}
    assert len(hits(api, tags=[])) == 6
    assert api.list(tag="hoi")["total"] == 0


def test_case_5_a_tag_may_be_any_text(api: Api) -> None:
    tags = ["a,b", " ", "A", "é", "🦊", "x" * 128, '"', "%", "a;b"]
    api.add("tagged strangely", tags=tags)
    for tag in tags:
        assert hits(api, tags=[tag]) == {"tagged strangely"}
        assert api.list(tag=tag)["total"] == 1


QUERIES = [
    "memory:safe", '"unbalanced', "foo AND (", "C:\\repo\\x.py", "don't", "*", "the of and", "om-generator",
    '"', "a AND (", "NEAR(a b)", "!", "?", "^a", "a*", "{}", "$where", "%_%", "'; DROP TABLE memories; --",
    "\\", "\u202e", "🦊", "你", "NOT", "content:", "a\nb\tc", "[a-z]+", "(?P<",
    "word " * 1638, "x" * 8192, "( " * 4000,
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: ascii(query)[:20])
def test_case_9_operators_in_a_query_are_plain_text(api: Api, query: str) -> None:
    api.add("A memory that is safe in C:\\repo\\x.py; don't move it.", actor="(?P<Mel*")
    answer = api.post(SEARCH, {"query": query})
    assert answer.status_code == 200, answer.text
    api.add(query)
    assert api.post(SEARCH, {"query": query}).status_code == 200
    assert api.list(session_id=query.strip()[:200] or "a")["total"] == 0


@pytest.mark.parametrize(("query", "status"), [("", 422), ("   ", 422), ("\u3000\n", 422), ("x" * 8193, 422)])
def test_case_9_a_query_that_asks_nothing_or_too_much_is_refused(api: Api, query: str, status: int) -> None:
    refused(api.post(SEARCH, {"query": query}), status, "invalid_argument", "query")


def test_case_9_an_exact_identifier_is_found_first(api: Api) -> None:
    names = ["ERR-4711", "a-b", "C:\\repo\\x.py", "018f3e5a-0000-7000-8000-000000000000"]
    api.batch([{"content": f"It says {name} there."} for name in names] + [{"content": "It says so there."}])
    for name in names:
        assert api.search(name)["results"][0]["content"] == f"It says {name} there."


@pytest.fixture(scope="module")
def meaning(encoder: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server with the real model."""
    settings: JSON = {"write": {"embed_wait_ms": 60_000}}
    with server(tmp_path_factory.mktemp("meaning"), lambda: encoder, **settings) as running:
        yield running.api


def filler(size: int) -> str:
    """About so many bytes of minutes in which nothing happens."""
    line = "The committee met and discussed the agenda, the minutes and the next meeting. "
    return line * (size // len(line))


def test_case_11_what_stands_at_the_end_of_a_long_text_is_found_by_its_meaning(meaning: Api) -> None:
    ending = "The veterinarian prescribed antibiotics for the puppy."
    small = [{"content": f"Small note number {number} about the committee."} for number in range(9)]
    results = meaning.batch([{"content": filler(60_000) + ending}, *small])["results"]
    assert [(result["status"], result["indexed"]) for result in results] == [(201, True)] * 10
    answer = meaning.search("medicine for a sick dog")
    assert not answer["degraded"]
    assert answer["results"][0]["memory_id"] == results[0]["memory"]["memory_id"]
    assert "vector" in answer["results"][0]["matched_by"]
    assert answer["results"][0]["content"].endswith(ending)
    assert meaning.stats()["total"] == 10
    assert (
        meaning.search("small note number 7")["results"][0]["memory_id"] == results[8]["memory"]["memory_id"]
    )


def test_case_13_a_search_deletes_and_changes_nothing(api: Api) -> None:
    scopes = [api, api.of(user="alex"), api.of(user="sam"), api.of(agent=f"{api.agent}-2")]
    ids = [scope.add("The very same text.")["memory"]["memory_id"] for scope in scopes]

    def state() -> list[JSON]:
        kept = []
        for scope, id in zip(scopes, ids, strict=True):
            memory = scope.memory(id, include="details")
            kept.append({k: v for k, v in memory.items() if k not in ("elapsed_ms", "request_id", "source")})
        return kept

    before = state()
    with ThreadPoolExecutor(4) as pool:
        asked = [scope for scope in scopes for _ in range(5)]
        answers = list(pool.map(lambda scope: scope.search("the very same text", explain=True), asked))
    assert all(answer["results"] for answer in answers)
    assert state() == before
    assert {memory["memory_id"] for memory in api.list()["memories"]} == set(ids[:3])
    assert scopes[3].list()["total"] == 1


def test_case_14_an_unknown_layer_is_refused_and_leaves_no_row(api: Api) -> None:
    refused(api.try_add("Lost?", layer="l9"), 422, "invalid_argument", "layer")
    assert (api.stats()["total"], api.list()["total"], api.search("lost")["results"]) == (0, 0, [])


def test_case_15_every_id_in_an_answer_works_at_once(api: Api) -> None:
    turns = [{"role": "user", "content": f"Turn {number}."} for number in range(3)]
    single = api.add("Alone.", tags=["t"])
    merged = api.add("alone.")
    talk = api.add(messages=turns, session_id="s")
    batch = api.batch([{"content": "One."}, {"messages": turns, "session_id": "s2"}])["results"]
    for answer in (single, merged, talk, *batch):
        assert answer["memory"]["memory_id"] in answer["memory_ids"]
        for id in answer["memory_ids"]:
            memory = api.memory(id, include="details")
            # Of equal texts one is shown; each in its own session.
            session = memory["details"]["session_id"]
            within = {} if session is None else {"session_id": session}
            found = api.search(memory["content"], limit=100, **within)["results"]
            assert id in {hit["memory_id"] for hit in found}
            assert api.add(f"About {id}.", evidence_ids=[id])["memory"]
    assert {id for answer in (single, talk) for id in answer["memory_ids"]} <= {
        memory["memory_id"] for memory in api.list(limit=100)["memories"]
    }
