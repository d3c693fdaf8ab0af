"""Search: which memories of some partitions answer a query. Planned as a frozen value, scored exactly over
every eligible row of immutable snapshots; never writes."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from models import verbatim
from models.answers import Explanation
from models.authority import rank
from models.layers import KINDS, LAYERS, STATUSES
from models.memory import Memory
from models.requests import Filters, SearchMemories
from service import ranking
from service.ranking import Floats, Mask, Order, Signals, Weights
from stores.resident import Snapshot
from stores.words import identifiers, is_code, query_terms

NEAR = 0.3  # the cosine from which a hit is said to be matched by its vector


@dataclass(frozen=True, slots=True)
class Plan:
    """A search before it runs: what is asked, of which rows, by which weights."""

    request: SearchMemories
    terms: tuple[str, ...]
    identifiers: tuple[str, ...]
    weights: Weights

    @classmethod
    def of(cls, request: SearchMemories, weights: Weights) -> "Plan":
        names = tuple("=" + name for name in identifiers(request.query))
        return cls(request, query_terms(request.query), names, weights)

    @property
    def index_terms(self) -> tuple[str, ...]:
        return (*self.terms, *self.identifiers)


@dataclass(frozen=True, slots=True)
class Found:
    """One hit: the record, its score in [0,1], what found it and every term of the score."""

    memory: Memory
    score: float
    matched_by: tuple[str, ...]
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class Result:
    hits: tuple[Found, ...]
    candidates: int  # rows that passed the filters


def without_actors(query: str, actors: Iterable[str]) -> str:
    """The query without the names of known speakers. They dominate the cosine and say nothing of the
    subject: stripping them lifts dense R@10 on LoCoMo from .44 to .60. Words still match them."""
    folded = query.casefold()
    bare = query
    # The longest first, so that `Ann` leaves no half of `Ann Lee`.
    for actor in sorted((a for a in actors if a.casefold() in folded), key=lambda a: (-len(a), a)):
        name = rf"(?<!\w){re.escape(actor)}(?!\w)(?:['’]s\b)?"
        bare = re.sub(name, " ", bare, flags=re.IGNORECASE)
    bare = " ".join(bare.split())
    return bare if re.search(r"\w", bare) else query


def search(plan: Plan, snapshots: Sequence[Snapshot], vector: Floats | None) -> Result:
    """Score every eligible row. `vector` (dimensions,) float32 of the bare query; None: words only."""
    corpus = _Corpus.of(snapshots)
    eligible = _eligible(corpus, plan.request)
    candidates = int(eligible.sum())
    if not candidates:
        return Result((), 0)
    words, coverage = ranking.bm25(
        [corpus.counts(term) for term in plan.terms], corpus.lengths, corpus.previous, eligible
    )
    signals = Signals(
        eligible,
        corpus.cosines(vector),
        words,
        coverage,
        _identifier_bonus(plan, corpus, eligible),
    )
    order = ranking.order(signals, plan.weights, plan.request.limit, lambda row: corpus.rows[row].seq)
    hits = [_found(plan, corpus, signals, order, place) for place in range(len(order.rows))]
    return Result(tuple(hits), candidates)


def _identifier_bonus(plan: Plan, corpus: "_Corpus", eligible: Mask) -> Floats:
    counts = [corpus.counts(name) for name in plan.identifiers]
    return ranking.identifier_bonus(counts, [is_code(name) for name in plan.identifiers], eligible)


def _found(plan: Plan, corpus: "_Corpus", signals: Signals, order: Order, place: int) -> Found:
    row = int(order.rows[place])
    dense = float(signals.dense[row])
    matched = {
        "vector": dense >= NEAR,
        "words": signals.coverage[row] > 0,
        "identifier": signals.identifiers[row] > 0,
    }
    explanation: Explanation = {
        "dense": None if np.isnan(dense) else round(dense, 6),
        "words": round(float(signals.coverage[row]), 6),
        "identifier": 1.0 if matched["identifier"] else 0.0,
        "z_dense": round(float(order.z_dense[row]), 6),
        "z_words": round(float(order.z_words[row]), 6),
        "fused": round(float(order.fused[row]), 6),
        "relevance": round(float(order.relevance[row]), 6),
        "weights": {"dense": plan.weights.dense, "words": plan.weights.words, "floor": round(order.floor, 6)},
    }
    by = tuple(name for name, yes in matched.items() if yes) or ("vector",)
    return Found(corpus.rows[row], round(float(order.scores[place]), 6), by, explanation)


@dataclass(frozen=True, slots=True, eq=False)
class _Corpus:
    """Snapshots laid end to end, so that one set of statistics covers all that the caller reaches."""

    snapshots: Sequence[Snapshot]
    starts: tuple[int, ...]
    rows: list[Memory]
    lengths: Floats
    previous: NDArray[np.int64]

    @classmethod
    def of(cls, snapshots: Sequence[Snapshot]) -> "_Corpus":
        starts: list[int] = []
        rows: list[Memory] = []
        previous: list[NDArray[np.int64]] = []
        for snapshot in snapshots:
            start = len(rows)
            starts.append(start)
            previous.append(np.where(snapshot.previous < 0, -1, snapshot.previous + start))
            rows += snapshot.rows
        lengths = np.concatenate([snapshot.lengths for snapshot in snapshots])
        return cls(snapshots, tuple(starts), rows, lengths, np.concatenate(previous))

    def codes(self, name: str) -> NDArray[np.uint8]:
        return np.concatenate([getattr(snapshot, name) for snapshot in self.snapshots])

    def counts(self, term: str) -> Floats:
        """(n,) how often a term stands in each row."""
        counts = np.zeros(len(self.rows), np.float32)
        for start, snapshot in zip(self.starts, self.snapshots, strict=True):
            postings = snapshot.postings[term]
            counts[postings[:, 0] + np.uint32(start)] = postings[:, 1]
        return counts

    def cosines(self, vector: Floats | None) -> Floats:
        """(n,) the best chunk's cosine of each row, NaN for a row without vectors."""
        best = np.full(len(self.rows), -np.inf, np.float32)
        for start, snapshot in zip(self.starts, self.snapshots, strict=True):
            if vector is not None and len(snapshot.owners):
                # Not `@`: BLAS rounds a row by its place, and equal memories would not be equally near.
                cosines = np.einsum("md,d->m", snapshot.vectors, vector)
                np.maximum.at(best, snapshot.owners + start, cosines)
        best[np.isneginf(best)] = np.nan
        return best


