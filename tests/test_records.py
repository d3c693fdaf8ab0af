"""A loaded partition by columns: each row is the record that the ledger has, and what comes later changes no
snapshot that was taken before."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from models.memory import Memory
from stores.columns import Columns
from stores.records import CurrentRows, JoinedRows, Records
from stores.words import WordIndex
from tests.recalling import memory

LINES = st.lists(st.sampled_from(["a", "b", "c", "=x-1", "~time"]), max_size=6).map(
    lambda terms: tuple(sorted(terms, key=lambda term: term[0] in "=~"))
)


def some(count: int) -> list[Memory]:
    return [
        memory(
            f"text {number}",
            session_id=[None, "s", "t"][number % 3],
            actor=["Ann", None][number % 2],
            memory_at=[None, 5][number % 2],
            confidence=number / 10,
            valid_until=[7, None][number % 2],
        )
        for number in range(count)
    ]


def test_rows_are_the_records_in_order() -> None:
    memories = some(5)
    rows = CurrentRows(Records.of(memories))
    assert list(rows) == memories
    assert (rows[-1], rows[1:3], len(rows)) == (memories[-1], memories[1:3], 5)


def test_a_copy_keeps_what_is_replaced_or_added_later() -> None:
    memories = some(3)
    rows = CurrentRows(Records.of(memories))
    before = rows.copy()
    newer = replace(memories[1], version=2)
    rows.replace(1, newer)
    rows.append(some(1)[0])
    assert list(before) == memories
    assert (rows[1], len(rows)) == (newer, 4)


def test_joined_rows_are_all_rows_end_to_end() -> None:
    first, second = some(3), some(2)
    joined = JoinedRows([first, [], second])
    assert list(joined) == [*first, *second]


@given(st.integers(0, 6), st.integers(0, 6))
def test_columns_are_the_same_however_the_rows_came(at_first: int, later: int) -> None:
    memories = some(at_first + later)
    columns = Columns(Records.of(memories[:at_first]))
    early = columns.view()
    for one in memories[at_first:]:
        columns.append(one)
    whole = Columns(Records.of(memories)).view()
    assert {name: values.tolist() for name, values in columns.view().items()} == {
        name: values.tolist() for name, values in whole.items()
    }
    assert all(len(values) == at_first for values in early.values())


@given(st.lists(LINES, max_size=6), st.lists(LINES, max_size=6))
def test_words_are_the_same_however_the_rows_came(
    at_first: list[tuple[str, ...]], later: list[tuple[str, ...]]
) -> None:
    built = WordIndex.of(["\n".join(terms) for terms in at_first])
    appended = WordIndex()
    for terms in at_first:
        appended.append(terms)
    for terms in later:
        built.append(terms)
        appended.append(terms)
    assert built.lengths().tolist() == appended.lengths().tolist()
    for term in ("a", "b", "c", "=x-1", "~time", "none"):
        assert built.postings(term).tolist() == appended.postings(term).tolist()
