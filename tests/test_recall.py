"""A search over snapshots: filters, what is asked of the vectors, and what is found, without a server."""

import tracemalloc
from dataclasses import replace
from string import ascii_lowercase
from typing import Any

import pytest

from models.embedding import Encoder
from models.memory import Memory
from models.requests import SearchMemories
from service.evidence import COUNTED_TERMS
from service.plan import Plan
from service.question import without_actors
from service.recall import Found, Result
from service.recall import search as run
from service.trust import RECIPES
from stores.changes import Change
from tests.recalling import (
    EVERYTHING,
    HASH,
    NOW,
    OF_ALL_LANGUAGES,
    Held,
    hold,
    id_of,
    meaning_of,
    memory,
    search,
    texts,
)

pytest_plugins = ["tests.embedding_fixtures"]

# Filters


@pytest.fixture
def tea() -> Held:
    """Six memories that say the same of tea and differ in what filters look at."""
    return hold(
        [
            memory("tea one", tags=("hoi", "green"), metadata={"team": 2}, project="x", memory_at=100),
            memory("tea two", tags=("hoi4",), metadata={"team": "2"}, frame="home", memory_at=200),
            memory("tea three", tags=("green",), metadata={"team": 2.5}, confidence=0.9),
            memory("tea four", metadata={"team": True}, source_authority="policy"),
            memory("tea five", metadata={"team": 1, "of": {"a": [1, None], "b": 2}}, layer="l0_basic_info"),
            memory("tea six", kind="message", session_id="s", status="superseded"),
        ]
    )


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, "one two three four five"),
        ({"tags": ["hoi"]}, "one"),
        ({"tags": ["hoi4"]}, "two"),
        ({"tags": ["ho"]}, ""),
        ({"tags": ["hoi", "green"]}, "one three"),
        ({"tags": ["hoi", "green"], "tags_match": "all"}, "one"),
        ({"metadata": {"team": 2}}, "one"),
        ({"metadata": {"team": "2"}}, "two"),
        ({"metadata": {"team": 2.5}}, "three"),
        ({"metadata": {"team": True}}, "four"),
        ({"metadata": {"team": 1}}, "five"),
        ({"metadata": {"of": {"b": 2, "a": [1, None]}}}, "five"),
        ({"metadata": {"of": {"b": 2}}}, ""),
        ({"metadata": {"team": 1, "other": None}}, ""),
        ({"project": "x"}, "one"),
        ({"project": ""}, "two three four five"),
        ({"frame": "home"}, "two"),
        ({"memory_at_from": 100, "memory_at_to": 199}, "one"),
        ({"memory_at_from": 200}, "two"),
        ({"min_confidence": 0.5}, "three"),
        ({"min_authority": "team"}, "four"),
        ({"layers": ["l0_basic_info", "l3_summary"]}, "five"),
        ({"kinds": ["message"]}, ""),
        ({"statuses": ["superseded"]}, "six"),
        ({"statuses": ["active", "superseded"], "session_id": "s"}, "six"),
        ({"tags": ["green"], "metadata": {"team": 2.5}}, "three"),
    ],
)
def test_a_filter_keeps_what_matches_exactly(tea: Held, filters: dict[str, Any], expected: str) -> None:
    result = search("tea", tea, **filters)
    assert {text.split()[1] for text in texts(result)} == set(expected.split())
    assert result.candidates == len(expected.split())


@pytest.mark.parametrize(("text", "value"), [("2.50", 2.5), ("1e2", 100.0)])
def test_spellings_of_one_number_are_equal(text: str, value: float) -> None:
    written = memory("tea")
    row = replace(written, state=replace(written.state, custom=f'{{"n": {text}}}'))
    assert len(search("tea", hold([row]), metadata={"n": value}).hits) == 1


def test_filters_apply_before_the_top_k() -> None:
    rows = hold([*(memory("green tea at noon") for _ in range(5)), memory("tea", tags=("rare",))])
    assert texts(search("green tea at noon", rows, limit=1, tags=["rare"])) == ["tea"]


def test_filters_that_nothing_passes_find_nothing(tea: Held) -> None:
    assert search("tea", tea, tags=["none"]) == Result((), 0)


# Names


