"""Late interaction: each word piece of the query against the best of a memory's (ColBERT's MaxSim, Khattab &
Zaharia 2020), over the token vectors that the embedding model makes anyway."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.token_codes import TokenCodes

Floats = NDArray[np.float32]

POOL = 60  # rows that are looked at again
# Weights of pieces that no index counts, between those of rare and of common words.
STOP_WORD, PUNCTUATION = 1.2, 0.3
PLAIN_LENGTH = 0.05  # what each e-fold of pieces takes off: of many pieces one is always near
USUAL_PIECES = 30
# The query's components as whole numbers: with int8 codes every sum of products stays below 2^24 (they
# are unit vectors), so that float32 adds exactly, in whatever order BLAS takes the rows.
WHOLE = 8192
SAMPLE = 64  # rows from which mean and deviation are taken, so that neither depends on the pool


@dataclass(frozen=True, slots=True, eq=False)
class QueryTokens:
    """(t, d) unit vectors of the query's pieces, projected as the memories' are, and (t,) their weights."""

    vectors: Floats
    weights: Floats


def maxsim(query: QueryTokens, codes: Sequence[NDArray[np.int8]], scales: Sequence[Floats]) -> Floats:
    """(k,) the weighted mean, -1..1, of the best cosine of each query piece in each memory; NaN for one
    without pieces. `codes` (t, d) and `scales` (t,) of each memory."""
    scores = np.full(len(codes), np.nan, np.float32)
    full = [at for at, rows in enumerate(codes) if len(rows)]
    if not full or not len(query.vectors):
        return scores
    lengths = np.array([len(codes[at]) for at in full])
    stacked = np.concatenate([codes[at] for at in full]).astype(np.float32)
    asked = np.round(query.vectors * WHOLE)
    cosines = (stacked @ asked.T) * (np.concatenate([scales[at] for at in full]) / WHOLE)[:, None]
    best = np.maximum.reduceat(cosines, np.cumsum(lengths) - lengths, axis=0)
    scores[full] = np.einsum("kt,t->k", best, query.weights) / max(float(query.weights.sum()), 1e-6)
    return scores


def sample(lots: NDArray[np.int64], eligible: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) SAMPLE of the eligible rows, and those that tie with the last; chosen by ids and so whatever the
    order of the rows."""
    rows = np.flatnonzero(eligible)
    if len(rows) > SAMPLE:
        rows = rows[lots[rows] <= np.partition(lots[rows], SAMPLE - 1)[SAMPLE - 1]]
    chosen = np.zeros(len(eligible), np.bool_)
    chosen[rows] = True
    return chosen


def best_chunks(
    query: QueryTokens, memories: Sequence[Sequence[TokenCodes]], messages: NDArray[np.bool_]
) -> Floats:
    """(k,) the best chunk's MaxSim of each memory, NaN for one without pieces. What is no message loses a
    little with its length, which in a chat says more than it blurs."""
    chunks = [(place, chunk) for place, codes in enumerate(memories) for chunk in codes if len(chunk.codes)]
    scores = np.full(len(memories), -np.inf, np.float32)
    if chunks:
        found = maxsim(query, [chunk.codes for _, chunk in chunks], [chunk.scales for _, chunk in chunks])
        owners = np.array([place for place, _ in chunks])
        pieces = np.array([len(chunk.codes) for _, chunk in chunks], np.float32)
        found -= ~messages[owners] * np.float32(PLAIN_LENGTH) * np.log(pieces / USUAL_PIECES)
        np.maximum.at(scores, owners, found)
    scores[np.isneginf(scores)] = np.nan
    return scores
