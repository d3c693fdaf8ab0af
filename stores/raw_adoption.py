"""Messages that were taken in from elsewhere find their place: what their records say of session and
transcript is enough."""

from sqlalchemy import ColumnElement, select

from models.memory import Memory
from models.provenance import MessageDetails
from models.raw_sessions import MODES, SessionName, digest, message_hash
from stores.raw_places import in_raw_session, place_plain, place_values
from stores.raw_rows import learn_mode, session_row, transcript_row
from stores.raw_schema import raw_messages
from stores.writer import Transaction

_m = raw_messages.c


def adopt(transaction: Transaction, memory: Memory) -> int | None:
    """Place a message. Returns the session whose aggregates have to be brought up to date. One that is in
    its session already, under another id, is placed outside: it is counted once."""
    details = memory.details
    if not in_raw_session(memory) or not isinstance(details, MessageDetails) or memory.session_id is None:
        place_plain(transaction, memory)
        return None
    root = details.source_root or ""
    name = SessionName(details.host or "", root, memory.project, memory.session_id)
    session = session_row(transaction, memory.partition, name)
    identity, ordinal, once_key = 0, details.ordinal or 0, None
    hashed, role = message_hash(memory.content), details.role or "user"
    if details.transcript_id is not None and details.ordinal is not None:
        identity = transcript_row(transaction, memory.partition, name, details.transcript_id, session)
        here: ColumnElement[bool] = (_m.identity_id == identity) & (_m.ordinal == ordinal)
    else:
        once_key = digest(name.key(memory.partition), role, hashed)
        here = _m.once_key == once_key
    if transaction.scalar(select(_m.memory_id).where(here).limit(1)) is not None:
        place_plain(transaction, memory)
        return None
    row = place_values(memory, role) | {
        "session_row": session,
        "identity_id": identity,
        "ordinal": ordinal,
        "content_hash": hashed,
        "once_key": once_key,
        "timed": details.timed,
    }
    transaction.insert(raw_messages, [row])
    for mode in MODES:
        if mode == details.session_mode:
            learn_mode(transaction, session, identity, mode)
    return session