@pytest.mark.parametrize(
    ("query", "bare"),
    [
        ("What does Melanie love?", "What does love?"),
        ("melanie's camping trip", "camping trip"),
        ("Melanie’s camping trip with Ann Lee", "camping trip with"),
        ("What did Anna say?", "What did Anna say?"),
        ("Melanie", "Melanie"),
        ("Melanie's?", "Melanie's?"),
        ("Ask Dr. K. (PhD) about tea", "Ask about tea"),
    ],
)
def test_names_of_actors_leave_the_embedded_query_unless_nothing_else_is_left(query: str, bare: str) -> None:
    assert without_actors(query, ["Ann", "Melanie", "Ann Lee", "Dr. K. (PhD)"]) == bare


def test_a_query_that_is_only_a_name_finds_what_they_said() -> None:
    spoken = memory("I love camping", kind="message", actor="Melanie")
    other = memory("I love fishing", kind="message", actor="Caroline")
    assert texts(search("Melanie", hold([spoken, other])))[0] == "I love camping"


# Rows


@pytest.mark.parametrize("encoder", [HASH, OF_ALL_LANGUAGES])
def test_several_partitions_are_searched_like_one(encoder: Encoder) -> None:
    rows = [
        memory(f"{what} tea in the {when}") for what in ("green", "black") for when in ("morning", "night")
    ]
    rows += [memory("turn one about tea", kind="message", session_key="s", session_position=0)]
    rows += [memory("turn two about milk", kind="message", session_key="s", session_position=1)]
    whole = search("black tea", hold(rows), explain=True, encoder=encoder)
    parts = search("black tea", hold(rows[:3]), hold(rows[3:]), explain=True, encoder=encoder)
    assert parts == whole
    assert texts(whole)[0].startswith("black tea")


@pytest.mark.parametrize("unseen", [[], [memory("black tea at sea", 9)]])
def test_a_partition_without_vectors_is_searched_beside_others(unseen: list[Memory]) -> None:
    rows = [memory("black tea in the morning", 1), memory("green tea at night", 2, source_authority="team")]
    parts = [hold(unseen, without_vector=unseen), hold(rows)]
    for order in (parts, parts[::-1]):
        found = texts(search("black tea", *order, encoder=OF_ALL_LANGUAGES))
        assert set(found) == {one.content for one in (*rows, *unseen)}


def test_the_order_of_rows_in_the_store_does_not_matter() -> None:
    rows = [memory(text) for text in ("green tea", "green tea", "black tea", "milk", "green tea", "tea")]
    forwards, backwards = search("green tea", hold(rows)), search("green tea", hold(rows[::-1]))
    assert [hit.memory.memory_id for hit in forwards.hits] == [h.memory.memory_id for h in backwards.hits]


def test_of_equal_memories_only_the_one_written_last_is_found() -> None:
    first, last = memory("green tea"), memory("Green  tea")
    assert [hit.memory for hit in search("tea", hold([first, last])).hits] == [last]


def test_equal_texts_take_one_place_in_whatever_frames_and_the_highest_authority_is_shown() -> None:
    rows = [memory("green tea", frame=frame) for frame in ("home", "office", None)]
    official = memory("green tea", frame="law", source_authority="official", gmt_created=NOW - 10**10)
    for ranking in ("balanced", "recent"):
        [hit] = search("tea", hold([*rows, official]), ranking=ranking).hits
        assert hit.memory == official


def test_two_hundred_copies_take_one_place() -> None:
    rows = [memory("green tea") for _ in range(200)] + [memory(f"tea number {n}") for n in range(20)]
    found = texts(search("green tea", hold(rows), limit=10))
    assert found[0] == "green tea" and len(set(found)) == len(found) == 10


def test_copies_of_a_hit_do_not_raise_the_score_of_what_stands_below_it() -> None:
    rows = [memory("green tea"), memory("a walk in the green hills beside the sea")]
    copies = [memory("green tea") for _ in range(3)]
    best, weaker = search("green tea", hold([*rows, *copies])).hits
    assert weaker.score == weaker.explanation["relevance"] < best.score


def test_a_row_without_a_vector_is_found_by_its_words() -> None:
    waiting, embedded = memory("green tea"), memory("green milk")
    result = search("green tea", hold([waiting, embedded], without_vector=[waiting]))
    best = result.hits[0]
    assert (best.memory, best.matched_by, best.explanation["dense"]) == (waiting, ("words",), None)


def test_of_a_long_memory_the_best_chunk_counts() -> None:
    filler = " ".join(f"word{n}" for n in range(400))
    long = memory(f"{filler} green tea grows on hills")
    hits = search("green tea grows on hills", hold([memory("milk"), long])).hits
    assert hits[0].memory == long
    short = search("green tea grows on hills", hold([memory(filler)]), weights=EVERYTHING).hits
    assert hits[0].explanation["dense"] > short[0].explanation["dense"]  # type: ignore[operator]


