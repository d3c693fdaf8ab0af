"""What must hold among the ledger's own tables. Each check reads one snapshot and yields its findings."""

from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, exists, func, not_, or_, select

from models.layers import HIDDEN
from stores.findings import SHOWN, Finding
from stores.schema import (
    conflicts,
    edges,
    events,
    fact_keys,
    memories,
    outbox,
    settings,
    tags,
    token_vectors,
    tokens,
    vectors,
    versions,
)
from stores.vdb import shard_of

Check = Callable[[Connection], Iterator[Finding]]
FINGERPRINT = "embedding.fingerprint"


def integrity(connection: Connection) -> Iterator[Finding]:
    """SQLite's own look at every page and every index."""
    rows = connection.exec_driver_sql(f"PRAGMA integrity_check({SHOWN})")
    faults = tuple(str(row[0]) for row in rows if row[0] != "ok")
    if faults:
        yield Finding("integrity", f"SQLite finds the file damaged: {faults[0]}", faults)


def references(connection: Connection) -> Iterator[Finding]:
    """Every row's parent is there. Those that can be spared are the orphans' business."""
    spared = {table.name for table in DERIVED}
    found: dict[str, list[str]] = {}
    for table, row, parent, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        if table not in spared:
            found.setdefault(f"rows of {table} name a row of {parent} that is not there", []).append(str(row))
    for what, rows in found.items():
        yield Finding("references", what, tuple(rows))


def history(connection: Connection) -> Iterator[Finding]:
    """The versions of a memory follow each other without a gap; one is current; time never goes back."""
    in_order: dict[str, Any] = {"partition_by": versions.c.memory_id, "order_by": versions.c.version}
    steps = select(
        versions,
        func.lag(versions.c.version).over(**in_order).label("before"),
        func.lead(versions.c.version).over(**in_order).label("next"),
        func.lead(versions.c.from_seq).over(**in_order).label("next_seq"),
        func.lead(versions.c.at).over(**in_order).label("next_at"),
    ).subquery()
    step = steps.c
    wrong: dict[str, ColumnElement[bool]] = {
        "have a gap among their versions": or_(
            step.next != step.version + 1,
            and_(step.before.is_(None), step.version != 1, step.status != "purged"),
        ),
        "have a version that does not end where the next begins": and_(
            step.next.is_not(None), or_(step.to_seq.is_(None), step.to_seq != step.next_seq)
        ),
        "have no current version": and_(step.next.is_(None), step.to_seq.is_not(None)),
        "have a version that is older than the one before": or_(
            step.next_seq <= step.from_seq, step.next_at < step.at
        ),
        "have a version without its event": not_(exists().where(events.c.seq == step.from_seq)),
    }
    for what, condition in wrong.items():
        yield from _found("history", f"memories {what}", connection, select(step.memory_id).where(condition))
    without = select(memories.c.memory_id).where(
        not_(exists().where(versions.c.memory_id == memories.c.memory_id))
    )
    yield from _found("history", "memories have no version at all", connection, without)
    clock = select(
        events.c.seq, events.c.at, func.lag(events.c.at).over(order_by=events.c.seq).label("before")
    ).subquery()
    back = select(clock.c.seq).where(clock.c.at < clock.c.before)
    yield from _found("history", "events are older than the event before", connection, back)


def orphans(connection: Connection) -> Iterator[Finding]:
    """Nothing is kept of a memory that is not there, or was purged."""
    for table, gone in ORPHANED.items():
        subject = next(table.c[name] for name in ("memory_id", "from_id", "a_id") if name in table.c)
        what = f"memories are gone, but rows of {table.name} are left of them"
        yield from _found("orphans", what, connection, select(subject).where(gone), "delete")


def words(connection: Connection) -> Iterator[Finding]:
    """Every memory has its words."""
    yield from _found("words", "memories have no words in the index", connection, WORDLESS, "analyse")