def _eligible(corpus: _Corpus, filters: Filters) -> Mask:
    """(n,) which rows pass every filter. The cheap ones first, over codes; the rest row by row."""
    mask = _among(corpus.codes("statuses"), [STATUSES.index(status) for status in filters.statuses])
    if filters.layers:
        mask &= _among(corpus.codes("layers"), [LAYERS.index(layer) for layer in filters.layers])
    if filters.kinds:
        mask &= _among(corpus.codes("kinds"), [KINDS.index(kind) for kind in filters.kinds])
    if _has_row_filters(filters):
        wanted = {key: _canonical(value) for key, value in filters.metadata.items()}
        for row in np.flatnonzero(mask):
            mask[row] = _passes(corpus.rows[row], filters, wanted)
    return mask


def _among(codes: NDArray[np.uint8], wanted: list[int]) -> Mask:
    among = np.zeros(256, np.bool_)
    among[wanted] = True
    return among[codes]


_CODED = {"layers", "kinds", "statuses", "tags_match"}


def _has_row_filters(filters: Filters) -> bool:
    return any(
        getattr(filters, name) not in (None, [], {}) for name in Filters.model_fields if name not in _CODED
    )


def _passes(memory: Memory, filters: Filters, metadata: dict[str, bytes]) -> bool:
    state = memory.state
    at = memory.memory_at
    if filters.tags:
        has = [tag in state.tags for tag in filters.tags]
        if not (all(has) if filters.tags_match == "all" else any(has)):
            return False
    return (
        filters.session_id in (None, memory.session_id)
        and filters.project in (None, memory.project)
        and filters.frame in (None, state.frame)
        and (filters.memory_at_from is None or (at is not None and at >= filters.memory_at_from))
        and (filters.memory_at_to is None or (at is not None and at <= filters.memory_at_to))
        and (filters.min_authority is None or rank(memory.source_authority) >= rank(filters.min_authority))
        and (filters.min_confidence is None or state.confidence >= filters.min_confidence)
        and (not metadata or _has_metadata(state.custom, metadata))
    )


def _has_metadata(custom: str, wanted: dict[str, bytes]) -> bool:
    values = orjson.loads(custom)
    return all(key in values and _canonical(values[key]) == text for key, text in wanted.items())


def _canonical(value: object) -> bytes:
    """Equal for equal JSON values; 2, 2.0, "2" and true are four."""
    return orjson.dumps(orjson.loads(verbatim.dump(value)), option=orjson.OPT_SORT_KEYS)