# Identifiers, operators and odd queries


@pytest.mark.parametrize(
    "name", ["ERR-4711", "a-b", "C:\\repo\\x.py", "550e8400-e29b-41d4-a716-446655440000", "9f3ac1e"]
)
def test_an_identifier_of_one_memory_is_found_first_with_a_score_of_1(name: str) -> None:
    rows = [memory(f"the nightly deployment of the payments service failed {n}") for n in range(20)]
    named = memory(f"({name}): out of disk")
    query = f"why did the nightly deployment of the payments service fail with {name}?"
    best: Found = search(query, hold([*rows, named])).hits[0]
    assert (best.memory, best.score) == (named, 1.0)
    assert "identifier" in best.matched_by


@pytest.mark.parametrize("asked", ["PX 0831", "px0831", "px-0831"])
def test_a_code_is_found_first_however_its_parts_are_joined(asked: str) -> None:
    rows = [memory(f"the nightly deployment of the payments service failed {n}") for n in range(20)]
    named = memory("PX-0831: out of disk")
    query = f"why did the nightly deployment of the payments service fail with {asked}?"
    best: Found = search(query, hold([*rows, named])).hits[0]
    assert (best.memory, best.score) == (named, 1.0)
    assert "identifier" in best.matched_by


def test_a_word_before_a_number_is_no_code_that_must_be_there() -> None:
    rows = [memory("the budget of the year was kept"), memory("all is well")]
    assert texts(search("how was the budget in 2024", hold(rows)))[0] == rows[0].content


def test_a_code_that_two_memories_have_is_relevant_in_both() -> None:
    rows = [memory("ERR-4711 means a full disk"), memory("ERR-4711 was seen again"), memory("all is well")]
    query = "why did everything at the harbour stop so suddenly last winter, ERR-4711?"
    assert set(texts(search(query, hold(rows), encoder=None))) == {rows[0].content, rows[1].content}


def test_a_hyphenated_word_does_not_lift_what_is_beside_the_point() -> None:
    rows = [memory("a well-known singer"), memory("a well-known bridge"), memory("our restaurant in Rome")]
    assert texts(search("the well-known restaurant in Rome", hold(rows)))[0] == "our restaurant in Rome"


@pytest.mark.parametrize("query", ["what is it", "?!…", "🚀", "the the the", "AND OR NOT", '* ~ " ( -', "\\"])
@pytest.mark.parametrize("encoder", [HASH, None])
def test_a_query_without_terms_does_no_harm(query: str, encoder: Encoder | None) -> None:
    result = search(query, hold([memory("green tea"), memory("🚀")]), encoder=encoder)
    assert result.candidates == 2
    assert encoder is not None or result.hits == ()


def test_operators_and_wildcards_are_plain_text() -> None:
    rows = hold([memory("green tea"), memory("milk")])
    assert texts(search('"green" -tea', rows, encoder=None)) == ["green tea"]
    assert texts(search("gre*", rows, encoder=None)) == []


@pytest.mark.parametrize(("query", "text"), [("你好", "你好世界"), ("회의", "내일 회의가 있습니다")])
def test_a_short_query_in_a_script_without_spaces_finds_its_memory(query: str, text: str) -> None:
    rows = hold([memory(text), memory("天气很冷"), memory("비가 온다")])
    assert texts(search(query, rows, encoder=None)) == [text]


def test_of_a_page_of_words_the_rarest_count() -> None:
    common = [f"{one}{other}um" for one in ascii_lowercase for other in ascii_lowercase]
    rows = [memory(" ".join(common[at : at + 300]), at) for at in range(0, 500, 100)]
    rows += [memory("the ferry to zanzibar", 601), memory("the ferry to oslo", 602)]
    found = texts(search(" ".join([*common, "zanzibar"]), hold(rows), encoder=None, limit=20))
    assert "the ferry to zanzibar" in found and "the ferry to oslo" not in found


def test_a_page_of_words_takes_a_bounded_share_of_memory_for_each_row() -> None:
    rows = [memory(f"note {number}", number) for number in range(2_000)]
    held = hold(rows, without_vector=rows)
    for query in ("".join(map(chr, range(0x4E00, 0x4E00 + 7_900))), " ".join(f"a-{n}" for n in range(1_300))):
        tracemalloc.start()
        assert search(query, held, encoder=None).hits == ()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * 4 * len(rows) * COUNTED_TERMS


