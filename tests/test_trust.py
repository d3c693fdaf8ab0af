"""Authority, confidence, freshness and validity in a score, and superseded rows beneath their heads."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.authority import AUTHORITIES
from models.memory import Memory
from service.trust import (
    HALF_LIFE_MS,
    OVER_LOSER,
    RECIPES,
    Recipe,
    heads_first,
    later_first,
    overruled,
    terms,
    winners_first,
)
from stores.columns import NO_TIME
from tests.recalling import NOW, id_of, memory

RECIPE = Recipe("test", authority=0.5, confidence=2.0, freshness=1.0, invalid=3.0)


def columns(**given: list[Any]) -> dict[str, np.ndarray]:
    rows = len(next(iter(given.values())))
    kept: dict[str, list[Any]] = {
        "times": [NO_TIME] * rows,
        "created": [NOW] * rows,
        "valid_from": [NO_TIME] * rows,
        "valid_until": [NO_TIME] * rows,
        "authorities": [AUTHORITIES.index("informal")] * rows,
        "confidences": [0.0] * rows,
        "sensitive": [0] * rows,
    } | given
    types = {"authorities": np.uint8, "confidences": np.float32}
    return {name: np.array(values, types.get(name, np.int64)) for name, values in kept.items()}


def term(name: str, **given: list[Any]) -> list[float]:
    found: list[float] = terms(columns(**given).__getitem__, RECIPE, NOW)[name].tolist()
    return found


def test_each_rank_of_authority_adds_as_much() -> None:
    assert term("authority", authorities=[AUTHORITIES.index(one) for one in AUTHORITIES]) == [1.5, 1, 0.5, 0]


def test_a_text_that_gives_orders_gains_nothing_by_its_authority() -> None:
    assert term("authority", authorities=[0, 0], sensitive=[1, 0]) == [0, 1.5]


def test_confidence_adds_its_share() -> None:
    assert term("confidence", confidences=[0, 0.5, 1]) == [0, 1, 2]


def test_freshness_halves_each_half_life_from_the_event_or_else_from_the_writing() -> None:
    month = HALF_LIFE_MS
    times = [NOW, NOW - month, NOW - 2 * month, NO_TIME, NOW + month]
    assert term("freshness", times=times, created=[NOW - month] * 5) == [1, 0.5, 0.25, 0.5, 1]


def test_outside_its_validity_a_memory_loses_and_its_last_moment_is_before_the_end() -> None:
    assert term(
        "validity",
        valid_from=[NO_TIME, NOW, NOW + 1, NO_TIME, NO_TIME, 0],
        valid_until=[NO_TIME, NO_TIME, NO_TIME, NOW, NOW + 1, 10],
    ) == [0, 0, -3, -3, 0, -3]


def test_a_time_before_1970_and_none_are_different() -> None:
    assert term("validity", valid_until=[-1, 0, NO_TIME]) == [-3, -3, 0]


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=lambda recipe: recipe.name)
def test_nothing_but_leaving_its_validity_ever_costs(recipe: Recipe) -> None:
    given = columns(authorities=[0, 1, 2, 3], confidences=[1, 0.5, 0.1, 0], created=[0, NOW, NOW, NOW])
    found = terms(given.__getitem__, recipe, NOW)
    for name in ("authority", "confidence", "freshness"):
        assert (found[name] >= 0).all()
    assert (np.diff(found["authority"]) <= 0).all()
    assert (np.diff(found["confidence"]) < 0).all()


def test_the_three_recipes_differ_in_what_they_are_named_for() -> None:
    balanced, trusted, recent = (RECIPES[name] for name in ("balanced", "trusted", "recent"))
    assert trusted.authority > balanced.authority > recent.authority
    assert trusted.confidence > balanced.confidence > recent.confidence
    assert recent.freshness > balanced.freshness > trusted.freshness


# Heads


def version(name: str, seq: int, *newer: str) -> Memory:
    return memory(
        name,
        seq,
        memory_id=id_of(name),
        superseded_by=tuple(id_of(other) for other in newer),
        status="superseded" if newer else "active",
    )


def lowered(rows: list[Memory], fused: list[float], hidden: set[str] | None = None) -> list[float]:
    eligible = np.array([row.content not in (hidden or set()) for row in rows])
    current = np.array([row.state.status == "active" for row in rows])
    return heads_first(np.array(fused), rows, current, eligible).tolist()


def test_a_replaced_row_stands_just_beneath_its_head() -> None:
    old, new = lowered([version("old", 1, "new"), version("new", 2)], [5, 1])
    assert (new, old) == (1, pytest.approx(1, abs=1e-5)) and old < new


def test_a_replaced_row_that_is_beneath_its_head_anyway_stays_where_it_is() -> None:
    assert lowered([version("old", 1, "new"), version("new", 2)], [0, 1]) == [0, 1]


def test_without_superseded_rows_nothing_changes() -> None:
    assert lowered([version("one", 1), version("two", 2)], [1, 2]) == [1, 2]


def test_a_chain_is_in_order_though_a_later_written_row_was_filed_as_older() -> None:
    rows = [version("middle", 1, "head"), version("head", 2), version("oldest", 3, "middle")]
    middle, head, oldest = lowered(rows, [9, 1, 8])
    assert head > middle > oldest


def test_a_head_counts_through_versions_that_a_filter_left_out() -> None:
    rows = [version("old", 1, "middle"), version("middle", 2, "head"), version("head", 3)]
    old, middle, head = lowered(rows, [9, 7, 1], hidden={"middle"})
    assert old < head == 1
    assert middle == 7


def test_a_head_that_is_not_eligible_or_not_there_lowers_nothing() -> None:
    rows = [version("old", 1, "new", "gone"), version("new", 2)]
    assert lowered(rows, [5, 1], hidden={"new"}) == [5, 1]


@given(st.data())
def test_no_replaced_row_is_above_what_replaced_it(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 9))
    names = [str(number) for number in range(size)]
    rows = [
        version(name, seq, *data.draw(st.lists(st.sampled_from(names[at + 1 :]), max_size=2, unique=True)))
        if at + 1 < size
        else version(name, seq)
        for at, (name, seq) in enumerate(zip(names, data.draw(st.permutations(range(size))), strict=True))
    ]
    hidden = data.draw(st.sets(st.sampled_from(names)))
    fused = data.draw(st.lists(st.floats(-5, 5), min_size=size, max_size=size))
    after = dict(zip((row.memory_id for row in rows), lowered(rows, fused, hidden), strict=True))
    for row, before in zip(rows, fused, strict=True):
        assert after[row.memory_id] <= before
        if row.content in hidden:
            assert after[row.memory_id] == before
            continue
        for newer in row.state.superseded_by:
            if next(r for r in rows if r.memory_id == newer).content not in hidden:
                assert after[row.memory_id] < after[newer]


# Conflicts


def settled(rows: list[Memory], fused: list[float], *pairs: tuple[int, int]) -> list[float]:
    conflicts: dict[str, set[str]] = {}
    for one, other in pairs:
        conflicts.setdefault(rows[one].memory_id, set()).add(rows[other].memory_id)
        conflicts.setdefault(rows[other].memory_id, set()).add(rows[one].memory_id)
    everyone = np.ones(len(rows), bool)
    return (np.array(fused) + winners_first(np.array(fused), rows, conflicts, everyone)).tolist()


def test_in_a_conflict_the_higher_authority_stands_above_a_nearer_one_which_stays_where_it_is() -> None:
    rows = [memory("hearsay", 1), memory("rule", 2, source_authority="policy"), memory("other", 3)]
    hearsay, rule, other = settled(rows, [9, -4, 8], (0, 1))
    assert rule > hearsay == 9 and other == 8


def test_a_winner_that_is_above_anyway_stays_where_it_is() -> None:
    rows = [memory("hearsay", 1), memory("rule", 2, source_authority="policy")]
    assert settled(rows, [1, 5], (0, 1)) == [1, 5]


@pytest.mark.parametrize(
    ("loser", "winner"),
    [
        ({"memory_at": 5}, {"memory_at": 6}),
        ({}, {"memory_at": 6}),
        ({"memory_at": 5, "gmt_created": 7}, {"memory_at": 5, "gmt_created": 8}),
        ({"confidence": 0.4}, {"confidence": 0.5}),
        ({"memory_at": 9, "confidence": 1.0}, {"memory_at": 1, "source_authority": "team"}),
    ],
)
def test_at_equal_authority_the_later_wins_then_the_more_confident(
    loser: dict[str, Any], winner: dict[str, Any]
) -> None:
    rows = [memory("one", 1, **winner), memory("other", 2, **loser)]
    won, lost = settled(rows, [0, 3], (0, 1))
    assert won > lost == 3


def test_a_set_reaches_as_far_as_its_conflicts_do() -> None:
    rows = [memory(name, at, source_authority=name) for at, name in enumerate(reversed(AUTHORITIES))]
    assert np.diff(settled(rows, [9, 5, 7, 1], (0, 1), (1, 2), (3, 2))).min() > 0


def test_a_side_that_is_not_eligible_decides_nothing() -> None:
    rows = [memory("hearsay", 1), memory("rule", 2, source_authority="policy")]
    conflicts = {rows[0].memory_id: {rows[1].memory_id}, rows[1].memory_id: {rows[0].memory_id, "gone"}}
    added = winners_first(np.array([3.0, 1.0]), rows, conflicts, np.array([True, False]))
    assert not added.any()


@given(st.data())
def test_raising_authority_or_confidence_lowers_no_row_of_a_conflict(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 6))
    numbers = st.integers(0, size - 1)
    pairs = data.draw(st.lists(st.tuples(numbers, numbers).filter(lambda pair: pair[0] != pair[1])))
    rows = [
        memory(str(at), at, source_authority=data.draw(st.sampled_from(AUTHORITIES))) for at in range(size)
    ]
    fused = data.draw(st.lists(st.integers(-5, 5).map(float), min_size=size, max_size=size))
    at = data.draw(numbers)
    higher = AUTHORITIES[: AUTHORITIES.index(rows[at].source_authority) + 1]
    raised = [*rows]
    raised[at] = replace(rows[at], source_authority=data.draw(st.sampled_from(higher)))
    before, after = settled(rows, fused, *pairs), settled(raised, fused, *pairs)
    for other in range(size):
        assert before[at] <= before[other] or after[at] > after[other]
    order = data.draw(st.permutations(range(size)))
    moved = settled(
        [rows[old] for old in order],
        [fused[old] for old in order],
        *[(order.index(one), order.index(other)) for one, other in pairs],
    )
    assert moved == [before[old] for old in order]


# What others among the best say


def likeness(rows: int, **of: float) -> np.ndarray:
    """Cosines between rows, 0 where none is given: `ab` is that of the first two."""
    found = np.eye(rows)
    for pair, cosine in of.items():
        one, other = (ord(letter) - ord("a") for letter in pair)
        found[one, other] = found[other, one] = cosine
    return found


def test_a_rumour_stands_beneath_all_that_rule_its_subject_and_fit_nearly_as_well() -> None:
    fused = np.array([5.0, 4.5, 3.5, 2.9, 4.9])
    authority = np.array([0.0, 0.7, 0.35, 1.05, 1.05])
    alike = likeness(5, ab=0.5, ac=0.5, ad=0.9, ae=0.4)
    added = overruled(fused, authority, alike)
    assert (fused + added)[0] == pytest.approx(3.5 - OVER_LOSER)
    assert added[1:].tolist() == [0, 0, 0, 0], "the fourth fits worse, the fifth has another subject"


def test_among_rumours_and_above_what_is_better_already_nothing_moves() -> None:
    assert not overruled(np.array([5.0, 4.0]), np.zeros(2), likeness(2, ab=0.9)).any()
    assert not overruled(np.array([4.0, 5.0]), np.array([0, 1.0]), likeness(2, ab=0.9)).any()


def test_of_two_that_say_nearly_the_same_the_later_stands_first_if_it_fits_as_well() -> None:
    def first(fused: list[float], authority: list[float], times: list[int], cosine: float) -> int:
        given = np.array(fused), np.array(authority), np.array(times), likeness(2, ab=cosine)
        return int(np.argmax(given[0] + later_first(*given)))

    assert first([5.0, 4.8], [0.35, 0.35], [1, 2], 0.95) == 1
    assert first([5.0, 4.8], [0.35, 0.35], [2, 1], 0.95) == 0
    assert first([5.0, 4.8], [0.35, 0.35], [1, 1], 0.95) == 0
    assert first([5.0, 4.8], [0.35, 0.35], [1, 2], 0.85) == 0, "another sentence"
    assert first([5.0, 4.6], [0.35, 0.35], [1, 2], 0.95) == 0, "the first fits better"
    assert first([5.0, 4.8], [0.70, 0.35], [1, 2], 0.95) == 0, "the first has more authority"


def test_the_last_of_a_row_of_updates_stands_first() -> None:
    fused, times = np.array([5.2, 5.1, 5.0, 4.0]), np.array([1, 2, 3, 4])
    added = later_first(fused, np.zeros(4), times, likeness(4, ab=0.95, bc=0.95, ac=0.95))
    assert np.argsort(-(fused + added)).tolist() == [2, 1, 0, 3] and added[3] == 0
