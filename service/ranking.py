"""The arithmetic of a search, without stores: signals of rows in, an order and absolute scores out.

All arrays have one element a row. Statistics are taken over the eligible rows only, so that neither another
tenant's rows nor filtered ones ever move a score.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Mask = NDArray[np.bool_]

K1, B = 0.9, 0.4  # measured on LoCoMo: +.024 MRR over the usual 1.2 and .75
PREVIOUS = 0.5  # how much a word of the turn before counts: answers follow questions
# An identifier that only one memory has wins: no z-score of N rows is above the root of N.
SOLE_IDENTIFIER = 10_000.0
SHARED_CODE = 0.5  # settles what is nearly equal; more gains nothing, and less is no loss either

# How relevant a row is in itself; measured on LoCoMo and on a set in eleven languages.
NO_COSINE, FULL_COSINE, WORDS_TRUST = 0.10, 0.85, 0.9
UNSEEN_ROWS = 10  # coverage pretends so many more rows: in a partition of one, a word's rarity is unknown
FLOOR_RISE = 0.5  # how much each tenfold of rows raises the floor: the best of many is better by chance
MEASURED_TENFOLDS = 3.0  # it rises no further: beyond a thousand rows nothing was measured
ROW_SHARE = 0.4  # a row of a search that answers needs this share of the floor


@dataclass(frozen=True, slots=True)
class Weights:
    """How the z-scores are summed, and the absolute relevance that the best row of a search needs, were it
    the only one; `raised_floor` says what it is among more."""

    dense: float
    words: float
    floor: float


@dataclass(frozen=True, slots=True, eq=False)
class Signals:
    """What was measured of each row, (n,) each. `dense` is the best chunk's cosine, NaN without a vector;
    `words` a BM25 score; `coverage` the IDF-weighted share of the query's words in the row, 0..1;
    `identifiers` the bonus of the exact identifiers in it, in standard deviations."""

    eligible: Mask
    dense: Floats
    words: Floats
    coverage: Floats
    identifiers: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """Rows that are relevant, best first, with their scores in [0,1], never rising down the list. The
    other arrays are of all rows; `floor` is what was asked of the best one."""

    rows: NDArray[np.intp]
    scores: Floats
    fused: Doubles
    z_dense: Doubles
    z_words: Doubles
    relevance: Floats
    floor: float


def bm25(
    counts: Sequence[Floats], lengths: Floats, previous: NDArray[np.int64], eligible: Mask
) -> tuple[Floats, Floats]:
    """BM25 and coverage of each row. `counts` has one array a term.

    Robertson & Zaragoza, "The Probabilistic Relevance Framework", 2009, with Lucene's IDF, which is never
    negative: ln(1 + (N - df + .5) / (df + .5)). A message's document is its own words and, at a weight of
    PREVIOUS, those of the turn before, if that is eligible too; coverage looks at its own words only.
    """
    total = int(eligible.sum())
    long = _with_previous(lengths, previous, eligible)
    mean = float(long[eligible].mean(dtype=np.float64)) if total else 0.0
    norm = K1 * (1 - B + B * long / mean) if mean > 0 else np.full_like(long, K1)
    score, covered, weight = np.zeros_like(lengths), np.zeros_like(lengths), 0.0
    for own in counts:
        frequency = _with_previous(own, previous, eligible)
        score += _idf(frequency[eligible], total) * frequency * (K1 + 1) / (frequency + norm)
        rarity = _idf(own[eligible], total + UNSEEN_ROWS)
        covered += rarity * (own > 0)
        weight += rarity
    return score, covered / weight if weight else covered


def identifier_bonus(counts: Sequence[Floats], codes: Sequence[bool], eligible: Mask) -> Floats:
    """The bonus for exact identifiers, in standard deviations. `counts` has one array an identifier and
    `codes` whether it is one wherever it stands: `well-known` in two memories says little."""
    bonus = np.zeros(len(eligible), np.float32)
    for own, is_code in zip(counts, codes, strict=True):
        present = (own > 0) & eligible
        bonus += present * (SOLE_IDENTIFIER if present.sum() == 1 else SHARED_CODE * is_code)
    return bonus


def order(signals: Signals, weights: Weights, limit: int, tie: Callable[[int], int]) -> Order:
    """Fuse the signals and pick the best `limit`. `tie` decides between equal rows (higher first), so that
    the order in which a store holds them never shows."""
    z_dense = zscores(signals.dense, signals.eligible)
    z_words = zscores(signals.words, signals.eligible)
    # Rounded, because sums over other orders of the same rows differ in the last places.
    fused = np.round(weights.dense * z_dense + weights.words * z_words + signals.identifiers, 9)
    relevance = absolute_relevance(signals)
    floor = raised_floor(weights.floor, int(signals.eligible.sum()))
    answers = relevance.max(where=signals.eligible, initial=0) >= floor
    rows = np.flatnonzero(signals.eligible & (relevance >= ROW_SHARE * floor) & answers)
    best = rows[_best(fused[rows], limit, lambda place: tie(int(rows[place])))]
    # z-scores order; absolute evidence says how good. A row is called as good as the best one below it, and
    # those below the last one shown count too.
    left_out = np.ones(len(fused), np.bool_)
    left_out[best] = False
    below = relevance[rows].max(where=left_out[rows], initial=0)
    scores = np.maximum.accumulate(np.append(relevance[best], below)[::-1])[::-1][:-1]
    return Order(best, scores, fused, z_dense, z_words, relevance, floor)


def _best(fused: Doubles, limit: int, tie: Callable[[int], int]) -> NDArray[np.intp]:
    """Places of the largest, in order: to sort all takes most of a search among ten thousand. Only equal
    ones are asked for their tie, which is a call in Python."""
    places = np.arange(len(fused))
    if limit < len(fused):
        places = np.flatnonzero(fused >= np.partition(fused, -limit)[-limit])
    places = places[np.argsort(-fused[places], kind="stable")]
    equal = np.diff(fused[places]) == 0
    twins = np.append(equal, False) | np.insert(equal, 0, False) if len(places) else equal
    ties = np.zeros(len(places), np.int64)
    ties[twins] = [tie(place) for place in places[twins].tolist()]
    return places[np.lexsort((-ties, -fused[places]))][:limit]


def raised_floor(floor: float, rows: int) -> float:
    """The relevance that the best of so many rows needs. The best of N unrelated rows looks the more
    relevant the larger N is, and so does the best of N related ones: both were measured to rise with log N.
    One bar for all sizes either refuses questions to small partitions or lets large ones answer all."""
    tenfolds = min(math.log10(max(rows, 1)), MEASURED_TENFOLDS)
    return min(floor * (1 + FLOOR_RISE * tenfolds), 1.0)


def absolute_relevance(signals: Signals) -> Floats:
    """How relevant a row is in itself, 0..1, whatever else is stored: 1 for an exact identifier, else the
    noisy-or of what the cosine and the shared words say. Holds for a partition of one memory too."""
    cosine = np.where(np.isnan(signals.dense), np.float32(-1), signals.dense)
    dense = np.clip((cosine - NO_COSINE) / (FULL_COSINE - NO_COSINE), 0, 1)
    told = 1 - (1 - dense) * (1 - WORDS_TRUST * signals.coverage)
    relevance: Floats = np.where(signals.identifiers > 0, np.float32(1), told).astype(np.float32)
    return relevance


def zscores(values: Floats, eligible: Mask) -> Doubles:
    """(value - mean) / deviation over the eligible rows that have a value; 0 for a constant and for NaN."""
    missing = np.isnan(values)
    known = values[eligible & ~missing].astype(np.float64)
    if not known.size or np.ptp(known) < 1e-6:  # no spread but that of rounding
        return np.zeros(len(values))
    scores: Doubles = (values - known.mean()) / known.std()
    scores[missing] = 0
    return scores


def _idf(frequency: Floats, total: int) -> float:
    """Lucene's, of a term with these frequencies among `total` rows."""
    df = int(np.count_nonzero(frequency))
    return math.log(1 + (total - df + 0.5) / (df + 0.5))


def _with_previous(values: Floats, previous: NDArray[np.int64], eligible: Mask) -> Floats:
    """Each row's value plus PREVIOUS times that of the turn before; 0 for what is not eligible or not there
    (-1 points at the appended 0)."""
    own = values * eligible
    if previous.max(initial=-1) < 0:  # no messages
        return own
    with_none = np.append(own, np.float32(0))
    return own + np.float32(PREVIOUS) * with_none[previous]