def embeddings(connection: Connection) -> Iterator[Finding]:
    """Every memory that is shown has its vectors, all of one length, or waits for them."""
    fingerprint = stored_fingerprint(connection)
    mine = vectors.c.fingerprint == fingerprint
    has = exists().where(vectors.c.memory_id == memories.c.memory_id, mine)
    lacking = select(memories.c.memory_id).where(_shown(), not_(has), not_(_waits(memories.c.memory_id)))
    what = "memories have no vector and no task to make one"
    yield from _found("embeddings", what, connection, lacking, "embed")
    length = func.length(vectors.c.vector)
    lengths = select(length).where(mine).group_by(length).order_by(func.count().desc())
    usual = connection.scalar(lengths.limit(1))
    gap = func.max(vectors.c.chunk) + 1 != func.count()
    broken = (
        select(vectors.c.memory_id)
        .where(mine, not_(_waits(vectors.c.memory_id)))
        .group_by(vectors.c.memory_id)
        .having(or_(gap, func.max(length) != usual, func.min(length) != usual))
    )
    yield from _found("embeddings", "memories have broken vectors", connection, broken, "embed")


def tasks(connection: Connection) -> Iterator[Finding]:
    """No task was given up, and each goes to the shard of its memory."""
    parked = select(outbox.c.memory_id, outbox.c.error).where(outbox.c.state == "parked")
    rows = connection.execute(parked).all()
    if rows:
        what = f"tasks were given up after several attempts, the first because of: {rows[0][1]}"
        yield Finding("tasks", what, tuple(row[0] for row in rows), "retry")
    query = select(outbox.c.memory_id, outbox.c.shard, memories.c.product, memories.c.agent)
    joined = query.join(memories, memories.c.memory_id == outbox.c.memory_id)
    astray = [id for id, shard, *scope in connection.execute(joined) if shard != shard_of(*scope)]
    if astray:
        yield Finding("tasks", "tasks go to another shard than their memory's", tuple(astray), "shard")


def stored_fingerprint(connection: Connection) -> str | None:
    """Which vectors count in this snapshot."""
    found: str | None = connection.scalar(select(settings.c.value).where(settings.c.name == FINGERPRINT))
    return found


def _found(
    check: str, what: str, connection: Connection, query: Select[Any], repair: Any = None
) -> Iterator[Finding]:
    """One finding about everything that the query selects, nothing when it selects nothing."""
    subjects = tuple(dict.fromkeys(str(row[0]) for row in connection.execute(query)))
    if subjects:
        yield Finding(check, what, subjects, repair)


def _current(memory_id: ColumnElement[Any]) -> Any:
    return and_(versions.c.memory_id == memory_id, versions.c.to_seq.is_(None))


def _gone(memory_id: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether an id names no memory, or one that was purged."""
    there = exists().where(memories.c.memory_id == memory_id)
    purged = exists().where(_current(memory_id), versions.c.status == "purged")
    return or_(not_(there), purged)


def _shown() -> ColumnElement[bool]:
    return exists().where(_current(memories.c.memory_id), versions.c.status.not_in(HIDDEN))


def _waits(memory_id: ColumnElement[Any]) -> ColumnElement[bool]:
    return exists().where(outbox.c.memory_id == memory_id, outbox.c.task == "embed")


DERIVED = (tokens, vectors, token_vectors, outbox, fact_keys)
# What may be deleted, by table. A tombstone has a task as well: it has to leave Chroma.
ORPHANED: dict[Table, ColumnElement[bool]] = {
    **{table: _gone(table.c.memory_id) for table in (tokens, vectors, token_vectors)},
    tags: or_(
        _gone(tags.c.memory_id),
        not_(exists().where(versions.c.memory_id == tags.c.memory_id, versions.c.version == tags.c.version)),
    ),
    # What a fact is about is no memory.
    edges: or_(_gone(edges.c.from_id), and_(edges.c.type != "asserts", _gone(edges.c.to_id))),
    fact_keys: _gone(fact_keys.c.memory_id),
    conflicts: or_(_gone(conflicts.c.a_id), _gone(conflicts.c.b_id)),
    outbox: not_(exists().where(memories.c.memory_id == outbox.c.memory_id)),
}
WORDLESS = select(memories.c.memory_id).where(
    not_(exists().where(tokens.c.memory_id == memories.c.memory_id)),
    exists().where(_current(memories.c.memory_id), versions.c.status != "purged"),
)
LEDGER_CHECKS: tuple[Check, ...] = (integrity, references, history, orphans, words, embeddings, tasks)
