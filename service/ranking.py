"""The arithmetic of a search, without stores: evidence about rows in, an order and absolute scores out.

All arrays have one element a row. Statistics are taken over the eligible rows only, so that neither another
tenant's rows nor filtered ones ever move a score.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.weights import Weights

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]

LATE_SHARE = 0.6  # of late interaction in what a row says, beside its words
# What late interaction hands to the words, for the part of a query that the model does not read; the cosine
# hands over all. One that reads all languages gets all of it. For what is written otherwise, what both do.
UNREAD_LATE, RESPELLED = 0.65, 0.5
BEST_OF_SESSION = 3
# Deviations among hundreds of rows, which count like some more rows where there are few: of two memories that
# are nearly equal neither is far ahead, though each is one deviation from their mean.
USUAL = {"dense": 0.1, "words": 1.1, "late": 0.075, "length": 0.6}
USUAL_ROWS, ENOUGH_ROWS = 5, 50


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What was measured of each row, (n,) each.

    `messages` are the eligible rows of chats; `dense` is the best chunk's cosine, NaN without a vector;
    `words`, `body` and `session` are BM25 scores of the row with the turn before it, of the row alone and of
    its whole session; `nearby` and `coverage` the IDF-weighted share of the query's words within two turns
    and in the row itself, 0..1; `identifiers` the bonus of the exact identifiers in it; `actor` 1 for
    rows of the one speaker who is named; `date` how well the row's time fits the date asked for; `marks`
    0/1 for each mark of a text and `wanted` what each mark adds to a message; `length` in words;
    `previous` and `sessions` row and session numbers, -1 for none; `answers` rows whose turn before is
    another speaker's question. `unread` is the share of the query, 0..1, that the model of word pieces does
    not read, `multilingual` whether that of the vectors does, `stranger` whether it names somebody whom no
    eligible row names; `alike` has for words that none has what sounds so, `respelled` is their share, 0..1.
    """

    eligible: Mask
    messages: Mask
    dense: Floats
    words: Floats
    body: Floats
    session: Floats
    nearby: Floats
    coverage: Floats
    identifiers: Floats
    actor: Floats
    date: Floats
    marks: Mapping[str, Floats]
    wanted: Mapping[str, float]
    length: Floats
    previous: Rows
    sessions: Rows
    answers: Mask
    unread: float = 0.0
    multilingual: bool = False
    stranger: bool = False
    alike: Mapping[str, Floats] = field(default_factory=dict)
    respelled: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """Rows that are relevant, best first, with their scores in [0,1], never rising down the list. `terms` are
    the parts of `fused`, by name, and `relevance` how relevant each row is in itself, all (n,); `floor`
    is what was asked of the best one."""

    rows: NDArray[np.intp]
    scores: Floats
    fused: Doubles
    terms: Mapping[str, Doubles]
    relevance: Floats
    floor: float


def first_stage(e: Evidence, weights: Weights) -> dict[str, Doubles]:
    """The terms whose sum picks the rows for late interaction."""
    z_dense = zscores(e.dense, e.eligible, USUAL["dense"])
    z_body = zscores(e.body, e.eligible, USUAL["words"])
    z_words = z_body if e.words is e.body else zscores(e.words, e.eligible, USUAL["words"])
    m, p, chat = weights.first, weights.others(e.multilingual), e.messages
    dense: Doubles = np.where(chat, m["dense"], p["dense"])
    blind = 0.0 if e.multilingual else e.unread
    terms = {
        "dense": (1 - blind) * dense * z_dense,
        "words": np.where(chat, m["words"] * z_words, (p["words"] + blind * p["dense"]) * z_body),
        "actor": np.where(chat, m["actor"], p["actor"]) * e.actor,
        "date": np.where(chat, m["date"], p["date"]) * e.date,
        "identifier": e.identifiers.astype(np.float64),
    }
    if chat.any():
        asked_time = 1.0 if e.wanted.get("time") else 0.0
        terms["session"] = chat * m["session"] * zscores(e.session, e.eligible)
        terms["cues"] = chat * (
            m["time"] * asked_time * e.marks["time"] + m["question"] * e.marks["question"]
        )
        terms["length"] = chat * m["length"] * zscores(np.log1p(e.length), e.eligible, USUAL["length"])
    return terms


