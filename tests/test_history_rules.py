"""The rules of the history view that are arithmetic: what one source is, what a moment is, when a review is
due."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.history_clock import DAY_MS, challenged, confirmed, started
from models.history_times import epoch_ms, in_utc, shown
from models.provenance import Provenance
from models.sources import source_key, weigh
from models.standing import Label, Standing
from tests.recalling import memory

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nb-1", "nb-2"),
        ("https://a.example/x", "https://a.example/y"),
        ("https://a.example/?id=1", "https://a.example/?id=2"),
        ("https://a.example:8443/x", "https://a.example/x"),
        ("ftp://a.example/x", "https://a.example/x"),
        ("Ana", "Anna"),
        ("港口电台", "港口晚报"),
        ("wwwatch", "atch"),
        ("a/b", "ab"),
        ("10-1", "101"),
        ("10.1", "101"),
        ("memo-1-2", "memo-12"),
        ("sensor#1", "sensor#2"),
        ("C++", "C"),
        ("Анна", "Инна"),
        ("がく", "かく"),
        ("강", "간"),
    ],
)
def test_two_sources_stay_two(one: str, other: str) -> None:
    assert source_key(one) != source_key(other)


@given(st.text(max_size=20))
@example("0#¨")
@example("A_´A")
def test_a_key_is_its_own_key_and_no_hidden_character_changes_it(label: str) -> None:
    key = source_key(label)
    assert source_key(f" {label}\u200b\u2060 / ") == key
    assert source_key(key) == key or "://" in key or "%" in label or key.startswith("www.")


@given(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)),
    st.integers(-23 * 60, 23 * 60),
)
def test_a_moment_keeps_its_microseconds_and_is_floored_to_milliseconds(at: datetime, minutes: int) -> None:
    local = at.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    text = local.isoformat()
    assert epoch_ms(text) == (local - EPOCH) // timedelta(milliseconds=1)
    assert datetime.fromisoformat(in_utc(text)) == local
    assert in_utc(text).endswith("Z") and shown(epoch_ms(text)) is not None


def test_the_interval_doubles_up_to_half_a_year_and_a_challenge_makes_it_a_week() -> None:
    guess = started(Provenance(tier="interpretation"), 0)
    days = [guess.review_interval_days]
    for _ in range(4):
        guess = confirmed(guess, 0)
        days.append(guess.review_interval_days)
        assert guess.review_due_at == (guess.review_interval_days or 0) * DAY_MS
    assert days == [30, 60, 120, 180, 180]
    doubted = challenged(guess, DAY_MS)
    assert (doubted.review_interval_days, doubted.review_due_at) == (7, 8 * DAY_MS)
    assert confirmed(doubted, 0).review_interval_days == 14
    assert started(Provenance(), 0) == Provenance(), "an archive has no clock"
    assert confirmed(Provenance(review_due_at=5), 9) == Provenance(last_reviewed_at=9)


def test_of_those_who_agree_each_is_counted_or_told_why_not() -> None:
    labels = (Label("radio"), Label("RADIO"), Label("mail"), Label("blog", "wire-1"))
    said = memory("It rains.", provenance=Provenance(source="mail"), standing=Standing(labels=labels))
    agreeing = [
        memory("It does.", provenance=Provenance(source="paper")),
        memory("Indeed.", origin_id="WIRE-1"),
        memory("So it is."),
    ]
    assert [one.why for one in weigh(said, agreeing)] == [
        *("independent", "independent", "unknown_source"),
        *("independent", "same_source", "own_source", "same_source"),
    ]
    nameless = memory("It rains.", standing=Standing(labels=labels[:1]))
    assert [one.why for one in weigh(nameless, [])] == ["may_be_own"]
    assert [one.why for one in weigh(nameless, agreeing[:1])] == ["independent", "may_be_own"]
