"""What a question asks for: sorts of answer, dates, speakers; and the marks of a memory that answer them."""

import os
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pytest

from service.question import Asked, named_actors, wanted_marks, without_actors
from service.weights import Weights
from stores.marks import MARKS, marks
from stores.words import analyze

NEVER = np.iinfo(np.int64).min


def at(text: str) -> int:
    """Epoch ms of a date or time in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def match(question: str, *times: str | None) -> list[float]:
    moments = [NEVER if time is None else at(time) for time in times]
    found = Asked.of(question).date_match(np.array(moments, np.int64))
    return [round(float(value), 6) for value in found]


@pytest.mark.parametrize(
    ("question", "sorts"),
    [
        ("When did Melanie paint a sunrise?", "when"),
        ("What year did she move?", "when"),
        ("In which month was the race", "when"),
        ("How long have they been married?", "duration"),
        ("For how long did it run", "duration"),
        ("How many children does she have?", "many"),
        ("Where does John live?", "where"),
        ("From where did she move?", "where"),
        ("In what country was he born?", "where"),
        ("Who supports Caroline?", "who"),
        ("With whom did she travel", "who"),
        ("What is the name of the dog?", "named"),
        ("Which book did she read? What books?", "named"),
        ("what do they do whenever it rains", ""),
        ("Why did she leave?", ""),
        ("everywhere", ""),
        ("wer war das", ""),
    ],
)
def test_a_question_asks_for_sorts_of_answer(question: str, sorts: str) -> None:
    assert set(Asked.of(question).sorts) == set(sorts.split())


@pytest.mark.parametrize(
    ("question", "months", "years", "day"),
    [
        ("What did she do in May 2023?", (5,), (2023,), None),
        ("on 7 May, 2023", (5,), (2023,), 7),
        ("on the 7th of May", (5,), (), 7),
        ("on May 7", (5,), (), 7),
        ("between June and July 2022 or 2023", (6, 7), (2022, 2023), None),
        ("I may go; may I?", (), (), None),
        ("during may", (5,), (), None),
        ("the march of time in march", (3,), (), None),
        ("a marching band", (), (), None),
        ("room 1999a and port 20231", (), (), None),
    ],
)
def test_a_question_names_months_years_and_a_day(
    question: str, months: tuple[int, ...], years: tuple[int, ...], day: int | None
) -> None:
    asked = Asked.of(question)
    assert (asked.months, asked.years, asked.day) == (months, years, day)
    assert asked.dated == bool(months or years)


def test_a_month_is_matched_to_its_borders_and_told_of_in_the_next() -> None:
    assert match(
        "in May 2023",
        *("2023-04-30T23:59:59.999", "2023-05-01", "2023-05-31T23:59:59.999", "2023-06-01"),
        *("2023-06-12T23:59", "2023-06-13", "2022-05-10", None),
    ) == [0, 1, 1, 0.4, 0.4, 0, 0, 0]


def test_december_is_told_of_in_january_where_no_year_is_named() -> None:
    times = ("2023-12-31T23:59:59.999", "2024-01-01", "2024-01-13", "1969-12-31T23:00")
    assert match("last December", *times) == [1, 0.4, 0, 1]


def test_a_year_alone_is_matched_to_its_borders() -> None:
    times = ("2022-12-31T23:59:59.999", "2023-01-01", "2023-12-31T23:59:59.999", "2024-01-01", None)
    assert match("in 2023", *times) == [0, 0.5, 0.5, 0, 0]


def test_a_day_counts_more_and_so_do_the_three_after_it() -> None:
    times = ("2023-05-06T23:59", "2023-05-07", "2023-05-10T23:59", "2023-05-11", "2023-06-08")
    assert match("on 7 May 2023", *times) == [1, 2, 2, 1, 0.4]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "Asia/Kolkata", "Europe/Berlin"])
def test_dates_are_those_of_utc_under_any_time_zone_of_the_server(zone: str) -> None:
    code = (
        "import numpy as np, time; from service.question import Asked; time.tzset(); "
        f"times = np.array([{at('2022-12-31T23:59:59')}, {at('2023-01-01')}, {at('2023-01-31T23:59')}, "
        f"{at('2023-02-01')}], np.int64); "
        "print(Asked.of('in January 2023').date_match(times).round(1).tolist(), "
        "Asked.of('in 2023').date_match(times).tolist())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TZ": zone},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = [[0.0, 1.0, 1.0, 0.4], [0.0, 0.5, 0.5, 0.5]]
    assert run.stdout.split() == " ".join(map(str, expected)).replace("0.4", "0.4000000059604645").split()


ACTORS = ["Ann", "Melanie", "Ann Lee", "Dr. K. (PhD)", "李"]


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("What does Melanie love?", ["Melanie"]),
        ("MELANIE’S trip with ann lee", ["Melanie", "Ann Lee"]),
        ("Ann and Ann Lee", ["Ann Lee", "Ann"]),
        ("What did Anna say?", []),
        ("Ask Dr. K. (PhD)", ["Dr. K. (PhD)"]),
        ("", []),
    ],
)
def test_speakers_are_named_by_their_whole_name(question: str, named: list[str]) -> None:
    assert set(named_actors(question, ACTORS)) == set(named)


def test_a_question_without_the_speakers_keeps_the_rest() -> None:
    assert (
        without_actors("What does  Melanie love about Ann Lee's dog?", ACTORS) == "What does love about dog?"
    )
    assert without_actors("Melanie, Ann?", ACTORS) == "Melanie, Ann?"


def test_a_question_wants_marks_by_the_weight_of_the_pair() -> None:
    weights = Weights().message
    wanted = wanted_marks(Asked.of("Where is it?"), weights)
    assert wanted == {"place": weights["where_place"], "name": weights["where_name"]}
    both = wanted_marks(Asked.of("When and how long did it last?"), weights)
    assert both == {"time": weights["when_time"] + weights["duration_time"]}
    assert wanted_marks(Asked.of("Why?"), weights) == {}
    assert wanted_marks(Asked.of("Where is it?"), {}) == {"place": 0, "name": 0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rained yesterday", "time"),
        ("That was in 2019", "time number"),
        ("on Sunday at the beach", "time place name"),
        ("Hiking in Berlin", "place name"),
        ("He brought twelve apples", "number"),
        ("his sister called", "person"),
        ("the title was \"Nothing is Impossible\"", "name"),
        ("I love it", "first"),
        ("We're done", "first"),
        ("made in the US", ""),
        ("Really?", "question"),
        ("本当ですか？ ", "question"),
        ("what? no", ""),
        ("вчера мы были в Берлине", ""),
        ("昨天我们去了北京", ""),
        ("all quiet", ""),
    ],
)  # fmt: skip
def test_marks_of_a_text(text: str, expected: str) -> None:
    assert set(marks(text)) == set(expected.split())


def test_marks_stand_last_among_the_terms_and_are_no_words_of_a_text() -> None:
    terms = analyze("~time ~ question mark? ERR-4711 was yesterday?", "Ann")
    marked = [term for term in terms if term[0] == "~"]
    assert marked == ["~time", "~number", "~question"]
    assert list(terms[-len(marked) :]) == marked
    assert set(MARKS) >= {term[1:] for term in marked}
