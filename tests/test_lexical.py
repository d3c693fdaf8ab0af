"""Word statistics: BM25 against its published formula, and words of turns, sessions and neighbours."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from service import lexical
from service.corpus import successors
from service.lexical import K1, B

NONE = np.array([-1, -1, -1])


def floats(*rows: list[float]) -> np.ndarray:
    return np.array(rows, np.float32)


@st.composite
def counted(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts (T, n), 0 where not eligible, lengths (n,) and eligible (n,)."""
    terms, rows = draw(st.integers(0, 4)), draw(st.integers(1, 9))
    eligible = draw(arrays(np.bool_, rows))
    counts = draw(arrays(np.float32, (terms, rows), elements=st.integers(0, 3).map(float)))
    lengths = draw(arrays(np.float32, rows, elements=st.integers(1, 40).map(float)))
    return counts * eligible, lengths, eligible


@given(counted())
def test_bm25_is_the_published_formula(given: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    counts, lengths, eligible = given
    total = int(eligible.sum())
    mean = sum(lengths[eligible].tolist()) / total if total else 1.0
    expected = np.zeros(len(lengths))
    for row in np.flatnonzero(eligible):
        for own in counts:
            documents = int((own > 0).sum())
            idf = math.log(1 + (total - documents + 0.5) / (documents + 0.5))
            norm = K1 * (1 - B + B * lengths[row] / mean)
            expected[row] += idf * own[row] * (K1 + 1) / (own[row] + norm)
    assert lexical.bm25(counts, lengths, eligible) == pytest.approx(expected, rel=1e-5)


@given(counted())
def test_coverage_is_the_idf_weighted_share_of_the_words(
    given: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    counts, _, eligible = given
    total = int(eligible.sum()) + lexical.UNSEEN_ROWS
    documents = (counts > 0).sum(axis=1)
    idf = [math.log(1 + (total - df + 0.5) / (df + 0.5)) for df in documents.tolist()]
    whole = sum(idf) or 1.0
    shares = [
        sum(weight for weight, own in zip(idf, counts, strict=True) if own[row] > 0) / whole
        for row in range(len(eligible))
    ]
    found = lexical.coverage(counts, eligible)
    assert found == pytest.approx(shares, abs=1e-6)
    assert ((found >= 0) & (found <= 1 + 1e-6)).all()


def test_a_word_that_every_memory_has_covers_little_and_a_missing_one_takes_much() -> None:
    everywhere, rare, missing = [1.0] * 20, [1.0] + [0.0] * 19, [0.0] * 20
    everyone = np.ones(20, bool)
    two = lexical.coverage(floats(everywhere, rare), everyone)
    three = lexical.coverage(floats(everywhere, rare, missing), everyone)
    assert two[0] == pytest.approx(1)
    assert two[1] < 0.25
    assert three[0] < 0.6


@pytest.mark.parametrize("size", [1, 2, 3])
def test_in_a_tiny_partition_one_shared_word_of_three_covers_about_a_third(size: int) -> None:
    shared, missing = [1.0] + [0.0] * (size - 1), [0.0] * size
    coverage = lexical.coverage(floats(shared, missing, missing), np.ones(size, bool))
    assert 0.2 < coverage[0] < 0.34


def test_no_terms_cover_nothing() -> None:
    nothing = np.zeros((0, 3), np.float32)
    assert lexical.coverage(nothing, np.ones(3, bool)).tolist() == [0, 0, 0]
    assert lexical.bm25(nothing, np.ones(3, np.float32), np.ones(3, bool)).tolist() == [0, 0, 0]


def test_words_of_the_turn_before_are_added() -> None:
    counts, previous = floats([1, 0, 0], [0, 2, 0]), np.array([-1, 0, 1])
    assert lexical.with_previous(counts, previous).tolist() == [[1, 1, 0], [0, 2, 2]]
    assert lexical.with_previous(counts[0], previous).tolist() == [1, 1, 0]
    assert lexical.with_previous(counts, NONE).tolist() == counts.tolist()


def test_sessions_add_up_their_rows_and_rows_without_one_count_nowhere() -> None:
    counts, sessions = floats([1, 2, 4, 8], [0, 1, 0, 1]), np.array([1, -1, 0, 1])
    assert lexical.by_session(counts, sessions, 3).tolist() == [[4, 9, 0], [0, 1, 0]]
    assert lexical.by_session(counts[:0], sessions, 3).shape == (0, 3)


def test_a_term_is_near_up_to_two_turns_away_in_both_directions() -> None:
    previous = np.array([-1, 0, 1, 2, 3, 4, -1])  # six turns and a memory of its own
    counts = floats([0, 0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1])
    assert lexical.nearby(counts, previous, successors(previous)).tolist() == [
        [0, 1, 1, 1, 1, 1, 0],
        [1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 1],
    ]
    assert lexical.nearby(counts, previous, successors(previous), steps=1)[0].tolist() == [
        *(0, 0, 1, 1, 1, 0, 0)
    ]


def test_where_there_are_no_turns_only_the_row_itself_is_near() -> None:
    assert lexical.nearby(floats([3, 0, 1]), NONE, NONE).tolist() == [[1, 0, 1]]


@given(st.permutations(range(8)))
def test_successors_are_the_inverse_of_the_turns_before(order: list[int]) -> None:
    previous = np.full(9, -1)
    previous[order[1:]] = order[:-1]
    following = successors(previous)
    assert all(following[before] == after for before, after in pairwise(order))
    assert following[order[-1]] == following[8] == -1
