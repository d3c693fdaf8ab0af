"""The arithmetic of a ranking, whatever the evidence: range, order, copies, and whose rows count."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service import ranking
from service.evidence import SHARED_CODE, SOLE_IDENTIFIER, identifier_bonus
from service.ranking import Evidence, Order
from service.relevance import absolute_relevance
from service.weights import Weights
from stores.marks import MARKS

FLOOR = 0.13
WEIGHTS = Weights()


@dataclass(frozen=True)
class Row:
    """What was measured of one memory; `key` is equal for equal texts, `cosine` None without a vector."""

    id: int
    words: float = 0.0
    coverage: float = 0.0
    cosine: float | None = None
    identifier: int = 0
    eligible: bool = True
    key: int | None = None


def evidence(rows: Sequence[Row], **given: Any) -> Evidence:
    eligible = np.array([row.eligible for row in rows], bool)
    zeros, none = np.zeros(len(rows), np.float32), np.full(len(rows), -1)
    words = np.array([row.words for row in rows], np.float32)
    named = np.array([row.identifier for row in rows], np.float32)
    dense = np.array([np.nan if row.cosine is None else row.cosine for row in rows], np.float32)
    values: dict[str, Any] = {
        "eligible": eligible,
        "messages": np.zeros(len(rows), bool),
        "dense": dense,
        "words": words,
        "body": words,
        "session": zeros,
        "nearby": zeros,
        "coverage": np.array([row.coverage for row in rows], np.float32),
        "identifiers": identifier_bonus([named], [True], eligible),
        "actor": zeros,
        "date": zeros,
        "marks": dict.fromkeys(MARKS, zeros),
        "wanted": {},
        "length": zeros + 5,
        "previous": none,
        "sessions": none,
        "answers": np.zeros(len(rows), bool),
    }
    return Evidence(**values | given)


def ranked(rows: Sequence[Row], floor: float = FLOOR, limit: int | None = None) -> Order:
    e = evidence(rows)
    terms = ranking.first_stage(e, WEIGHTS)
    fused = np.sum(list(terms.values()), axis=0)
    return ranking.order(
        e,
        fused,
        terms,
        absolute_relevance(e, None),
        floor,
        len(rows) if limit is None else limit,
        lambda at: rows[at].id,
        lambda at: rows[at].id if rows[at].key is None else ("key", rows[at].key),
    )


def found(rows: Sequence[Row], floor: float = FLOOR, limit: int | None = None) -> list[tuple[int, float]]:
    """(id, score), best first."""
    order = ranked(rows, floor, limit)
    return [(rows[at].id, float(score)) for at, score in zip(order.rows, order.scores, strict=True)]


@st.composite
def corpora(draw: st.DrawFn, copies: bool = False) -> list[Row]:
    cosine = st.none() | st.sampled_from([-0.1, 0.0, 0.2, 0.3, 0.5, 0.9]) | st.floats(-1, 1, width=32)
    return [
        Row(
            number,
            draw(st.sampled_from([0.0, 0.5, 1.0, 2.5])),
            draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])),
            draw(cosine),
            draw(st.sampled_from([0, 0, 0, 1])),
            draw(st.booleans()),
            draw(st.none() | st.integers(0, 2)) if copies else None,
        )
        for number in range(draw(st.integers(1, 12)))
    ]


@given(corpora(copies=True))
def test_scores_lie_in_0_to_1_and_never_rise_down_the_list(rows: list[Row]) -> None:
    scores = [score for _, score in found(rows, 0.0)]
    assert all(0 <= score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)


@given(corpora(), st.integers(1, 8))
def test_the_best_few_are_the_head_of_the_whole_order_with_the_same_scores(
    rows: list[Row], limit: int
) -> None:
    assert found(rows, 0.0, limit) == found(rows, 0.0)[:limit]


@given(corpora(copies=True), st.integers(1, 8))
def test_of_copies_the_best_takes_the_one_place(rows: list[Row], limit: int) -> None:
    whole = [id for id, _ in found([*rows], 0.0)]
    keys = [rows[id].key for id in whole if rows[id].key is not None]
    assert len(keys) == len(set(keys))
    assert [id for id, _ in found(rows, 0.0, limit)] == whole[:limit]


@given(corpora(copies=True), st.randoms(use_true_random=False))
def test_the_order_of_rows_in_the_store_does_not_matter(rows: list[Row], random: Random) -> None:
    assert found(rows) == found(random.sample(rows, len(rows)))


@given(corpora(copies=True))
def test_rows_that_are_not_eligible_change_nothing(rows: list[Row]) -> None:
    assume(any(row.eligible for row in rows))
    assert found(rows) == found([row for row in rows if row.eligible])


@given(corpora())
def test_all_eligible_rows_that_share_anything_with_the_query_are_found_without_a_floor(
    rows: list[Row],
) -> None:
    expected = {
        row.id for row in rows if row.eligible and (row.cosine is not None or row.words or row.identifier)
    }
    assert {id for id, _ in found(rows, 0.0)} == expected


@given(corpora(), st.integers(0, 11))
def test_an_identifier_that_one_memory_has_puts_it_first_with_a_score_of_1(
    rows: list[Row], number: int
) -> None:
    at = number % len(rows)
    rows = [replace(row, identifier=0) for row in rows]
    rows[at] = replace(rows[at], identifier=1, eligible=True)
    assert found(rows)[0] == (at, 1.0)


def test_an_identifier_of_one_memory_beats_any_z_score() -> None:
    rows = [
        Row(0, cosine=1, words=9, coverage=1),
        Row(1, identifier=1, cosine=0),
        *[Row(2, cosine=0)] * 50_000,
    ]
    assert found(rows, limit=1)[0][0] == 1


def test_a_search_answers_by_its_best_row_and_then_shows_weaker_ones_too() -> None:
    weak = [Row(0, cosine=0.1), Row(1, cosine=0.05), Row(2, cosine=0)]
    assert found(weak) == []
    assert [id for id, _ in found([*weak[1:], Row(3, cosine=0.7)])] == [3, 1, 2]


def test_a_row_without_a_vector_that_shares_no_word_is_not_shown_beside_one_that_does() -> None:
    assert [id for id, _ in found([Row(0, words=1, coverage=1), Row(1)])] == [0]


def test_a_row_is_called_as_good_as_the_best_one_beneath_it_shown_or_not_but_not_as_its_copies() -> None:
    # Words order the first above the second, which the cosine makes more relevant.
    rows = [Row(0, words=9, cosine=0.6), Row(1, cosine=0.7), Row(2, words=1, cosine=0.1)]
    first, second, _ = found(rows, 0.0)
    assert (first[0], second[0]) == (0, 1) and first[1] == second[1]
    assert found(rows, 0.0, limit=1) == [first]
    copies = [Row(0, cosine=0.9, words=9, key=7), Row(1, cosine=0.1), Row(2, cosine=0.9, key=7)]
    assert found(copies)[1][1] < 0.1


# z-scores


@given(st.floats(-1e3, 1e3, width=32), st.integers(1, 200))
def test_z_scores_of_constants_are_0(value: float, size: int) -> None:
    assert not ranking.zscores(np.full(size, value, np.float32), np.ones(size, bool)).any()


def test_z_scores_are_standardised_over_eligible_rows_and_0_without_a_value() -> None:
    values = np.array([1, 3, np.nan, 100], np.float32)
    eligible = np.array([True, True, True, False])
    assert ranking.zscores(values, eligible)[:3].tolist() == [-1, 1, 0]


def test_z_scores_of_nothing_are_0() -> None:
    assert not ranking.zscores(np.array([np.nan, 2], np.float32), np.array([True, False])).any()


def test_of_a_few_nearly_equal_rows_none_is_far_ahead_and_among_many_nothing_changes() -> None:
    def spread(values: list[float]) -> float:
        return float(np.ptp(ranking.zscores(np.array(values), np.ones(len(values), bool), usual=0.1)))

    assert spread([0.851, 0.854]) < 0.1
    assert spread([0.1, 0.8]) > 2
    assert 1.9 < spread([0.4, 0.6] * 500) < 2.001


# The two stages


def test_the_pool_takes_the_best_and_all_that_tie_with_the_last() -> None:
    first, eligible = np.array([5.0, 3, 3, 3, 1, 9]), np.array([1, 1, 1, 1, 1, 0], bool)
    assert set(ranking.pool(first, eligible, 2)) == {0, 1, 2, 3}
    assert set(ranking.pool(first, eligible, 1)) == {0}
    assert set(ranking.pool(first, eligible, 9)) == {0, 1, 2, 3, 4}


def test_rows_that_were_not_looked_at_again_stand_beneath_all_that_were_in_their_order() -> None:
    last, first = np.array([-7.0, 2, 0, 0, 0]), np.array([1.0, 9, 4, 5, 100])
    looked_at, eligible = np.array([1, 1, 0, 0, 0], bool), np.array([1, 1, 1, 1, 0], bool)
    assert ranking.below(last, first, looked_at, eligible)[:4].tolist() == [-7, 2, -9, -8]
    everyone = np.array([1, 1, 1, 1, 0], bool)
    assert ranking.below(last, first, everyone, eligible) is last


def test_the_best_three_of_a_session_count_for_each_of_its_rows() -> None:
    values = np.array([4.0, 1, 2, 3, 8, 5, 99, 7])
    sessions = np.array([0, 0, 0, 0, 2, 2, 2, -1])
    eligible = np.array([1, 1, 1, 1, 1, 1, 0, 1], bool)
    found = ranking.best_of_session(values, sessions, eligible).tolist()
    assert found == [3, 3, 3, 3, 6.5, 6.5, 0, 0]
    assert not ranking.best_of_session(values, np.full(8, -1), eligible).any()


def test_what_only_chats_have_moves_no_memory() -> None:
    rows = [Row(0, cosine=0.2, words=1), Row(1, cosine=0.4), Row(2, cosine=0.3)]
    shared: dict[str, Any] = {"messages": np.array([True, False, False])}
    marked = dict.fromkeys(MARKS, np.ones(3, np.float32))
    chatty: dict[str, Any] = shared | {
        "session": np.array([1, 2, 3], np.float32),
        "nearby": np.array([0, 1, 1], np.float32),
        "length": np.array([1, 20, 300], np.float32),
        "marks": marked,
        "wanted": {"time": 2.0},
        "previous": np.array([1, 0, 1]),
        "sessions": np.array([0, 0, 0]),
        "answers": np.array([True, True, True]),
    }
    late, sample = np.array([0.5, 0.4, 0.1], np.float32), np.ones(3, bool)

    def totals(**given: Any) -> list[np.ndarray]:
        e = evidence(rows, **given)
        stages = [ranking.first_stage(e, WEIGHTS), ranking.last_stage(e, WEIGHTS, late, sample)]
        return [np.sum(list(terms.values()), axis=0) for terms in stages]

    for plain, chat in zip(totals(**shared), totals(**chatty), strict=True):
        assert chat[1:].tolist() == plain[1:].tolist()
        assert chat[0] != plain[0]


@given(corpora(), st.lists(st.none() | st.floats(-1, 1, width=32), min_size=12, max_size=12))
def test_late_interaction_of_rows_outside_the_sample_moves_only_themselves(
    rows: list[Row], scores: list[float | None]
) -> None:
    late = np.array([np.nan if score is None else score for score in scores[: len(rows)]], np.float32)
    sample = np.arange(len(rows)) % 2 == 0
    other = np.where(sample, late, np.float32(0.5))
    e = evidence(rows)
    one, two = (ranking.last_stage(e, WEIGHTS, of, sample)["late"] for of in (late, other))
    assert one[sample].tolist() == two[sample].tolist()


# Identifiers and relevance


def test_a_compound_of_words_that_two_memories_have_gives_no_bonus() -> None:
    present, everyone = np.array([1, 1, 0], np.float32), np.ones(3, bool)
    assert not identifier_bonus([present], [False], everyone).any()
    assert identifier_bonus([present], [True], everyone)[0] == SHARED_CODE
    sole = identifier_bonus([present], [False], np.array([True, False, True]))
    assert sole.tolist() == [SOLE_IDENTIFIER, 0, 0]


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(-1, 1), st.booleans(), st.floats(0, 0.5))
def test_relevance_rises_with_all_of_its_evidence(
    cosine: float, coverage: float, late: float, message: bool, more: float
) -> None:
    def relevance(cosine: float, coverage: float, late: float) -> float:
        e = evidence([Row(0, coverage=coverage, cosine=cosine)], messages=np.array([message]))
        return float(absolute_relevance(e, np.array([late], np.float32))[0])

    base = relevance(cosine, coverage, late)
    assert 0 <= base <= 1
    for raised in (
        (cosine + more, coverage, late),
        (cosine, coverage + more, late),
        (cosine, coverage, late + more),
    ):
        assert relevance(*raised) >= base


def test_an_identifier_makes_a_row_wholly_relevant() -> None:
    e = evidence([Row(0, identifier=1), Row(1)])
    assert absolute_relevance(e, None)[0] == 1


@pytest.mark.parametrize("chat", [False, True])
def test_what_the_model_does_not_read_is_judged_by_its_words(chat: bool) -> None:
    rows = [Row(0, words=9, cosine=0.1), Row(1, words=1, cosine=0.9), Row(2, cosine=0.2)]
    late, sample = np.array([0.1, 0.9, 0.2], np.float32), np.ones(3, bool)

    def best(unread: float) -> int:
        e = evidence(rows, messages=np.full(3, chat), unread=unread)
        return int(np.argmax(sum(ranking.last_stage(e, WEIGHTS, late, sample).values())))

    assert (best(0), best(1)) == (1, 0)


@pytest.mark.parametrize("chat", [False, True])
def test_what_only_the_vectors_read_is_judged_by_them(chat: bool) -> None:
    rows = [Row(0, words=0, cosine=0.9), Row(1, words=1, cosine=0.1), Row(2, cosine=0.2)]
    late, sample = np.array([0.1, 0.9, 0.2], np.float32), np.ones(3, bool)

    def best(unread: float) -> int:
        e = evidence(rows, messages=np.full(3, chat), unread=unread, multilingual=True)
        terms = ranking.last_stage(e, WEIGHTS, late, sample)
        assert np.allclose(terms["late"], 0) == (unread == 1)
        return int(np.argmax(terms["late"] + terms["dense"]))

    assert best(1) == 0
    assert not chat or best(0) == 1  # in a chat late interaction decides alone, where it reads


def test_vectors_of_all_languages_are_near_in_every_script() -> None:
    given = [
        evidence([Row(0, cosine=0.3, coverage=0.2)], unread=unread, multilingual=True)
        for unread in (0.0, 1.0)
    ]
    read, not_read = (absolute_relevance(e, None)[0] for e in given)
    assert not_read == read


def test_in_a_script_that_the_model_does_not_read_nearness_says_less() -> None:
    read, not_read = (
        absolute_relevance(evidence([Row(0, cosine=0.5, coverage=0.5)], unread=unread), None)[0]
        for unread in (0.0, 1.0)
    )
    assert not_read < read


def test_without_a_model_one_word_in_eight_makes_a_row_relevant() -> None:
    e = evidence([Row(0, coverage=0.15), Row(1, coverage=0.05)], unread=1.0)
    enough, too_little = absolute_relevance(e, None) >= WEIGHTS.floor
    assert enough and not too_little


def test_what_is_found_by_its_sound_is_judged_by_the_words_more_than_by_the_models() -> None:
    rows = [Row(0, words=9.0, cosine=0.1), Row(1, cosine=0.9), *(Row(at, cosine=0.1) for at in range(2, 9))]
    looked = np.array([0.1, 0.9, *[0.1] * 7], np.float32)

    def fused(respelled: float) -> np.ndarray:
        e = evidence(rows, multilingual=True, respelled=respelled)
        terms = ranking.last_stage(e, Weights(), looked, e.eligible)
        return np.sum([terms[name] for name in ("late", "dense", "words")], axis=0)

    assert fused(0.0).argmax() == 1 and fused(1.0).argmax() == 0
