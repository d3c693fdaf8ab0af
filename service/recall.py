"""Search: which memories of some partitions answer a query. Planned as a frozen value, scored exactly over
every eligible row of immutable snapshots, the best looked at again piece by piece; never writes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from models.answers import Explanation
from models.folding import fold
from models.layers import STATUSES
from models.memory import Memory
from models.token_codes import TokenCodes, project
from service import late, lexical, ranking, trust
from service.corpus import Corpus, Floats, Mask
from service.evidence import measure
from service.plan import Plan, QueryMeaning
from service.ranking import Evidence, Order
from service.relevance import absolute_relevance
from service.strangers import names_unknown_code
from service.versions import Versions
from stores.resident import Snapshot
from stores.words import is_stop, stem

NEAR = 0.3  # the cosine from which a hit is said to be matched by its vector
_ACTIVE = STATUSES.index("active")

Tokens = Callable[[Sequence[str]], Mapping[str, Sequence[TokenCodes]]]
"""The stored word pieces of some memories, a list of chunks for each id that has any."""


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
    waiting: int = 0  # of them, not embedded yet and so found by words only


def search(
    plan: Plan, snapshots: Sequence[Snapshot], query: QueryMeaning | None, tokens: Tokens | None
) -> Result:
    """Score every eligible row. Without `query` by words only; without `tokens` no row is looked at again."""
    corpus = Corpus.of(snapshots)
    eligible = corpus.eligible(plan.request)
    candidates = int(eligible.sum())
    if not candidates or names_unknown_code(corpus, eligible, plan.terms, plan.identifiers):
        return Result((), candidates)
    versions = Versions.of(corpus, plan.request, eligible)
    evidence = measure(plan, corpus, eligible, query, versions)
    versions = versions.nearest(evidence.dense)
    terms = ranking.first_stage(evidence, plan.weights)
    fused = _sum(terms)
    pieces = None
    if query is not None and tokens is not None and plan.weights.looks_again and len(query.encoding.tokens):
        looked_at = np.zeros(len(eligible), np.bool_)
        looked_at[ranking.pool(fused, eligible, late.POOL)] = True
        pieces, sample = _look_again(plan, corpus, evidence, looked_at, query, tokens, versions)
        if pieces is not None:
            terms = ranking.last_stage(evidence, plan.weights, pieces, sample)
            fused = ranking.below(_sum(terms), fused, looked_at, eligible)
    relevance = absolute_relevance(evidence, pieces)
    if plan.actors and plan.bare == plan.request.query:  # only a name: all that they said is asked for
        relevance = np.maximum(relevance, evidence.actor)
    trusted = trust.terms(corpus.all, plan.recipe, plan.now)
    # Authority settles among what is relevant; it lifts nothing that is not.
    trusted["authority"] *= relevance >= plan.weights.floor
    current = corpus.all("statuses") == _ACTIVE
    fused = fused + _sum(trusted)
    if evidence.multilingual:
        trusted |= _beside_others(corpus, fused, trusted["authority"], eligible & current, plan.now)
        fused = fused + trusted["later"] + trusted["overruled"]
    if conflicts := corpus.conflicts():
        trusted["conflict"] = trust.winners_first(fused, corpus.rows, conflicts, eligible & current)
        fused = fused + trusted["conflict"]
    fused = trust.heads_first(fused, corpus.rows, current, eligible)
    order = ranking.order(
        evidence,
        fused,
        terms | trusted,
        relevance,
        plan.weights.floor,
        plan.request.limit,
        lambda row: corpus.rows[row].seq,  # the later written first
        cache(lambda row: _same(corpus.rows[row])),
        # One that was superseded keeps to its own place, which is beneath what replaced it.
        lambda row: trusted["authority"][row] if current[row] else -1.0,
    )
    nearer = dict(zip(versions.heads.tolist(), versions.olds.tolist(), strict=True))
    hits = tuple(_found(plan, evidence, corpus, order, place, nearer) for place in range(len(order.rows)))
    return Result(hits, candidates, 0 if query is None else int(np.isnan(evidence.dense[eligible]).sum()))


def _beside_others(
    corpus: Corpus, fused: ranking.Doubles, authority: ranking.Doubles, eligible: Mask, now: int
) -> dict[str, ranking.Doubles]:
    """(n,) each: what the best rows gain and lose by what the others among them say."""
    rows = ranking.pool(fused, eligible, late.POOL)
    # Of a flood that ties some: each is compared with each. Which ones goes by their ids, not by their place.
    rows = rows[np.lexsort((corpus.all("lots")[rows], -fused[rows]))][: late.POOL]
    vectors = corpus.first_vectors(rows)
    likeness = np.round(vectors @ vectors.T, 4).astype(np.float64)  # BLAS rounds a row by its place
    later, overruled = np.zeros(len(fused)), np.zeros(len(fused))
    times = np.minimum(trust.moments(corpus.all)[rows], now)  # nothing is later for being told of the future
    later[rows] = trust.later_first(fused[rows], authority[rows], times, likeness)
    overruled[rows] = trust.overruled(fused[rows] + later[rows], authority[rows], likeness)
    return {"later": later, "overruled": overruled}


def _same(memory: Memory) -> object:
    """Equal for memories of one user that say the same, however often: a flood takes one place."""
    return fold(memory.content), memory.partition


def _sum(terms: Mapping[str, ranking.Doubles]) -> ranking.Doubles:
    first, *others = terms.values()
    total = first.copy()
    for values in others:
        total += values
    return total


def _look_again(
    plan: Plan,
    corpus: Corpus,
    e: Evidence,
    looked_at: Mask,
    query: QueryMeaning,
    tokens: Tokens,
    versions: Versions,
) -> tuple[Floats | None, Mask]:
    """(n,) how well the word pieces of the rows in the pool fit the query's, NaN for others, and the sample
    that says what is usual; None when no row has pieces."""
    sample = late.sample(corpus.all("lots"), e.eligible)
    rows = looked_at | sample
    versions = versions.of_heads(rows)
    rows[versions.olds] = True
    rows[e.previous[looked_at & e.answers]] = True  # what they answer
    at = np.flatnonzero(rows).tolist()
    ids = [corpus.rows[row].memory_id for row in at]
    found = tokens(ids)
    if not found:
        return None, sample
    asked = late.QueryTokens(project(query.encoding.tokens), _piece_weights(plan, corpus, e, query))
    scores = np.full(len(e.eligible), np.nan, np.float32)
    scores[at] = late.best_chunks(asked, [found.get(id, ()) for id in ids], e.messages[at])
    versions.raise_heads(scores)
    return scores, sample


def _piece_weights(plan: Plan, corpus: Corpus, e: Evidence, query: QueryMeaning) -> Floats:
    """(t,) the rarity of the word that each piece of the query belongs to."""
    total = int(e.eligible.sum()) + lexical.UNSEEN_ROWS
    words = [(match.start(), match.end(), match[0].casefold()) for match in re.finditer(r"\w+", plan.bare)]

    @cache  # a word of several pieces is counted once
    def weight(word: str | None) -> float:
        if word is None:
            return late.PUNCTUATION
        if is_stop(word):
            return late.STOP_WORD
        term = stem(word)
        documents = corpus.documents(term, e.eligible) if term in plan.terms else 0
        return float(lexical.idf(np.array([documents]), total)[0])

    starts = query.starts[: len(query.encoding.tokens)]
    owners = (next((word for begin, end, word in words if begin <= at < end), None) for at in starts)
    return np.array([weight(word) for word in owners], np.float32)


def _found(
    plan: Plan, e: Evidence, corpus: Corpus, order: Order, place: int, nearer: Mapping[int, int]
) -> Found:
    """`nearer` has the nearest earlier version of each row that has any."""
    row = int(order.rows[place])
    dense = float(e.dense[row])
    matched = {
        "vector": dense >= NEAR,
        "words": e.coverage[row] > 0,
        "identifier": e.identifiers[row] > 0,
    }
    explanation: Explanation = {
        "dense": None if np.isnan(dense) else round(dense, 6),
        "words": round(float(e.coverage[row]), 6),
        "identifier": 1.0 if matched["identifier"] else 0.0,
        "terms": {name: round(float(values[row]), 6) for name, values in order.terms.items()},
        "fused": round(float(order.fused[row]), 6),
        "relevance": round(float(order.relevance[row]), 6),
        "floor": round(order.floor, 6),
        "weights": f"{plan.weights.version}:{plan.recipe.name}",
    }
    if (old := nearer.get(row)) is not None and e.dense[old] == e.dense[row]:
        explanation["version"] = corpus.rows[old].memory_id
    if alike := [term for term, counts in e.alike.items() if counts[row]]:
        explanation["respelled"] = alike
    by = tuple(name for name, yes in matched.items() if yes) or ("vector",)
    return Found(corpus.rows[row], round(float(order.scores[place]), 6), by, explanation)
