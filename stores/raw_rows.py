"""The rows that raw messages stand under: their session and their transcript, made when they first come."""

from typing import Any

from sqlalchemy import Table, insert, select, update

from models.raw_sessions import Mode, SessionName, merged
from models.scope import Partition
from stores.raw_places import settle
from stores.raw_schema import raw_sessions, transcripts
from stores.writer import Transaction

_s, _t = raw_sessions.c, transcripts.c


def session_row(transaction: Transaction, partition: Partition, name: SessionName) -> int:
    """The number of a user's session, which is made when there is none."""
    key = name.key(partition)
    found = transaction.execute(select(_s.session_row, _s.source_root).where(_s.key == key)).first()
    if found is not None:
        row: int = found.session_row
        if not found.source_root:  # all that it had was purged once, and its names with it
            transaction.execute(update(raw_sessions).where(_s.session_row == row).values(name._asdict()))
        return row
    product, agent, user = partition
    values = {
        "key": key,
        "product": product,
        "agent": agent,
        "user": user,
        **name._asdict(),
        "session_mode": "unknown",
        "taint": None,
        "excluded": not name.host,
        "message_count": 0,
        "user_count": 0,
        "assistant_count": 0,
        "content_hash": "",
    }
    return _made(transaction, raw_sessions, values)


def transcript_row(
    transaction: Transaction, partition: Partition, name: SessionName, transcript_id: str, session: int
) -> int:
    """The identity of a transcript, which is made when there is none, above 0."""
    key = name.transcript_key(partition, transcript_id)
    identity: int | None = transaction.scalar(select(_t.identity_id).where(_t.key == key))
    if identity is not None:
        return identity
    values = {
        "key": key,
        "session_row": session,
        "session_mode": "unknown",
        "state": "active",
        "lines": 0,
        "bytes": 0,
    }
    return _made(transaction, transcripts, values)


def transcript(transaction: Transaction, identity: int) -> Any:
    """The row of a transcript."""
    return transaction.execute(select(transcripts).where(_t.identity_id == identity)).one()


def be(transaction: Transaction, identity: int, state: str) -> None:
    """Set the state of a transcript."""
    this = update(transcripts).where(_t.identity_id == identity, _t.state != state)
    transaction.execute(this.values(state=state))


def taint(transaction: Transaction, session: int, why: str) -> None:
    """Doubt where a session comes from; the first doubt stays."""
    these = (_s.session_row == session) & _s.taint.is_(None)
    transaction.execute(update(raw_sessions).where(these).values(taint=why))
    settle(transaction, session)


def learn_mode(transaction: Transaction, session: int, identity: int, mode: Mode) -> None:
    """Take over a mode where none was known; doubt the session when two of its sources differ."""
    if mode == "unknown":
        return
    if identity:
        these = (_t.identity_id == identity) & (_t.session_mode == "unknown")
        transaction.execute(update(transcripts).where(these).values(session_mode=mode))
    known = transaction.scalar(select(_s.session_mode).where(_s.session_row == session))
    together = merged(known, mode)
    if together is None:
        taint(transaction, session, "mode")
    elif together != known:
        this = update(raw_sessions).where(_s.session_row == session)
        transaction.execute(this.values(session_mode=together))


def _made(transaction: Transaction, table: Table, values: dict[str, Any]) -> int:
    key = transaction.execute(insert(table).values(values)).inserted_primary_key
    assert key is not None
    return int(key[0])
