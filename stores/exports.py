"""Reads memories with their whole history, page by page in the order of writing. Each page is a short read of
its own, and all of them show the ledger as it stood after one event: it keeps every version."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, exists, func, or_, select

from models.memory import State
from models.transfer import Carried, Dispute, Link
from stores.rows import memory_from, select_memories
from stores.schema import conflicts, edges, events, memories, versions
from stores.seats import vacated_by

PAGE = 100  # memories


@dataclass(frozen=True, slots=True)
class Selection:
    """Which memories are exported; None and empty mean all. `since` (epoch ms): written or changed then or
    later."""

    product: str | None = None
    agent: str | None = None
    user: str | None = None
    layers: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    since: int | None = None

    def conditions(self) -> list[Any]:
        """Of rows of `memories`, whatever their status."""
        table = memories.c
        named = {table.product: self.product, table.agent: self.agent, table.user: self.user}
        found: list[Any] = [column == value for column, value in named.items() if value is not None]
        if self.layers:
            found.append(table.layer.in_(self.layers))
        if self.kinds:
            found.append(table.kind.in_(self.kinds))
        if self.since is not None:
            changed = versions.alias("changed")
            found.append(exists().where(changed.c.memory_id == table.memory_id, changed.c.at >= self.since))
        return found


def last_event(connection: Connection) -> int:
    """The number of the latest event; 0 when there is none."""
    return connection.scalar(select(func.max(events.c.seq))) or 0


def page(connection: Connection, selection: Selection, at: int, after: int) -> tuple[list[Carried], int]:
    """The next memories after event `after`, as they stood after event `at`, and the event that the page
    after this one comes after. What is purged by now is no more than an id. Empty at the end."""
    now = versions.alias("now")
    query = (
        select_memories(at)
        .add_columns(now.c.status)
        .join(now, (now.c.memory_id == memories.c.memory_id) & now.c.to_seq.is_(None))
        .where(memories.c.seq > after, memories.c.seq <= at, *selection.conditions())
        .order_by(memories.c.seq)
        .limit(PAGE)
    )
    found = [(memory_from(row), status) for *row, status in connection.execute(query)]
    ids = [memory.memory_id for memory, status in found if status != "purged"]
    histories = _histories(connection, ids, at)
    links = _links(connection, ids, at)
    disputes = _disputes(connection, ids, at)
    left = vacated_by(connection, ids)
    carried = [
        Carried(
            memory,
            memory.gmt_created,
            tuple(histories[memory.memory_id]),
            tuple(sorted(links[memory.memory_id], key=lambda link: (link.from_id, link.type, link.to_id))),
            tuple(disputes[memory.memory_id]),
            tuple(left.get(memory.memory_id, ())),
        )
        for memory, _ in found
    ]
    return carried, found[-1][0].seq if found else after


def _histories(
    connection: Connection, ids: Sequence[str], at: int
) -> dict[str, list[tuple[int | None, State]]]:
    query = (
        select(versions.c.memory_id, versions.c.at, versions.c.state)
        .where(versions.c.memory_id.in_(ids), versions.c.from_seq <= at)
        .order_by(versions.c.memory_id, versions.c.version)
    )
    found: defaultdict[str, list[tuple[int | None, State]]] = defaultdict(list)
    for memory_id, since, state in connection.execute(query):
        found[memory_id].append((since, State.from_row(state)))
    return found


def _links(connection: Connection, ids: Sequence[str], at: int) -> dict[str, list[Link]]:
    """The links that held after event `at`, by the later of their ends: the other one is there by then."""
    start, end = memories.alias("start"), memories.alias("end")
    query = (
        select(edges.c.from_id, edges.c.type, edges.c.to_id, edges.c.weight, start.c.seq > end.c.seq)
        .join(start, start.c.memory_id == edges.c.from_id)
        .join(end, end.c.memory_id == edges.c.to_id)
        .where(
            or_(
                and_(edges.c.from_id.in_(ids), start.c.seq > end.c.seq),
                and_(edges.c.to_id.in_(ids), end.c.seq > start.c.seq),
            ),
            edges.c.type != "conflicts_with",  # goes with its conflict
            edges.c.from_seq <= at,
            or_(edges.c.to_seq.is_(None), edges.c.to_seq > at),
        )
    )
    found: defaultdict[str, list[Link]] = defaultdict(list)
    for from_id, type, to_id, weight, starts in connection.execute(query):
        link = Link(from_id=from_id, type=type, to_id=to_id, weight=weight)
        found[from_id if starts else to_id].append(link)
    return found


def _disputes(connection: Connection, ids: Sequence[str], at: int) -> dict[str, list[Dispute]]:
    """The conflicts that were opened by event `at`, by the later of their sides. One that was resolved after
    it is shown as resolved: the doctor of the other ledger would find its sides otherwise."""
    one, other = memories.alias("one"), memories.alias("other")
    query = (
        select(conflicts, one.c.seq > other.c.seq)
        .join(one, one.c.memory_id == conflicts.c.a_id)
        .join(other, other.c.memory_id == conflicts.c.b_id)
        .where(
            or_(
                and_(conflicts.c.a_id.in_(ids), one.c.seq > other.c.seq),
                and_(conflicts.c.b_id.in_(ids), other.c.seq > one.c.seq),
            ),
            conflicts.c.seq <= at,
        )
        .order_by(conflicts.c.seq)
    )
    found: defaultdict[str, list[Dispute]] = defaultdict(list)
    for row in connection.execute(query):
        values = {name: getattr(row, name) for name in Dispute.model_fields}
        found[row.a_id if row[-1] else row.b_id].append(Dispute(**values))
    return found
