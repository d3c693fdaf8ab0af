"""What is measured of every eligible row, before late interaction looks at the best."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from models.layers import KINDS
from service import lexical
from service.corpus import Corpus, Floats, Mask, successors
from service.plan import Plan, QueryMeaning
from service.question import unread, wanted_marks
from service.ranking import Evidence
from service.strangers import names_stranger
from service.versions import Versions
from stores.words import is_code

COUNTED_TERMS = 256  # of a query that is a page long: each costs a number for every row
# An identifier that only one memory has wins: no z-score of N rows is above the root of N.
SOLE_IDENTIFIER = 10_000.0
SHARED_CODE = 0.5  # settles what is nearly equal; more gains nothing, and less is no loss either
_MESSAGE = KINDS.index("message")


def measure(
    plan: Plan, corpus: Corpus, eligible: Mask, query: QueryMeaning | None, versions: Versions
) -> Evidence:
    """All that the first look at the rows gives; late interaction comes later."""
    terms = _rarest(plan.terms, corpus, eligible)

    def counted(some: Sequence[str]) -> Floats:
        return _counted(some, corpus, eligible, versions)

    counts = counted(terms)
    alike = _alike(terms, plan.sounds, counts, counted)
    dense = corpus.cosines(None if query is None else query.encoding.vector)
    versions.raise_heads(dense)
    lengths = corpus.lengths * eligible
    in_bare = [term in plan.bare_terms for term in terms]
    own = counts if all(in_bare) else counts[in_bare]
    named = (*plan.identifiers, *plan.apart)
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
        identifiers=identifier_bonus(
            [corpus.counts(name) for name in named], [is_code(name) for name in named], eligible
        ),
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
        respelled=len(alike) / max(1, len(terms)),
    )


def identifier_bonus(counts: Sequence[Floats], codes: Sequence[bool], eligible: Mask) -> Floats:
    """The bonus for exact identifiers, in standard deviations. `counts` has one array an identifier and
    `codes` whether it is one wherever it stands: `well-known` in two memories says little."""
    bonus = np.zeros(len(eligible), np.float32)
    for own, code in zip(counts, codes, strict=True):
        present = (own > 0) & eligible
        bonus += present * (SOLE_IDENTIFIER if present.sum() == 1 else SHARED_CODE * code)
    return bonus


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


def _rarest(terms: Sequence[str], corpus: Corpus, eligible: Mask) -> Sequence[str]:
    """The terms of a query; of one that is a page long those COUNTED_TERMS that tell most."""
    if len(terms) <= COUNTED_TERMS:
        return terms
    documents = {term: corpus.documents(term, eligible) for term in terms}
    kept = set(sorted(terms, key=lambda term: documents[term] or len(eligible) + 1)[:COUNTED_TERMS])
    return [term for term in terms if term in kept]


def _counted(terms: Sequence[str], corpus: Corpus, eligible: Mask, versions: Versions) -> Floats:
    """(T, n) how often each term stands in each eligible row."""
    counts = np.zeros((len(terms), len(eligible)), np.float32)
    for at, term in enumerate(terms):
        counts[at] = corpus.counts(term)
    versions.raise_heads(counts)
    counts *= eligible
    return counts


def _alike(
    terms: Sequence[str],
    sounds: Mapping[str, Sequence[str]],
    counts: Floats,
    counted: Callable[[Sequence[str]], Floats],
) -> dict[str, Floats]:
    """(n,) for each term that no eligible row has how often what sounds like it stands there. `counts` (T, n)
    are changed so."""
    found = {}
    for at, term in enumerate(terms):
        if term in sounds and not counts[at].any():
            alike = counted(sounds[term])
            if (known := alike.any(axis=1)).any():
                found[term] = counts[at] = alike[known.argmax()]
    return found
