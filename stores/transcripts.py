"""How far transcripts were read, so that what was read is not read again."""

from typing import NamedTuple

from sqlalchemy import Connection, func, select, update

from models.raw_sessions import SessionName
from models.scope import Partition
from stores.raw_rows import session_row, transcript_row
from stores.raw_schema import raw_messages, raw_sessions, transcripts
from stores.schema import memories
from stores.writer import Transaction

MAX_OTHERS = 100

_t = transcripts.c


class Cursor(NamedTuple):
    """So many lines and bytes (`size`) from the beginning, and the SHA-256 of these bytes."""

    lines: int
    size: int
    digest: bytes


def cursor(
    connection: Connection, partition: Partition, name: SessionName, transcript_id: str
) -> Cursor | None:
    """How far a sound transcript was read; None when it never was."""
    key = name.transcript_key(partition, transcript_id)
    query = select(_t.lines, _t.bytes, _t.digest).where(_t.key == key, _t.state == "active")
    row = connection.execute(query).first()
    return None if row is None or row.digest is None else Cursor(*row)


def others(connection: Connection, partition: Partition, name: SessionName) -> dict[str, Cursor]:
    """How far each transcript of a session was read, the newest first, by its name: a file that begins like
    one of them is that one under another name."""
    message = (
        select(func.min(raw_messages.c.memory_id))
        .where(raw_messages.c.identity_id == _t.identity_id, raw_messages.c.content_hash.is_not(None))
        .scalar_subquery()
    )
    query = (
        select(memories.c.details["transcript_id"].as_string(), _t.lines, _t.bytes, _t.digest)
        .join(raw_sessions, raw_sessions.c.session_row == _t.session_row)
        .join(memories, memories.c.memory_id == message)
        .where(raw_sessions.c.key == name.key(partition))
        .where(_t.state == "active", _t.digest.is_not(None), _t.bytes > 0)
        .order_by(_t.identity_id.desc())
        .limit(MAX_OTHERS)
    )
    return {named: Cursor(*row) for named, *row in connection.execute(query)}


def advance(
    transaction: Transaction, partition: Partition, name: SessionName, transcript_id: str, to: Cursor
) -> None:
    """Note how far a transcript was read."""
    session = session_row(transaction, partition, name)
    identity = transcript_row(transaction, partition, name, transcript_id, session)
    values = {"lines": to.lines, "bytes": to.size, "digest": to.digest}
    values |= {"failure": None, "failed_line": None, "failed_at": None}
    transaction.execute(update(transcripts).where(_t.identity_id == identity).values(values))
