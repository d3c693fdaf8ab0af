"""Late interaction against a naive double loop, and the sample that says what is usual."""

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.embedding import Encoding, normalise
from models.token_codes import WIDTH, TokenCodes, pack
from service import late
from service.late import PLAIN_LENGTH, SAMPLE, USUAL_PIECES, QueryTokens


def chunk(seed: int, pieces: int) -> TokenCodes:
    vectors = normalise(np.random.default_rng(seed).normal(size=(pieces, WIDTH)))
    return pack(Encoding(np.zeros(WIDTH, np.float32), np.arange(pieces, dtype=np.int32), vectors))


def asked(seed: int, pieces: int) -> QueryTokens:
    rng = np.random.default_rng(seed)
    return QueryTokens(
        normalise(rng.normal(size=(pieces, WIDTH))), rng.uniform(0.1, 5, pieces).astype(np.float32)
    )


def naive(query: QueryTokens, of: TokenCodes) -> float:
    """The definition, piece by piece, in float64."""
    total = 0.0
    for vector, weight in zip(query.vectors.astype(float), query.weights.astype(float), strict=True):
        total += weight * max(
            float((codes.astype(float) * scale) @ vector)
            for codes, scale in zip(of.codes, of.scales.astype(float), strict=True)
        )
    return total / float(query.weights.sum())


def maxsim(query: QueryTokens, chunks: Sequence[TokenCodes]) -> list[float]:
    return late.maxsim(query, [one.codes for one in chunks], [one.scales for one in chunks]).tolist()


sizes = st.lists(st.integers(0, 12), max_size=7)


@given(st.integers(0, 10_000), st.integers(1, 9), sizes)
@settings(max_examples=settings().max_examples * 3 // 5)
def test_maxsim_is_the_weighted_mean_of_the_best_cosines(seed: int, pieces: int, memories: list[int]) -> None:
    query, chunks = asked(seed, pieces), [chunk(seed + at, size) for at, size in enumerate(memories)]
    expected = [naive(query, one) if len(one.codes) else np.nan for one in chunks]
    found = maxsim(query, chunks)
    assert found == pytest.approx(expected, abs=2e-4, nan_ok=True)
    assert all(np.isnan(score) or -1.01 <= score <= 1.01 for score in found)


@given(st.integers(0, 10_000), st.integers(1, 9), sizes, st.randoms(use_true_random=False))
@settings(max_examples=settings().max_examples * 3 // 5)
def test_neither_the_order_nor_the_company_of_memories_changes_a_bit(
    seed: int, pieces: int, memories: list[int], random: Random
) -> None:
    query, chunks = asked(seed, pieces), [chunk(seed + at, size) for at, size in enumerate(memories)]
    order = random.sample(range(len(chunks)), len(chunks))
    together = maxsim(query, chunks)
    assert str([maxsim(query, [one])[0] for one in chunks]) == str(together)
    assert str(maxsim(query, [chunks[at] for at in order])) == str([together[at] for at in order])


def test_a_memory_that_has_the_very_pieces_of_the_query_fits_perfectly() -> None:
    of = chunk(1, 5)
    itself = QueryTokens(normalise(of.codes * of.scales[:, None]), np.ones(5, np.float32))
    assert maxsim(itself, [chunk(2, 30), of])[1] == pytest.approx(1, abs=1e-3)


def test_a_query_without_pieces_says_nothing() -> None:
    empty = QueryTokens(np.empty((0, WIDTH), np.float32), np.empty(0, np.float32))
    assert np.isnan(maxsim(empty, [chunk(1, 3)])).all()


def test_of_several_chunks_the_best_counts_and_of_none_there_is_no_score() -> None:
    query, (one, two) = asked(0, 4), (chunk(1, 6), chunk(2, 6))
    alone = maxsim(query, [one, two])
    found = late.best_chunks(query, [[one, two], [], [two, chunk(3, 0)]], np.ones(3, bool))
    assert found[[0, 2]].tolist() == pytest.approx([max(alone), alone[1]], abs=1e-7)
    assert np.isnan(found[1])
    assert np.isnan(late.best_chunks(query, [[], []], np.zeros(2, bool))).all()


def test_length_costs_what_is_no_message_and_costs_a_message_nothing() -> None:
    query, long = asked(0, 4), chunk(1, 200)
    as_message, as_memory = late.best_chunks(query, [[long], [long]], np.array([True, False]))
    assert as_message - as_memory == pytest.approx(PLAIN_LENGTH * np.log(200 / USUAL_PIECES), abs=1e-5)


@given(st.lists(st.integers(0, 2**48 - 1), min_size=1, max_size=120, unique=True), st.data())
def test_the_sample_is_the_same_rows_in_any_order(lots: list[int], data: st.DataObject) -> None:
    eligible = np.array(data.draw(st.lists(st.booleans(), min_size=len(lots), max_size=len(lots))))
    order = np.array(data.draw(st.permutations(range(len(lots)))))
    numbers = np.array(lots, np.int64)
    chosen = late.sample(numbers, eligible)
    assert set(numbers[order][late.sample(numbers[order], eligible[order])]) == set(numbers[chosen])
    assert chosen.sum() == min(SAMPLE, eligible.sum())
    assert not chosen[~eligible].any()