def last_stage(e: Evidence, weights: Weights, late: Floats, sample: Mask) -> dict[str, Doubles]:
    """The terms of the rows that late interaction has looked at. `late` (n,) is NaN for the others; `sample`
    says from which rows its mean and deviation are taken."""
    z_body = zscores(e.body, e.eligible, USUAL["words"])
    # A row that the model has not seen yet is judged by its words, or the others' noise would stand above it.
    unseen = np.isnan(e.dense)
    z_late = np.where(unseen, z_body, zscores(late, sample & e.eligible, USUAL["late"]))
    z_dense = np.where(unseen, z_body, zscores(e.dense, e.eligible, USUAL["dense"]))
    m, p, chat = weights.message, weights.others(e.multilingual), e.messages
    unread, blind = (e.unread, 0.0) if e.multilingual else (UNREAD_LATE * e.unread, e.unread)
    share = LATE_SHARE * (1 - unread)
    said = share * z_late + (1 - share) * z_body
    late_weight: Doubles = np.where(chat, m["late"], p["late"])
    dense_weight: Doubles = np.where(chat, 0.0, p["dense"])
    words_weight: Doubles = np.where(chat, 0.0, p["words"]) + blind * dense_weight
    if e.multilingual:
        dense_weight = dense_weight + unread * late_weight
    else:
        words_weight = words_weight + unread * late_weight
    handed = np.where(chat, 0.0, RESPELLED * e.respelled)
    words_weight = words_weight + handed * (late_weight + dense_weight)
    late_weight, dense_weight = (1 - handed) * late_weight, (1 - handed) * dense_weight
    terms: dict[str, NDArray[Any]] = {
        "late": (1 - unread) * late_weight * z_late,
        "dense": (1 - blind) * dense_weight * z_dense,
        "words": words_weight * z_body,
        "actor": np.where(chat, m["actor"], p["actor"]) * e.actor,
        "date": np.where(chat, m["date"], p["date"]) * e.date,
        "identifier": e.identifiers.astype(np.float64),
    }
    if chat.any():
        best = zscores(best_of_session(said, e.sessions, e.eligible), e.eligible)
        before = np.where(e.answers, said[e.previous], 0.0)
        wanted = sum((weight * e.marks[mark] for mark, weight in e.wanted.items()), np.zeros(len(said)))
        manner = m["question"] * e.marks["question"] + m["first"] * e.marks["first"]
        terms["session"] = chat * (m["session"] * zscores(e.session, e.eligible) + m["session_best"] * best)
        terms["nearby"] = chat * m["coverage"] * zscores(e.nearby, e.eligible)
        terms["answer"] = chat * m["answer"] * before
        terms["cues"] = chat * (wanted + manner)
    return terms


def best_of_session(values: Doubles, sessions: Rows, eligible: Mask) -> Floats:
    """(n,) for each row the mean of the best three values of its session; 0 without one."""
    result = np.zeros(len(values), np.float32)
    rows = np.flatnonzero(eligible & (sessions >= 0))
    if not len(rows):
        return result
    order = rows[np.lexsort((-values[rows], sessions[rows]))]
    of = sessions[order]
    starts = np.flatnonzero(np.insert(np.diff(of) != 0, 0, True))
    place = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    top = place < BEST_OF_SESSION
    number = int(of.max()) + 1
    total = np.bincount(of[top], values[order[top]], number)
    mean = total / np.maximum(np.bincount(of[top], minlength=number), 1)
    result[rows] = mean[sessions[rows]]
    return result


def pool(first: Doubles, eligible: Mask, size: int) -> NDArray[np.intp]:
    """The best `size` eligible rows; all that tie with the last."""
    rows = np.flatnonzero(eligible)
    if len(rows) <= size:
        return rows
    best: NDArray[np.intp] = rows[first[rows] >= np.partition(first[rows], -size)[-size]]
    return best


