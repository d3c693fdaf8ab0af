"""What must hold of the tables behind the observations view. They say once more what the records say, so that
lists and searches need not read those."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, select

from models.memory import Memory
from models.provenance import MessageDetails
from models.raw_sessions import SessionName, message_hash
from stores.findings import Finding
from stores.observations_schema import topics
from stores.raw_places import aggregates, place_values
from stores.raw_schema import raw_messages, raw_sessions, transcripts
from stores.record_checks import Records
from stores.rows import Values, memory_from, select_memories
from stores.schema import memories, versions

_m = raw_messages.c
_COUNTED = ("message_count", "user_count", "assistant_count", "first_epoch", "last_epoch")


def messages(connection: Connection) -> Iterator[Finding]:
    """Every message has its place, and stands there as its record has it."""
    missing: list[str] = []
    wrong: list[str] = []
    for memory, values in unlike_places(connection):
        (missing if values is None else wrong).append(memory.memory_id)
    if missing:
        yield Finding("messages", "messages have no place where searches find them", tuple(missing), "places")
    if wrong:
        what = "messages stand in their sessions otherwise than in their records"
        yield Finding("messages", what, tuple(wrong), "places")


def unlike_places(connection: Connection) -> Iterator[tuple[Memory, Values | None]]:
    """The messages whose row in `raw_messages` says something else than they do, with what it should say;
    None for one without a row. Of a transcript that is still coming nothing has to be shown."""
    coming = select(transcripts.c.identity_id).where(transcripts.c.state == "coming")
    unfinished = set(connection.execute(coming).scalars())
    query = (
        select_memories()
        .add_columns(*raw_messages.c)
        .outerjoin(raw_messages, _m.memory_id == memories.c.memory_id)
        .where(memories.c.kind == "message", versions.c.status != "purged")
    )
    columns = [column.name for column in raw_messages.c]
    for row in connection.execute(query):
        memory, place = _read(row[: -len(columns)]), dict(zip(columns, row[-len(columns) :], strict=True))
        if memory is None:
            continue  # the check of the records names it
        if place["memory_id"] is None:
            yield memory, None
            continue
        wanted = _wanted(memory, place)
        if place["identity_id"] in unfinished and not place["shown"]:
            wanted["shown"] = False
        if any(place[name] != value for name, value in wanted.items()):
            yield memory, wanted


def _read(row: Any) -> Memory | None:
    try:
        return memory_from(row)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _wanted(memory: Memory, place: Values) -> Values:
    """What follows from the record alone: not whose session it is, nor its place there."""
    role = memory.details.role if isinstance(memory.details, MessageDetails) else None
    in_session = place["session_row"] is not None
    values = place_values(memory, role or ("user" if in_session else None))
    for name in ("session_row", "identity_id", "ordinal", "timed", "once_key"):
        del values[name]
    return values | {"content_hash": message_hash(memory.content) if in_session else None}


def sessions(connection: Connection) -> Iterator[Finding]:
    """The counts, times and hash of every session are those of its messages, and lists leave out those whose
    provenance is in doubt, and no others."""
    rows = connection.execute(select(raw_sessions)).all()
    hostless = {_same(row) for row in rows if not row.host and row.message_count}
    wrong: list[str] = []
    for row in rows:
        name = SessionName(row.host, row.source_root, row.project, row.session_id)
        found = aggregates(connection, row.session_row, name)
        checked: Values = {column: found[column] for column in _COUNTED}
        if found["message_count"]:  # an empty one may have lost its names, or was never hashed
            checked["content_hash"] = found["content_hash"]
            checked["excluded"] = _same(row) in hostless or not row.host or row.taint is not None
        if any(getattr(row, column) != value for column, value in checked.items()):
            wrong.append(str(row.session_row))
    if wrong:
        what = "sessions are listed with other counts, times or hashes than their messages have"
        yield Finding("sessions", what, tuple(wrong), "sessions")


def _same(row: Any) -> tuple[str, ...]:
    """What sessions of different hosts have in common."""
    return (row.product, row.agent, row.user, row.source_root, row.project, row.session_id)


def check_topics(connection: Connection, records: Records) -> Iterator[Finding]:
    """The topics that heads and segments are found by are those of the memories."""
    rows = connection.execute(select(topics))
    there = {row.memory_id: tuple(row) for row in rows}
    wanted = {id: one.topic for id, one in records.known.items() if records.alive(id) and one.topic}
    wrong = sorted(id for id in there.keys() | wanted.keys() if there.get(id) != wanted.get(id))
    if wrong:
        what = "memories have another topic where heads and segments are looked for"
        yield Finding("topics", what, tuple(wrong), "topics")


VIEW_CHECKS = (messages, sessions)
