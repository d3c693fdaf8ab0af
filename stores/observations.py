"""Reads of the observations view, straight from the ledger: by number, by evidence, by time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Integer, Select, and_, cast, func, select, tuple_

from models.classification import may_have_rivals
from models.layers import HIDDEN, Kind
from models.memory import Memory
from models.observation_view import SECOND, evidence_of, made_at, seconds
from models.scope import Caller
from stores.rows import VARIABLES, memory_from, select_memories
from stores.schema import memories, versions
from stores.topics import has_rival, segments

PAGE = 100  # rows of a timeline that are read at once


@dataclass(frozen=True, slots=True)
class Row:
    """A record as it stands, and when it was changed last, epoch ms."""

    memory: Memory
    changed_at: int


def find_rows(connection: Connection, caller: Caller, kind: Kind, numbers: Sequence[int]) -> list[Row]:
    """Those of these numbers that the caller reaches; hidden ones are left out."""
    found: list[Row] = []
    for start in range(0, len(numbers), VARIABLES):
        some = numbers[start : start + VARIABLES]
        query = _reached(caller, kind).where(memories.c.number.in_(some), versions.c.status.not_in(HIDDEN))
        for *row, at in connection.execute(query):
            found.append(Row(memory_from(row), at))
    return found


def written_after(connection: Connection, seq: int, limit: int) -> list[Memory]:
    """The next records, of every scope and kind, in the order of writing; hidden ones are left out."""
    query = select_memories().where(memories.c.seq > seq, versions.c.status.not_in(HIDDEN))
    return [memory_from(row) for row in connection.execute(query.order_by(memories.c.seq).limit(limit))]


def readable(connection: Connection, caller: Caller, memory_ids: Iterable[str]) -> set[str]:
    """Those of these ids that name something which the caller can read."""
    wanted = list(dict.fromkeys(memory_ids))
    found: set[str] = set()
    for start in range(0, len(wanted), VARIABLES):
        some = wanted[start : start + VARIABLES]
        query = (
            select(memories.c.memory_id)
            .join(versions, (versions.c.memory_id == memories.c.memory_id) & versions.c.to_seq.is_(None))
            .where(_in_reach(caller), memories.c.memory_id.in_(some), versions.c.status.not_in(HIDDEN))
        )
        found.update(connection.execute(query).scalars())
    return found


@dataclass(frozen=True, slots=True)
class Enriched:
    """A memory with what its classification and its trace want: its evidence ids that can be read, whether
    another current row has its project, type and key, and the segments of its topic, oldest first."""

    row: Row
    readable: frozenset[str]
    rival: bool
    segments: tuple[Row, ...] = ()


def enrich(
    connection: Connection,
    caller: Caller,
    rows: Sequence[Row],
    trace: Callable[[Memory], Callable[[Memory], bool] | None] = lambda memory: None,
) -> list[Enriched]:
    """The rows, in their order. `trace` gives for a memory which segments of its topic may be shown with it;
    None: none, and none is read."""
    known = readable(connection, caller, (id for row in rows for id in evidence_of(row.memory)))
    found = []
    for row in rows:
        memory, visible = row.memory, trace(row.memory)
        steps = [] if visible is None else segments(connection, memory, visible)
        found.append(
            Enriched(
                row,
                frozenset(known & set(evidence_of(memory))),
                may_have_rivals(memory) and has_rival(connection, memory),
                tuple(Row(one, at) for one, at in steps),
            )
        )
    return found


def beside(
    connection: Connection,
    caller: Caller,
    anchor: Memory,
    side: Literal["before", "after"],
    count: int,
    visible: Callable[[Memory], bool],
) -> list[Memory]:
    """The nearest active records of the anchor's kind on one side of it, by second and number."""
    before = side == "before"
    made = _made(anchor.kind)
    order = [column.desc() if before else column.asc() for column in (made, memories.c.number)]
    # Without the texts, which would all be sorted.
    query = (
        select(memories.c.memory_id)
        .join(versions, (versions.c.memory_id == memories.c.memory_id) & versions.c.to_seq.is_(None))
        .where(_in_reach(caller), memories.c.kind == anchor.kind, versions.c.status == "active")
        .order_by(*order)
        .limit(PAGE)
    )
    found: list[Memory] = []
    last, more = anchor, True
    while more and len(found) < count:
        place, at = tuple_(made, memories.c.number), (seconds(made_at(last)), last.number)
        ids = list(connection.execute(query.where(place < at if before else place > at)).scalars())
        page = {one.memory_id: one for one in _by_id(connection, ids)}
        found += [page[id] for id in ids if visible(page[id])]
        more = len(ids) == PAGE
        last = page[ids[-1]] if ids else last
    nearest = found[:count]
    return nearest[::-1] if before else nearest


def _made(kind: Kind) -> ColumnElement[int]:
    """When a record was made, epoch seconds, as `models.observation_view.made_at` has it."""
    stated = memories.c.details["created_at"].as_integer() if kind == "memory" else memories.c.memory_at
    return cast(func.coalesce(stated, memories.c.gmt_created), Integer) // SECOND


def _by_id(connection: Connection, memory_ids: Sequence[str]) -> list[Memory]:
    query = select_memories().where(memories.c.memory_id.in_(memory_ids))
    return [memory_from(row) for row in connection.execute(query)]


def _reached(caller: Caller, kind: Kind) -> Select[Any]:
    return select_memories().add_columns(versions.c.at).where(_in_reach(caller), memories.c.kind == kind)


def _in_reach(caller: Caller) -> ColumnElement[bool]:
    product, agent = caller.scope
    scope = and_(memories.c.product == product, memories.c.agent == agent)
    return scope if caller.user is None else scope & (memories.c.user == caller.user)
