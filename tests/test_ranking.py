"""The laws of a ranking, whatever the signals: range, order, and whose rows count."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service import ranking
from service.ranking import Order, Signals, Weights

WEIGHTS = Weights(dense=0.5, words=0.5, floor=0.13)
EVERYTHING = Weights(dense=0.5, words=0.5, floor=0.0)


@dataclass(frozen=True)
class Row:
    """One memory as a store would know it: how often each of two query terms and an identifier stands in
    it, how long it is, its cosine (None: no vector), and which row, if any, is the turn before."""

    id: int
    terms: tuple[int, int]
    identifier: int
    length: int
    cosine: float | None
    previous: int | None  # an id
    eligible: bool


@st.composite
def corpora(draw: st.DrawFn) -> list[Row]:
    size = draw(st.integers(1, 12))
    count = st.integers(0, 3)
    cosine = st.none() | st.sampled_from([-0.1, 0.0, 0.2, 0.3, 0.5, 0.9]) | st.floats(-1, 1, width=32)
    return [
        Row(
            id=number,
            terms=(draw(count), draw(count)),
            identifier=draw(st.sampled_from([0, 0, 0, 1])),
            length=draw(st.integers(6, 40)),
            cosine=draw(cosine),
            previous=draw(
                st.none() | st.sampled_from([other for other in range(size + 1) if other != number])
            ),
            eligible=draw(st.booleans()),
        )
        for number in range(size)
    ]


def signals(rows: Sequence[Row]) -> Signals:
    place = {row.id: at for at, row in enumerate(rows)}
    eligible = np.array([row.eligible for row in rows], bool)
    previous = np.array([-1 if row.previous is None else place.get(row.previous, -1) for row in rows], int)
    counts = [np.array([row.terms[term] for row in rows], np.float32) for term in (0, 1)]
    named = np.array([row.identifier for row in rows], np.float32)
    lengths = np.array([row.length for row in rows], np.float32)
    words, coverage = ranking.bm25(counts, lengths, previous, eligible)
    dense = np.array([np.nan if row.cosine is None else row.cosine for row in rows], np.float32)
    return Signals(eligible, dense, words, coverage, ranking.identifier_bonus([named], [True], eligible))


def ranked(rows: Sequence[Row], weights: Weights = WEIGHTS, limit: int | None = None) -> Order:
    return ranking.order(
        signals(rows), weights, len(rows) if limit is None else limit, lambda at: rows[at].id
    )


def found(rows: Sequence[Row], weights: Weights = WEIGHTS) -> list[tuple[int, float]]:
    """(id, score), best first."""
    order = ranked(rows, weights)
    return [(rows[at].id, float(score)) for at, score in zip(order.rows, order.scores, strict=True)]


@given(corpora())
@settings(deadline=None)
def test_scores_lie_in_0_to_1_and_never_rise_down_the_list(rows: list[Row]) -> None:
    scores = [score for _, score in found(rows, EVERYTHING)]
    assert all(0 <= score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)


@given(corpora(), st.integers(1, 8))
@settings(deadline=None)
def test_the_best_few_are_the_head_of_the_whole_order(rows: list[Row], limit: int) -> None:
    whole, few = ranked(rows, EVERYTHING), ranked(rows, EVERYTHING, limit)
    assert few.rows.tolist() == whole.rows[:limit].tolist()
    assert few.scores.tolist() == whole.scores[:limit].tolist()


@given(corpora(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_rows_in_the_store_does_not_matter(rows: list[Row], random: Random) -> None:
    shuffled = random.sample(rows, len(rows))
    assert found(rows) == found(shuffled)


@given(corpora())
@settings(deadline=None)
def test_rows_that_are_not_eligible_change_nothing(rows: list[Row]) -> None:
    assert found(rows) == found([row for row in rows if row.eligible])


@given(corpora())
@settings(deadline=None)
def test_only_eligible_rows_are_found(rows: list[Row]) -> None:
    eligible = {row.id for row in rows if row.eligible}
    assert {id for id, _ in found(rows, EVERYTHING)} == eligible
    assert {id for id, _ in found(rows)} <= eligible


@given(corpora())
@settings(deadline=None)
def test_an_identifier_that_one_memory_has_puts_it_first_with_a_score_of_1(rows: list[Row]) -> None:
    having = [row.id for row in rows if row.eligible and row.identifier]
    assume(len(having) == 1)
    assert found(rows)[0] == (having[0], 1.0)


@given(st.floats(-1e3, 1e3, width=32), st.integers(1, 200))
def test_z_scores_of_constants_are_0(value: float, size: int) -> None:
    values = np.full(size, value, np.float32)
    assert not ranking.zscores(values, np.ones(size, bool)).any()


def test_z_scores_are_standardised_over_eligible_rows_and_0_without_a_value() -> None:
    values = np.array([1, 3, np.nan, 100], np.float32)
    eligible = np.array([True, True, True, False])
    assert ranking.zscores(values, eligible)[:3].tolist() == [-1, 1, 0]


def test_z_scores_of_nothing_are_0() -> None:
    assert not ranking.zscores(np.array([np.nan, 2], np.float32), np.array([True, False])).any()


def test_bm25_is_the_published_formula() -> None:
    lengths, alone = np.array([2, 4], np.float32), np.array([-1, -1])
    words, coverage = ranking.bm25([np.array([1, 0], np.float32)], lengths, alone, np.ones(2, bool))
    idf = np.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    assert words == pytest.approx([idf * 1.9 / (1 + 0.9 * (0.6 + 0.4 * 2 / 3)), 0])
    assert coverage.tolist() == [1, 0]


def test_words_of_the_turn_before_count_for_bm25_but_not_for_coverage() -> None:
    lengths, previous = np.full(3, 5, np.float32), np.array([-1, 0, -1])
    words, coverage = ranking.bm25([np.array([1, 0, 0], np.float32)], lengths, previous, np.ones(3, bool))
    assert words[0] > words[1] > words[2] == 0
    assert coverage.tolist() == [1, 0, 0]


def test_a_word_that_every_memory_has_covers_little_and_a_missing_one_takes_much() -> None:
    everywhere, rare, missing = (np.array(c, np.float32) for c in ([1] * 20, [1] + [0] * 19, [0] * 20))
    lengths, alone, all_ = np.full(20, 5, np.float32), np.full(20, -1), np.ones(20, bool)
    _, two = ranking.bm25([everywhere, rare], lengths, alone, all_)
    _, three = ranking.bm25([everywhere, rare, missing], lengths, alone, all_)
    assert two[0] == 1
    assert two[1] < 0.25
    assert three[0] < 0.6


@pytest.mark.parametrize("size", [1, 2, 3])
def test_in_a_tiny_partition_one_shared_word_of_three_covers_about_a_third(size: int) -> None:
    shared = np.array([1] + [0] * (size - 1), np.float32)
    missing = np.zeros(size, np.float32)
    _, coverage = ranking.bm25(
        [shared, missing, missing], np.full(size, 5, np.float32), np.full(size, -1), np.ones(size, bool)
    )
    assert 0.2 < coverage[0] < 0.34


def test_a_compound_of_words_that_two_memories_have_gives_no_bonus() -> None:
    present = np.array([1, 1, 0], np.float32)
    everyone = np.ones(3, bool)
    assert not ranking.identifier_bonus([present], [False], everyone).any()
    assert ranking.identifier_bonus([present], [True], everyone)[0] == ranking.SHARED_CODE
    sole = ranking.identifier_bonus([present], [False], np.array([True, False, True]))
    assert sole.tolist() == [ranking.SOLE_IDENTIFIER, 0, 0]


def test_an_identifier_of_one_memory_beats_any_z_score() -> None:
    rows = 50_000
    dense, named = np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    dense[0], named[1] = 1, ranking.SOLE_IDENTIFIER
    zeros = np.zeros(rows, np.float32)
    order = ranking.order(
        Signals(np.ones(rows, bool), dense, dense, zeros, named), WEIGHTS, 10, lambda at: at
    )
    assert order.rows[0] == 1


def test_the_floor_rises_with_the_rows_up_to_a_thousand_and_stays_below_1() -> None:
    raised = [ranking.raised_floor(0.1, rows) for rows in (0, 1, 10, 100, 1_000, 1_000_000)]
    assert raised == pytest.approx([0.1, 0.1, 0.15, 0.2, 0.25, 0.25])
    assert ranking.raised_floor(0.9, 1_000) == 1
    assert ranking.raised_floor(0, 1_000) == 0


def test_a_search_answers_by_its_best_row_and_then_shows_weaker_ones_too() -> None:
    def row(id: int, cosine: float) -> Row:
        return Row(id, (0, 0), 0, 10, cosine, None, True)

    weak = [row(0, 0.19), row(1, 0.18), row(2, 0.05)]
    assert found(weak) == []
    assert [id for id, _ in found([*weak[1:], row(3, 0.5)])] == [3, 1]
