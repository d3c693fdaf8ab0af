"""Search: which memories of some partitions answer a query. Planned as a frozen value, scored exactly over
every eligible row of immutable snapshots, the best looked at again piece by piece; never writes."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from models.answers import Explanation
from models.folding import fold
from models.layers import KINDS, STATUSES
from models.memory import Memory
from models.token_codes import TokenCodes, project
from service import late, lexical, ranking, trust
from service.corpus import Corpus, Floats, Mask, successors
from service.plan import Plan, QueryMeaning
from service.question import unread, wanted_marks
from service.ranking import Evidence, Order
from service.relevance import absolute_relevance
from service.strangers import names_stranger, names_unknown_code
from service.versions import Versions
from stores.resident import Snapshot
from stores.words import is_code, is_stop, stem

NEAR = 0.3  # the cosine from which a hit is said to be matched by its vector
_MESSAGE, _ACTIVE = KINDS.index("message"), STATUSES.index("active")

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
    evidence = _evidence(plan, corpus, eligible, query, versions)
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
        lambda row: (current[row], trusted["authority"][row]),
    )
    nearer = dict(zip(versions.heads.tolist(), versions.olds.tolist(), strict=True))
    hits = tuple(_found(plan, evidence, corpus, order, place, nearer) for place in range(len(order.rows)))
    return Result(hits, candidates, 0 if query is None else int(np.isnan(evidence.dense[eligible]).sum()))


def _counted(terms: Sequence[str], corpus: Corpus, eligible: Mask, versions: Versions) -> Floats:
    """(T, n) how often each term stands in each eligible row."""
    counts = np.zeros((len(terms), len(eligible)), np.float32)
    for at, term in enumerate(terms):
        counts[at] = corpus.counts(term)
    versions.raise_heads(counts)
    counts *= eligible
    return counts


def _alike(
    plan: Plan, counts: Floats, corpus: Corpus, eligible: Mask, versions: Versions
) -> dict[str, Floats]:
    """(n,) for each term that no eligible row has how often what sounds like it stands there. `counts` (T, n)
    are changed so."""
    found = {}
    for at, term in enumerate(plan.terms):
        if term in plan.sounds and not counts[at].any():
            alike = _counted(plan.sounds[term], corpus, eligible, versions)
            if (known := alike.any(axis=1)).any():
                found[term] = counts[at] = alike[known.argmax()]
    return found


def _same(memory: Memory) -> object:
    """Equal for memories of one user that say the same, however often: a flood takes one place."""
    return fold(memory.content), memory.partition


def _sum(terms: Mapping[str, ranking.Doubles]) -> ranking.Doubles:
    first, *others = terms.values()
    total = first.copy()
    for values in others:
        total += values
    return total


def _evidence(
    plan: Plan, corpus: Corpus, eligible: Mask, query: QueryMeaning | None, versions: Versions
) -> Evidence:
    counts = _counted(plan.terms, corpus, eligible, versions)
    alike = _alike(plan, counts, corpus, eligible, versions)
    dense = corpus.cosines(None if query is None else query.encoding.vector)
    versions.raise_heads(dense)
    lengths = corpus.lengths * eligible
    in_bare = [term in plan.bare_terms for term in plan.terms]
    own = counts if all(in_bare) else counts[in_bare]
    codes = [corpus.counts(name) for name in plan.identifiers]
    messages = (corpus.all("kinds") == _MESSAGE) & eligible
    previous = np.where(eligible & (corpus.previous >= 0) & eligible[corpus.previous], corpus.previous, -1)
    chat = bool(messages.any())
    following = successors(previous) if chat else previous
    nothing = np.zeros(len(eligible), np.float32)
    marks = _Marks(corpus)
    body = lexical.bm25(own, lengths, eligible)
    return Evidence(
        eligible=eligible,
        messages=messages,
        dense=dense,
        words=lexical.bm25(
            lexical.with_previous(counts, previous), lexical.with_previous(lengths, previous), eligible
        )
        if chat
        else (body if own is counts else lexical.bm25(counts, lengths, eligible)),
        body=body,
        session=_sessions(counts, lengths, corpus) if chat else nothing,
        nearby=lexical.coverage(lexical.nearby(own, previous, following), eligible, 0) if chat else nothing,
        coverage=lexical.coverage(counts, eligible),
        identifiers=ranking.identifier_bonus(codes, [is_code(name) for name in plan.identifiers], eligible),
        actor=_said_by(plan.actors, corpus),
        date=plan.asked.date_match(corpus.all("times")) if plan.asked.dated else nothing,
        marks=marks,
        wanted=wanted_marks(plan.asked, plan.weights.message),
        length=lengths,
        previous=previous,
        sessions=corpus.sessions,
        answers=(previous >= 0)
        & (marks["question"][previous] > 0)
        & (corpus.speakers != corpus.speakers[previous])
        if chat
        else np.zeros(len(eligible), np.bool_),
        unread=1.0 if query is None else unread(plan.bare, query.starts, latin=query.multilingual),
        multilingual=query is not None and query.multilingual,
        stranger=not plan.actors and names_stranger(corpus, eligible, plan.names, alike),
        alike=alike,
    )


class _Marks(dict[str, Floats]):
    """(n,) 0/1 for each mark, looked up when it is first asked for: mostly none is, outside chats."""

    def __init__(self, corpus: Corpus):
        super().__init__()
        self._corpus = corpus

    def __missing__(self, mark: str) -> Floats:
        self[mark] = self._corpus.counts("~" + mark)
        return self[mark]


def _sessions(counts: Floats, lengths: Floats, corpus: Corpus) -> Floats:
    """(n,) BM25 of each row's whole session."""
    number = corpus.session_count
    if not number:
        return np.zeros(len(lengths), np.float32)
    long = lexical.by_session(lengths[None], corpus.sessions, number)[0]
    scores = lexical.bm25(lexical.by_session(counts, corpus.sessions, number), long, long > 0)
    return np.where(corpus.sessions >= 0, scores[corpus.sessions], np.float32(0))


def _said_by(named: Sequence[str], corpus: Corpus) -> Floats:
    """(n,) 1 for rows of the one speaker who is named; nothing when several are."""
    if len(named) != 1:
        return np.zeros(len(corpus.rows), np.float32)
    same = [place for place, actor in enumerate(corpus.actors) if actor.casefold() == named[0].casefold()]
    return np.isin(corpus.speakers, same).astype(np.float32)


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
