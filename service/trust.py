"""What else than relevance orders the results: authority, confidence, freshness and validity. Pure."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.authority import AUTHORITIES, rank
from models.memory import Memory
from stores.columns import NO_TIME

Doubles = NDArray[np.float64]
Mask = NDArray[np.bool_]

HALF_LIFE_MS = 30 * 24 * 3600 * 1000  # of freshness
UNDER_HEAD = 1e-6  # how far beneath its head a superseded row is put at the least
OVER_LOSER = 1e-3  # how far above what it contradicts the winner of a conflict is put at the least
# Between memories, by the multilingual model: cosine, and how many deviations one fits the query better.
SAME_SUBJECT, NEARLY_AS_WELL = 0.45, 2.0
SAME_SENTENCE, AS_WELL = 0.9, 0.3


@dataclass(frozen=True, slots=True)
class Recipe:
    """In standard deviations of relevance: what each rank of authority, the whole of confidence and being new
    add, and what a memory loses outside its time of validity. With `stage`, only working memories grow old,
    and consolidated ones stand so much above the newest of them."""

    name: str
    authority: float
    confidence: float
    freshness: float
    invalid: float = 4.0
    stage: float = 0.0


HISTORY = Recipe("history", authority=0.35, confidence=1.0, freshness=0.6, stage=0.05)
RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (
            Recipe("balanced", authority=0.35, confidence=2.0, freshness=0.1),
            Recipe("trusted", authority=1.0, confidence=3.0, freshness=0.0),
            Recipe("recent", authority=0.2, confidence=0.5, freshness=1.5),
        )
    }
)


def terms(column: Callable[[str], NDArray[Any]], recipe: Recipe, now: int) -> dict[str, Doubles]:
    """(n,) each, from columns of the rows. Authority and confidence only ever add, so that raising them never
    lowers a row. `now` is epoch ms."""
    until = column("valid_until")
    age = np.maximum(0, now - moments(column)) / HALF_LIFE_MS
    outside = (column("valid_from") > now) | ((until != NO_TIME) & (until <= now))
    fresh = recipe.freshness * np.exp2(-age)
    if recipe.stage:
        fresh = np.where(column("consolidated"), recipe.freshness + recipe.stage, fresh)
    # What claims authority or gives orders gets none from its own claim.
    ranks = np.where(column("sensitive"), 0.0, len(AUTHORITIES) - 1.0 - column("authorities"))
    return {
        "authority": recipe.authority * ranks,
        "confidence": recipe.confidence * column("confidences").astype(np.float64),
        "freshness": fresh,
        "validity": np.where(outside, -recipe.invalid, 0.0),
    }


def moments(column: Callable[[str], NDArray[Any]]) -> NDArray[np.int64]:
    """(n,) epoch ms: of what each row tells, or of when it was written, where that is not known."""
    times = column("times")
    return np.where(times == NO_TIME, column("created"), times)


def overruled(fused: Doubles, authority: Doubles, likeness: Doubles) -> Doubles:
    """What is added to `fused`, (k,) of the best rows, never above 0, so that a row without `authority`
    stands beneath those that have some, speak of the same subject and fit the query nearly as well.
    `likeness` (k, k) are their cosines with each other."""
    added = np.zeros(len(fused))
    rules = (likeness >= SAME_SUBJECT) & (authority > 0)
    for at in np.flatnonzero(rules.any(axis=1) & (authority == 0)).tolist():
        ahead = fused[at] - fused
        over = rules[at] & (ahead > 0) & (ahead <= NEARLY_AS_WELL)
        if over.any():
            added[at] = fused[over].min() - OVER_LOSER - fused[at]
    return added


def later_first(fused: Doubles, authority: Doubles, times: NDArray[np.int64], likeness: Doubles) -> Doubles:
    """What is added to `fused`, (k,) of the best rows, never below 0, so that of rows which say nearly the
    same, by the same authority, and fit the query as well as each other, the later one stands first."""
    raised = fused.copy()
    alike = likeness >= SAME_SENTENCE
    several = np.flatnonzero(alike.sum(axis=1) > 1)  # not only itself
    for at in several[np.argsort(times[several], kind="stable")].tolist():
        ahead = raised - raised[at]
        earlier = alike[at] & (times < times[at]) & (authority == authority[at])
        earlier &= (ahead >= 0) & (ahead <= AS_WELL)
        if earlier.any():
            raised[at] = raised[earlier].max() + OVER_LOSER
    return raised - fused


def winners_first(
    fused: Doubles, rows: Sequence[Memory], conflicts: Mapping[str, Collection[str]], eligible: Mask
) -> Doubles:
    """What is added to `fused`, (n,), so that inside each set of eligible memories in open conflict the
    higher authority stands above the lower; at equal authority the later one, then the more confident. Losers
    stay where they are. `conflicts` has for a memory id the ids of the other sides, both ways."""
    added = np.zeros(len(fused))
    if not conflicts:
        return added
    place = {rows[at].memory_id: at for at in np.flatnonzero(eligible).tolist()}
    left = {memory_id for memory_id in conflicts if memory_id in place}
    while left:
        found, border = set(), [left.pop()]
        while border:
            memory_id = border.pop()
            found.add(memory_id)
            others = {other for other in conflicts.get(memory_id, ()) if other in place} - found
            border += others
            left -= others
        least = -np.inf
        for row in sorted((rows[place[memory_id]] for memory_id in found), key=_trust):
            at = place[row.memory_id]
            added[at] = max(0.0, least - fused[at])
            least = fused[at] + added[at] + OVER_LOSER
    return added


def _trust(memory: Memory) -> tuple[int, int, int, float, int]:
    """The greater, the more a memory counts against those that it contradicts."""
    at = NO_TIME if memory.memory_at is None else memory.memory_at
    authority = rank(memory.source_authority)
    return authority, at, memory.gmt_created, memory.state.confidence, memory.seq


def heads_first(fused: Doubles, rows: Sequence[Memory], current: Mask, eligible: Mask) -> Doubles:
    """`fused`, with every row beneath those eligible ones that replaced it, directly or by others that are
    not eligible, or are hidden and not among the rows. `current` rows have no successor."""
    if not (eligible & ~current).any():
        return fused
    place = {row.memory_id: at for at, row in enumerate(rows)}
    newer = {rows[at].memory_id: {*rows[at].state.superseded_by} for at in np.flatnonzero(~current).tolist()}
    for row in rows:  # what is hidden says nothing itself, but those that replaced it do
        for old in row.state.supersedes:
            newer.setdefault(old, set()).add(row.memory_id)
    try:
        # The heads first, so that a chain is cut link by link: a later written row may be filed as older.
        ids = tuple(TopologicalSorter(newer).static_order())
    except CycleError:  # for a moment, while two that change places are published
        return fused
    result = np.where(eligible, fused, np.inf)
    bounds: dict[str, float] = {}
    for memory_id in ids:
        bound = min((bounds[new] for new in newer.get(memory_id, ())), default=np.inf)
        at = place.get(memory_id)
        if at is not None:
            bound = min(result[at], bound - UNDER_HEAD if eligible[at] else bound)
            result[at] = bound
        bounds[memory_id] = bound
    return np.where(eligible, result, fused)
