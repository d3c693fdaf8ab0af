"""Text to terms, and the inverted index: which spellings of one thing meet, in eleven languages."""

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores.marks import marks
from stores.words import WordIndex, analyze, codes_apart, identifiers, is_code, query_terms, stem


def meet(query: str, text: str) -> bool:
    """Whether a query shares a term with a memory."""
    return bool(set(query_terms(query)) & set(analyze(text)))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("deploying", "We deploy on Tuesdays."),
        ("CAFÉ", "a café by the river"),
        ("cafe\u0301", "a café by the river"),  # decomposed
        ("ＧＰＵ", "the GPU node"),  # full width
        ("Straße", "die STRASSE"),
        ("你好", "你好世界"),
        ("好", "你好世界"),
        ("サーバ", "新しいサーバーを買った"),
        ("회의", "내일 회의가 있습니다"),
        ("книги", "Эта книга о рыбах"),
        ("الشاي", "يفضل الشَّاي الأخضر"),  # vowelled and not
        ("किताब", "मेरी किताबें"),
    ],
)
def test_forms_of_one_word_meet(query: str, text: str) -> None:
    assert meet(query, text)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("C++", "written in C"),
        ("C++", "written in C#"),
        ("C#", "written in C"),
        ("3", "version 13"),
        ("世界你", "好"),
        ("хлеб", "молоко"),
    ],
)
def test_different_words_do_not_meet(query: str, text: str) -> None:
    assert not set(query_terms(query)) & set(analyze(text))


def test_c_plus_plus_and_c_sharp_are_words_of_their_own() -> None:
    assert query_terms("C++, C# or C? (C++)") == ("c++", "c#", "c")


def test_numbers_are_words() -> None:
    assert query_terms("version 3, limit 50") == ("version", "3", "limit", "50")


def test_ideographs_become_single_characters_and_pairs() -> None:
    assert query_terms("你好世") == ("你", "好", "世", "你好", "好世")


def test_marks_do_not_cut_a_hindi_word() -> None:
    assert len(query_terms("दुनिया")) == 1


@pytest.mark.parametrize("query", ["don't", "don’t", "what is it", "who are you?", "?!…", "🚀", " - ", "''"])
def test_a_query_may_have_no_terms(query: str) -> None:
    assert query_terms(query) == identifiers(query) == ()


def test_operators_are_text() -> None:
    assert query_terms('"green tea" AND NOT milk* OR (coffee~2)') == (
        *("green", "tea", "milk", "coffe", "2"),
    )


def test_a_query_names_each_term_once() -> None:
    assert query_terms("tea, Tea and teas") == ("tea",)


def test_the_actor_is_a_word_of_what_they_said() -> None:
    assert "melani" in analyze("I love camping", "Melanie")
    assert "melani" not in analyze("I love camping")


@pytest.mark.parametrize(
    "name",
    [
        "ERR-4711",
        "a-b",
        "C:\\repo\\x.py",
        "550e8400-e29b-41d4-a716-446655440000",
        "9f3ac1e",
        "split_tender_v2",
        "fees/tiers.ts",
        "ana@example.com",
        "10.0.0.1",
        "№714-С",
    ],
)
@pytest.mark.parametrize(
    "frame", ["{}", "What is {}?", "({}),", "«{}».", "code={}, retried", '{{"id":"{}"}}']
)
def test_an_identifier_is_kept_whole_wherever_it_stands(name: str, frame: str) -> None:
    wanted = identifiers(name)[0]
    assert wanted in identifiers(frame.format(name))
    assert "=" + wanted in analyze(frame.format(name))


def test_an_identifier_is_found_in_a_script_without_spaces() -> None:
    assert {"gw-2103", "rq-503"} <= set(identifiers("告警GW-2103已恢复，见RQ-503。"))


def test_a_code_is_also_kept_as_people_type_it() -> None:
    assert identifiers("ERR-4711") == ("err-4711", "err4711")
    assert identifiers("err4711") == ("err4711",)
    assert identifiers("well-known") == ("well-known",)


def test_a_code_may_be_asked_for_in_two_words() -> None:
    assert codes_apart("Why ERR 4711, and what of px 0831?") == ("err4711", "px0831")
    assert codes_apart("ERR-4711 and terror 4711th, deployments 4711, x 1") == ()


def test_case_and_width_of_an_identifier_do_not_count() -> None:
    assert identifiers("err-4711") == identifiers("ERR-4711") == identifiers("ＥＲＲ－4711")


@pytest.mark.parametrize(
    "text", ["e.g. this", "in the U.S. only", "i.e., tea", "well... no", "4711", "x" * 300]
)
def test_abbreviations_plain_numbers_and_endless_words_are_no_identifiers(text: str) -> None:
    assert identifiers(text) == ()


def test_only_what_has_a_digit_is_a_code() -> None:
    assert [is_code(name) for name in ("err-4711", "=v2", "well-known", "and/or")] == [
        True,
        True,
        False,
        False,
    ]


@given(st.text(max_size=300))
def test_every_text_has_terms_that_it_meets_itself(text: str) -> None:
    terms = analyze(text)
    named, marked = {"=" + name for name in identifiers(text)}, {"~" + mark for mark in marks(text)}
    sounds = {term for term in terms if term[0] == "^"}
    assert set(query_terms(text)) | named | marked | sounds == set(terms)
    assert all(terms)


def test_eight_thousand_characters_are_only_more_terms() -> None:
    assert len(query_terms("word " * 1600)) == 1
    assert len(query_terms("".join(chr(0x4E00 + i) for i in range(8000)))) == 8000 + 7999
    assert identifiers("a-" * 4000) == ()


def test_the_index_counts_terms_by_row_and_identifiers_add_no_length() -> None:
    index = WordIndex()
    for text in ("tea and more tea", "ERR-4711", "coffee"):
        index.append(analyze(text))
    assert index.postings("tea").tolist() == [[0, 2]]
    assert index.postings("=err-4711").tolist() == [[1, 1]]
    assert index.postings("milk").shape == (0, 2)
    assert index.lengths().tolist() == [3, 2, 1]


def test_postings_taken_before_an_append_stay_as_they_were() -> None:
    index = WordIndex()
    index.append(("tea",))
    before = index.postings("tea")
    index.append(("tea",))
    assert np.array_equal(before, [[0, 1]])
    assert len(index.postings("tea")) == 2


def test_words_are_stemmed_alike_in_many_threads_at_once():
    endings = ("izations", "ingly", "fulness", "ments", "ies", "edly")
    words = ["".join(letters) + endings[at % 6] for at, letters in enumerate(product("bdgklmnrst", repeat=3))]
    alone = [analyze(word) for word in words]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        stem.cache_clear()
        with ThreadPoolExecutor(8) as threads:
            assert list(threads.map(analyze, words)) == alone
    finally:
        sys.setswitchinterval(interval)
