"""Word statistics of a search, over eligible rows only. Arrays: T terms, n rows, S sessions."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

K1, B = 0.9, 0.4  # measured on LoCoMo: +.024 MRR over the usual 1.2 and .75
UNSEEN_ROWS = 10  # coverage pretends so many more rows: in a partition of one, a word's rarity is unknown


def idf(documents: NDArray[np.int64], total: int) -> Floats:
    """Lucene's, never negative: ln(1 + (N - df + .5) / (df + .5)), of (T,) document frequencies."""
    return np.log1p((total - documents + 0.5) / (documents + 0.5)).astype(np.float32)


def bm25(counts: Floats, lengths: Floats, eligible: Mask) -> Floats:
    """(n,) scores of (T, n) counts, 0 where not eligible. Robertson & Zaragoza, "The Probabilistic Relevance
    Framework", 2009, with Lucene's IDF."""
    total = int(eligible.sum())
    mean = float(lengths[eligible].mean(dtype=np.float64)) if total else 0.0
    norm = K1 * (1 - B + B * lengths / mean) if mean > 0 else np.full_like(lengths, K1)
    score = np.zeros(len(lengths), np.float32)
    for own, rarity in zip(counts, idf(np.count_nonzero(counts, axis=1), total), strict=True):
        at = np.flatnonzero(own)
        score[at] += rarity * own[at] * (K1 + 1) / (own[at] + norm[at])
    return score


def with_previous(values: Floats, previous: Rows) -> Floats:
    """(…, n) each row's values plus those of the turn before it (-1: none)."""
    if previous.max(initial=-1) < 0:
        return values
    return values + np.where(previous >= 0, values[..., previous], np.float32(0))


def by_session(values: Floats, sessions: Rows, number: int) -> Floats:
    """(T, n) summed up to (T, S) by the session of each row (-1: none)."""
    inside = sessions >= 0
    return (
        np.stack([np.bincount(sessions[inside], row[inside], number) for row in values]).astype(np.float32)
        if len(values)
        else np.zeros((0, number), np.float32)
    )


def coverage(counts: Floats, eligible: Mask, unseen: int = UNSEEN_ROWS) -> Floats:
    """(n,) the IDF-weighted share, 0..1, of the terms that stand in each row."""
    present = counts > 0
    rarity = idf(present.sum(axis=1), int(eligible.sum()) + unseen)
    weight = float(rarity.sum())
    covered = np.zeros(len(eligible), np.float32)
    for own, share in zip(present, rarity, strict=True):  # not `@`, which rounds a row by its place
        covered[own] += share
    return covered / np.float32(weight) if weight else covered


def nearby(counts: Floats, previous: Rows, following: Rows, steps: int = 2) -> Floats:
    """(T, n) 1 where a term stands in a row or in one of the `steps` turns before or after it."""
    present = (counts > 0).astype(np.float32)
    if previous.max(initial=-1) < 0:
        return present
    near = present.copy()
    for chain in (previous, following):
        at = chain
        for _ in range(steps):
            near = np.maximum(near, np.where(at >= 0, present[:, at], np.float32(0)))
            at = np.where(at >= 0, chain[at], -1)
    return near
