"""The laws of a search, over whole searches of made-up partitions: memories, chats, versions and copies."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models.authority import AUTHORITIES, rank
from models.memory import Memory
from service.recall import Result
from service.weights import Weights
from tests.recalling import EVERYTHING, HASH, NOW, OF_ALL_LANGUAGES, hold, id_of, memory, search

WORDS = "green tea milk harbour deploy night ERR-4711 err-4712 well-known yesterday Ann three?".split()
DAY = 24 * 3600 * 1000
ALL = ["active", "superseded"]
quick = settings(max_examples=settings().max_examples * 3 // 5)

contents = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
queries = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
options: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "ranking": st.sampled_from(["balanced", "trusted", "recent"]),
        "weights": st.sampled_from([EVERYTHING, Weights()]),
        "late": st.booleans(),
        "encoder": st.sampled_from([HASH, OF_ALL_LANGUAGES]),
    }
)


@st.composite
def partitions(draw: st.DrawFn, most: int = 9, chats: bool = True, versions: bool = True) -> list[Memory]:
    """Rows with equal texts among them, turns of two sessions, and chains of versions."""
    size = draw(st.integers(1, most))
    rows = []
    for number in range(size):
        fields: dict[str, Any] = {
            "source_authority": draw(st.sampled_from(AUTHORITIES)),
            "confidence": draw(st.sampled_from([0.0, 0.3, 0.7, 0.95])),
            "memory_at": draw(st.none() | st.integers(0, 400).map(lambda days: NOW - days * DAY)),
            "valid_until": draw(st.sampled_from([None, None, NOW - 1, NOW + 1])),
        }
        if chats and draw(st.booleans()):
            fields |= {
                "kind": "message",
                "session_id": draw(st.sampled_from(["s", "t"])),
                "session_position": number,
                "actor": draw(st.sampled_from(["Ann", "Bob", None])),
            }
        elif versions and number + 1 < size and draw(st.integers(0, 3)) == 0:
            newer = draw(st.integers(number + 1, size - 1))
            fields |= {"status": "superseded", "superseded_by": (id_of(newer),)}
        rows.append(memory(draw(contents), number, **fields))
    return rows


def found(query: str, rows: Sequence[Memory], **given: Any) -> Result:
    return search(query, hold(rows), limit=100, statuses=ALL, **given)


def ids(result: Result) -> list[str]:
    return [hit.memory.memory_id for hit in result.hits]


def place(result: Result, row: Memory) -> int:
    """Its rank from 0; one after the last where it is not found."""
    order = ids(result)
    return order.index(row.memory_id) if row.memory_id in order else len(order)


@given(queries, partitions(), options)
@quick
def test_scores_lie_in_0_to_1_and_never_rise_down_the_list(
    query: str, rows: list[Memory], given: dict[str, Any]
) -> None:
    scores = [hit.score for hit in found(query, rows, **given).hits]
    assert all(0 <= score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)


@given(queries, partitions(), options, st.randoms(use_true_random=False))
@quick
def test_the_order_of_rows_in_the_store_does_not_matter(
    query: str, rows: list[Memory], given: dict[str, Any], random: Random
) -> None:
    one, other = found(query, rows, **given), found(query, random.sample(rows, len(rows)), **given)
    assert ids(one) == ids(other)
    assert [hit.score for hit in one.hits] == pytest.approx([hit.score for hit in other.hits], abs=2e-6)


@given(queries, partitions(), options, st.data())
@quick
def test_raising_authority_or_confidence_alone_never_lowers_a_row(
    query: str, rows: list[Memory], given: dict[str, Any], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    row = rows[at]
    if data.draw(st.booleans()):
        higher = AUTHORITIES[: AUTHORITIES.index(row.source_authority) + 1]
        raised = replace(row, source_authority=data.draw(st.sampled_from(higher)))
    else:
        confidence = data.draw(st.floats(row.state.confidence, 1))
        raised = replace(row, state=replace(row.state, confidence=confidence))
    before, after = found(query, rows, **given), found(query, [*rows[:at], raised, *rows[at + 1 :]], **given)
    if row.memory_id in ids(before):
        assert place(after, raised) <= place(before, row)
    assert bool(before.hits) == bool(after.hits)


@given(queries, partitions(), options, st.sampled_from(AUTHORITIES))
@quick
def test_authority_moves_no_row_that_is_beneath_the_relevance_floor(
    query: str, rows: list[Memory], given: dict[str, Any], authority: Any
) -> None:
    given["weights"] = Weights(floor=0.5)
    result = found(query, rows, explain=True, **given)
    weak = {
        hit.memory.memory_id
        for hit in result.hits
        if hit.explanation["relevance"] < 0.49  # scores that are shown are rounded
    }
    assume(weak)
    lifted = [replace(row, source_authority=authority) if row.memory_id in weak else row for row in rows]
    assert ids(found(query, lifted, **given)) == ids(result)


@given(queries, partitions(versions=False), options, partitions(4, versions=False))
@quick
def test_rows_that_are_not_eligible_change_nothing(
    query: str, rows: list[Memory], given: dict[str, Any], others: list[Memory]
) -> None:
    left_out = [
        replace(
            row,
            memory_id=id_of(100 + at),
            seq=100 + at,
            layer="l5_knowledge",
            actor=None,
            session_key=row.session_key and "x",
        )
        for at, row in enumerate(others)
    ]
    filters = {"layers": ["l2_fact"]} | given
    alone, among = found(query, rows, **filters), found(query, [*left_out, *rows], **filters)
    assert among == alone


@given(queries, partitions(), options)
@quick
def test_a_superseded_row_is_never_above_what_replaced_it(
    query: str, rows: list[Memory], given: dict[str, Any]
) -> None:
    result = found(query, rows, **given)
    order = ids(result)
    for hit in result.hits:
        for newer in hit.memory.state.superseded_by:
            if newer in order:
                assert order.index(hit.memory.memory_id) > order.index(newer)


def test_of_equal_texts_that_were_superseded_none_stands_above_its_successor() -> None:
    query, told = "green tea", "green tea at the harbour"
    best = memory(f"{query} {query}", source_authority="policy", confidence=0.95)
    first = memory(told, status="superseded", superseded_by=(best.memory_id,), confidence=0.95)
    worst = memory("milk", confidence=0.0)
    second = memory(told, status="superseded", superseded_by=(worst.memory_id,), source_authority="policy")
    order = ids(found(query, [best, first, worst, second]))
    assert order == [one.memory_id for one in (best, first, worst)]


@given(
    queries, partitions(), options, st.sampled_from(["ERR-9001", "a-b", "C:\\repo\\x.py", "v2"]), st.data()
)
@quick
def test_an_identifier_that_stands_in_one_memory_is_first(
    query: str, rows: list[Memory], given: dict[str, Any], name: str, data: st.DataObject
) -> None:
    current = [at for at, row in enumerate(rows) if row.state.status == "active"]
    at = data.draw(st.sampled_from(current))
    named = replace(rows[at], content=f"{rows[at].content} {name}")
    words = " ".join(word for word in query.split() if "-" not in word)
    rows = [*rows[:at], named, *rows[at + 1 :]]
    best = found(f"{words} {name}", rows, **given).hits[0]
    assert (best.memory.memory_id, best.score) == (named.memory_id, 1.0)


@given(queries, partitions(), options)
@quick
def test_equal_texts_take_one_place(query: str, rows: list[Memory], given: dict[str, Any]) -> None:
    memories = [hit.memory for hit in found(query, rows, **given).hits]
    places = [(one.content.casefold(), one.state.frame, one.session_key) for one in memories]
    assert len(places) == len(set(places))


@given(queries, partitions(), options, st.integers(1, 4))
@quick
def test_the_best_few_are_the_head_of_the_whole_order(
    query: str, rows: list[Memory], given: dict[str, Any], limit: int
) -> None:
    whole = found(query, rows, **given)
    few = search(query, hold(rows), limit=limit, statuses=ALL, **given)
    assert ids(few) == ids(whole)[:limit]
    assert few.candidates == whole.candidates


@pytest.mark.parametrize("late", [True, False])
def test_among_more_rows_than_are_looked_at_again_the_laws_hold(late: bool) -> None:
    random = Random(5)
    rows = [
        memory(
            " ".join(random.choices(WORDS[:6] + [f"word{n}" for n in range(40)], k=8)),
            number,
            source_authority=random.choice(AUTHORITIES),
            layer=random.choice(["l2_fact", "l2_fact", "l5_knowledge"]),
        )
        for number in range(300)
    ]
    query = "green tea at the harbour"
    eligible = [row for row in rows if row.layer == "l2_fact"]
    result = found(query, rows, late=late, layers=["l2_fact"])
    assert result == found(query, eligible, late=late)
    assert ids(result) == ids(found(query, random.sample(eligible, len(eligible)), late=late))
    for row in random.sample([hit.memory for hit in result.hits], 12):
        raised = replace(row, source_authority="policy")
        again = found(query, [raised if one is row else one for one in eligible], late=late)
        assert place(again, raised) <= place(result, row)
        assert rank(raised.source_authority) >= rank(row.source_authority)
