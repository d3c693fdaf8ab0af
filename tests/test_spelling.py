"""Names in another spelling or script: found by how they sound, where nobody writes them as asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores.words import analyze, query_sounds
from tests.recalling import hold, id_of, memory, search, texts
from tests.serving import Api

pytest_plugins = ["tests.serving_fixtures"]

OTHERS = (
    "The harbour is cold in March.",
    "Martin Keller runs the kiln.",
    "다음 회의는 월요일에 합니다.",
    "Совещание перенесли на вторник.",
    "仓库的门禁卡找保安领取。",
)


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("Oeztuerk", "Der Brandschutzbeauftragte ist Herr Öztürk."),
        ("mueller", "Frau Müller leitet die Schicht."),
        ("dvorak invoice", "Señor Dvořák paga en efectivo."),
        ("Malgorzata Wojcik", "Małgorzata Wójcik misst nach."),
        ("Shcherbakova", "Контактное лицо — Ирина Щербакова."),
        ("Сокорова Bergstrom", "Томас Бергстрём спрашивал про сертификат."),
        ("Окафор", "Mr Okafor wants a trial batch."),
        ("Huda al-Masri", "كل النصوص العربية تراجعها هدى المصري قبل النشر."),
        ("Rahul Sharma", "राहुल शर्मा बैकएंड टीम के प्रमुख हैं।"),
        ("Kim Min-jun", "김민준은 결제 모듈을 맡고 있다."),
        ("Seoyeon", "박서연 씨는 육아휴직이다."),
        ("김민준", "Kim Min-jun owns the payment module."),
        ("Wu Guodong", "紧急变更必须先打电话给吴国栋。"),
        ("Chen Siyuan", "由陈思远排班。"),
        ("吴国栋", "Call Wu Guodong before an urgent change."),
        ("Aleksandros", "Ο Αλέξανδρος έχει το κλειδί."),
        ("Nato", "ნატო asks whether we want dinner."),
        ("Agnieshka", "Agnieszka has the keys."),
        ("Stepan Ovich", "Ask Stepanovich."),
    ],
)
def test_a_name_is_found_in_another_spelling_or_script(asked: str, stored: str) -> None:
    rows = hold([memory(stored, 1), *(memory(other, 2 + at) for at, other in enumerate(OTHERS))])
    result = search(asked, rows, encoder=None)
    assert texts(result) == [stored]
    assert result.hits[0].explanation["respelled"] and result.hits[0].matched_by == ("words",)


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("Maria", "Mario has the key."),
        ("Park Ji-hoon", "김민지는 알림 모듈을 맡고 있다."),
        ("Rahul Sharma", "राहेल यहाँ है। Ravi Kohl"),
        ("book", "Bach is played on Sunday."),
        ("tone", "Tony sings."),
        ("ERR-4711", "Erich 4712"),
        ("Bern", "The Berlin office is closed."),
        ("current", "Grant signs."),
    ],
)
def test_what_sounds_otherwise_is_not_found(asked: str, stored: str) -> None:
    assert texts(search(asked, hold([memory(stored, 1), memory("Tea at noon.", 2)]), encoder=None)) == []


def test_a_word_that_somebody_writes_is_not_looked_for_by_its_sound() -> None:
    rows = hold([memory("Jon has the key.", 1), memory("John has the car.", 2), memory("Tea at noon.", 3)])
    assert texts(search("Jon", rows, encoder=None)) == ["Jon has the key."]
    assert "respelled" not in search("Jon", rows, encoder=None).hits[0].explanation
    assert texts(search("Jonn", rows, encoder=None)) == ["John has the car.", "Jon has the key."]


def test_only_rows_that_pass_the_filters_say_which_spellings_there_are() -> None:
    rows = hold([memory("Jon has the key.", 1, tags=("old",)), memory("John has the car.", 2, tags=("new",))])
    assert texts(search("Jon", rows, encoder=None, tags=["new"])) == ["John has the car."]
    assert texts(search("Jon", rows, encoder=None, tags=["old"])) == ["Jon has the key."]


def test_an_earlier_version_that_has_the_word_is_a_spelling_too() -> None:
    old = memory("Oeztuerk has the key.", 1, status="superseded", superseded_by=(id_of(2),))
    new = memory("Someone else has it.", 2, supersedes=(id_of(1),))
    rows = hold([old, new, memory("Öztürk has the car.", 3)])
    assert texts(search("Oeztuerk", rows, encoder=None)) == ["Someone else has it."]


@given(st.text(max_size=80))
def test_a_name_sounds_alike_in_a_memory_and_in_a_query(text: str) -> None:
    told = {term for term in analyze(text) if term[0] == "^"}
    asked = {sound for own in query_sounds(text).values() for sound in own}
    assert told <= asked


def test_the_answer_says_what_was_found_by_its_sound(api: Api) -> None:
    api.add("Der Brandschutzbeauftragte ist seit Mai Herr Öztürk.")
    api.add("Die Qualitätsprüferin misst nur mit dem Koordinatenmessgerät.")
    [hit, *_] = api.search("Wer ist Oeztuerk?", explain=True)["results"]
    assert "Öztürk" in hit["content"] and hit["explain"]["respelled"] == ["oeztuerk"]
