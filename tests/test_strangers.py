"""What a query names that no memory has, and how much of a query a model reads."""

from typing import Any

import pytest

from service.question import proper_names, unread
from tests.recalling import EVERYTHING, hold, memory, search

SAID = ["We painted the fence in May.", "Melanie baked a cake with plums.", "The harbour was cold."]


def relevance(query: str, **turn: Any) -> float:
    """The highest of any row, of what Annabel said."""
    rows = [memory(text, number, actor="Annabel", **turn) for number, text in enumerate(SAID)]
    return search(query, hold(rows), weights=EVERYTHING, explain=True).hits[0].explanation["relevance"]


CHAT = {"kind": "message", "session_id": "s"}


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("What did Zelda paint?", ["Zelda"]),
        ("who met Anna Lee in Berlin", ["Anna", "Lee", "Berlin"]),
        ("What did I do in May on a Monday?", []),
        ("Zelda painted what?", []),  # the first word of a sentence is written so anyway
        ("Wann kommt der neue Roboter nach Berlin?", []),  # German writes all nouns so
        ("what is new", []),
    ],
)
def test_names_are_told_by_their_capital_letter_in_english_questions(question: str, names: list[str]) -> None:
    assert proper_names(question) == names


def test_a_chat_has_less_to_say_of_somebody_whom_nobody_there_names() -> None:
    named, not_a_name = (relevance(f"What plums did {name} buy?", **CHAT) for name in ("Zelda", "zelda"))
    assert named < not_a_name / 2


@pytest.mark.parametrize("name", ["Melanie", "Anna", "May"])
def test_who_is_named_there_or_speaks_there_is_no_stranger_nor_is_a_month(name: str) -> None:
    question = f"What plums did {name} buy?"
    assert relevance(question, **CHAT) == relevance(question.lower(), **CHAT)


def test_outside_chats_a_name_alone_decides_nothing() -> None:
    assert relevance("What plums did Zelda buy?") == relevance("what plums did zelda buy?")


@pytest.mark.parametrize(
    ("text", "piece", "share"),
    [
        ("green tea", 5, 0.0),
        ("Ärger über Öl", 1, 0.0),  # Latin letters count as read, however it cuts them
        ("e\u0301te\u0301", 1, 0.0),
        ("ERR-4711", 1, 0.0),
        ("", 1, 0.0),
        ("\u4f1a\u8bae\u5ba4", 1, 1.0),
        ("\u4f1a\u8bae\u5ba4", 2, 0.0),  # a model that knows whole words of it
        ("\u0432\u0441\u0442\u0440\u0435\u0447\u0430", 1, 1.0),
        ("\u0432\u0441\u0442\u0440\u0435\u0447\u0430", 7, 0.0),
        ("room \u4f1a\u8bae\u5ba4 x", 1, 3 / 8),
    ],
)
def test_a_script_is_unread_when_the_model_cuts_it_into_single_letters(
    text: str, piece: int, share: float
) -> None:
    assert unread(text, range(0, len(text), piece), latin=False) == pytest.approx(share)


@pytest.mark.parametrize(
    ("text", "piece", "share"),
    [
        ("green tea", 5, 0.0),
        ("el hospital", 2, 1.0),  # a language that it cuts up as if it were one of single letters
        ("\u4f1a\u8bae\u5ba4", 1, 0.75),
        ("47 11", 1, 0.0),
    ],
)
def test_beside_vectors_of_all_languages_latin_letters_may_be_unread_too(
    text: str, piece: int, share: float
) -> None:
    assert unread(text, range(0, len(text), piece), latin=True) == pytest.approx(share)