def test_a_flood_of_rows_that_tie_is_not_compared_each_with_each() -> None:
    rows = [memory(f"tea {number}", number, source_authority="team") for number in range(4_000)]
    held = hold(rows, without_vector=rows)
    tracemalloc.start()
    assert len(search("tea", held, encoder=OF_ALL_LANGUAGES, limit=10).hits) == 10
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * len(rows) ** 2 / 4, "a quarter of what one comparison of each with each would take"


def test_a_very_long_query_finds_what_it_is_about() -> None:
    rows = [memory("green tea"), memory("milk")]
    assert texts(search("green tea " * 800, hold(rows)))[0] == "green tea"


# Relevance, with the real model

FACTS = {
    "The user prefers green tea in the morning.": "What does the user like to drink after getting up?",
    "Our staging database runs on Postgres 16 in Frankfurt.": "Which database engine does staging use?",
    "Melanie's daughter Emma plays the violin in the orchestra.": "Which instrument does Emma play?",
}
UNRELATED = [
    "What is the capital of Mongolia?",
    "How do I change a flat tyre?",
    "What is the boiling point of mercury?",
    "When is the rent due?",
]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_tiny_partition_answers_a_question_about_it_and_no_other(encoder: Encoder, size: int) -> None:
    facts = list(FACTS)[:size]
    rows = hold([memory(fact) for fact in facts], encoder)
    for fact in facts:
        assert texts(search(FACTS[fact], rows, encoder=encoder))[0] == fact
    for question in [*UNRELATED, *list(FACTS.values())[size:]]:
        assert search(question, rows, encoder=encoder).hits == (), question


# Versions


def test_memories_that_change_places_speak_for_the_one_that_is_current() -> None:
    ann = memory("Ann has the key of the gate", 1, status="superseded", superseded_by=(id_of(2),))
    bob = memory("ask Bob", 2, supersedes=(id_of(1),))
    held = hold([ann, bob, memory("the harbour is cold", 3)])
    assert texts(search("Ann key gate", held))[0] == "ask Bob"
    beaten = replace(bob.state, status="superseded", superseded_by=(ann.memory_id,), supersedes=())
    held.resident.apply(Change(replace(bob, version=2, state=beaten)))
    between = search("Ann key gate", held, statuses=["active", "superseded"])
    assert texts(between)[0] == "Ann has the key of the gate"
    current = replace(ann.state, status="active", superseded_by=(), supersedes=(bob.memory_id,))
    held.resident.apply(Change(replace(ann, version=2, state=current)))
    [hit, *_] = search("ask Bob", held).hits
    assert hit.memory.content == "Ann has the key of the gate"
    assert hit.explanation["version"] == bob.memory_id
    assert held.resident.snapshot([]).newer.tolist() == [-1, 0, -1]


@pytest.mark.parametrize("length", [2, 3, 8, 33])
def test_the_first_of_a_long_chain_speaks_for_its_head(length: int) -> None:
    chain = [
        memory(f"version {number}", number, status="superseded", superseded_by=(id_of(number + 1),))
        for number in range(length)
    ]
    chain[0] = replace(chain[0], content="Ann has the key of the gate")
    rows = [
        memory("the harbour is cold", 90),
        *chain[::-1],
        memory("ask Bob", length, supersedes=(id_of(0),)),
    ]
    [hit, *_] = search("Ann key gate", hold(rows)).hits
    assert (hit.memory.content, hit.explanation["version"]) == ("ask Bob", id_of(0))


# Conflicts


def test_in_an_open_conflict_the_policy_stands_above_a_nearer_rumour_and_the_explanation_says_by_what() -> (
    None
):
    rumour = memory("friday deploys are fine", 1)
    policy = memory("deploys on tuesday", 2, source_authority="policy")
    held = hold([rumour, policy, memory("the harbour is cold", 3)])
    plan = Plan.of(
        SearchMemories(query="are friday deploys fine", explain=True),
        [],
        EVERYTHING,
        RECIPES["balanced"],
        NOW,
    )
    snapshot = held.resident.snapshot(plan.index_terms)
    both = {rumour.memory_id: [policy.memory_id], policy.memory_id: [rumour.memory_id]}
    for conflicts, first in (({}, rumour), (both, policy)):
        disputed = replace(snapshot, conflicts=conflicts)
        hits = run(
            plan, [disputed], meaning_of(plan.bare), lambda ids: {id: held.pieces[id] for id in ids}
        ).hits
        assert hits[0].memory == first
        assert (hits[0].explanation["terms"].get("conflict", 0) > 0) == bool(conflicts)
