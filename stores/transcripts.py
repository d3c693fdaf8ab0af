"""How far transcripts were read, so that what was read is not read again."""

from typing import NamedTuple

from sqlalchemy import Connection, select, update

from models.raw_sessions import SessionName
from models.scope import Partition
from stores.raw_rows import session_row, transcript_row
from stores.raw_schema import transcripts
from stores.writer import Transaction

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


def advance(
    transaction: Transaction, partition: Partition, name: SessionName, transcript_id: str, to: Cursor
) -> None:
    """Note how far a transcript was read."""
    session = session_row(transaction, partition, name)
    identity = transcript_row(transaction, partition, name, transcript_id, session)
    values = {"lines": to.lines, "bytes": to.size, "digest": to.digest}
    values |= {"failure": None, "failed_line": None, "failed_at": None}
    transaction.execute(update(transcripts).where(_t.identity_id == identity).values(values))