def below(last: Doubles, first: Doubles, looked_at: Mask, eligible: Mask) -> Doubles:
    """`last` for rows that were looked at, and the other eligible ones by `first` beneath all of them."""
    others = eligible & ~looked_at
    if not others.any():
        return last
    top = float(first[others].max())
    least = float(last[looked_at].min()) if looked_at.any() else 0.0
    return np.where(looked_at, last, least - 1.0 - (top - first))


def order(
    e: Evidence,
    fused: Doubles,
    terms: Mapping[str, Doubles],
    relevance: Floats,
    floor: float,
    limit: int,
    tie: Callable[[int], int],
    same: Callable[[int], object],
    standing: Callable[[int], Any] = lambda _: 0,
) -> Order:
    """Pick the best `limit` by `fused`. `tie` decides between equal rows (higher first), so that the order in
    which a store holds them never shows; rows with the `same` key take one place together, so that repeats
    push nothing out, and it is the one of the highest `standing` that is shown."""
    fused = np.round(fused, 9)  # sums over other orders of the same rows differ in the last places
    answers = relevance.max(where=e.eligible, initial=0) >= floor
    rows = np.flatnonzero(e.eligible & _fits(e) & answers)
    best = _distinct(fused, rows, limit, tie, same, standing)
    # z-scores order; absolute evidence says how good. A row is called as good as the best one below it, and
    # those below the last one shown count too.
    rest = _best_left_out(relevance, rows, best, same)
    scores = np.maximum.accumulate(np.append(relevance[best], rest)[::-1])[::-1][:-1]
    return Order(best, scores.astype(np.float32), fused, terms, relevance, floor)


def _fits(e: Evidence) -> Mask:
    """Whether anything at all ties a row to the query: one without a vector may share nothing with it."""
    shares = [e.words, e.body, e.session, e.nearby, e.identifiers, e.actor, e.date]
    fits: Mask = ~np.isnan(e.dense) | np.any([share > 0 for share in shares], axis=0)
    return fits


def _best_left_out(
    relevance: Floats, rows: Rows, best: NDArray[np.intp], same: Callable[[int], object]
) -> float:
    """The highest relevance of the `rows` that are neither shown nor equal to one shown; 0 when none has more
    than the last one shown."""
    if not len(best):
        return 0.0
    shown = {same(row) for row in best.tolist()}
    better = rows[relevance[rows] > relevance[best[-1]]]
    ranked = better[np.argsort(-relevance[better])].tolist()
    return next((float(relevance[row]) for row in ranked if same(row) not in shown), 0.0)


def _distinct(
    fused: Doubles,
    rows: Rows,
    limit: int,
    tie: Callable[[int], int],
    same: Callable[[int], object],
    standing: Callable[[int], Any],
) -> NDArray[np.intp]:
    """The best `limit` rows that differ."""
    take = limit + 8
    while True:
        ranked = rows[_best(fused[rows], take, lambda place: tie(int(rows[place])))]
        first: dict[object, int] = {}
        for row in ranked.tolist():
            place = same(row)
            if place not in first or standing(row) > standing(first[place]):
                first[place] = row  # a key that is there keeps its place
        if len(first) >= limit or take >= len(rows):
            return np.array(list(first.values())[:limit], np.intp)
        take *= 4


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


def zscores(values: NDArray[np.floating], eligible: Mask, usual: float | None = None) -> Doubles:
    """(value - mean) / deviation over the eligible rows that have a value; 0 for a constant and for NaN. The
    deviation of few rows is drawn towards the `usual` one."""
    missing = np.isnan(values)
    among = eligible & ~missing
    every = among.all()
    known = (values if every else values[among]).astype(np.float64)
    if not known.size or np.ptp(known) < 1e-6:  # no spread but that of rounding
        return np.zeros(len(values))
    mean = known.mean()
    apart = known - mean
    variance = np.square(apart).mean()
    if usual is not None:
        more = USUAL_ROWS * max(0.0, 1 - known.size / ENOUGH_ROWS)
        variance = (known.size * variance + more * usual**2) / (known.size + more)
    scores: Doubles = (apart if every else values - mean) / np.sqrt(variance)
    scores[missing] = 0
    return scores
