"""Where messages stand: a row for each, and the aggregates of their sessions, kept in step by whatever
writes, so that no read has to count, hash or write."""

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, bindparam, delete, func, select, update

from models.layers import HIDDEN
from models.memory import Memory
from models.provenance import MessageDetails
from models.raw_sessions import ContentHash, Row, SessionName
from models.scope import Partition
from stores.history_schema import vacated
from stores.raw_schema import raw_messages, raw_sessions, session_labels
from stores.rows import Values, plain_rows
from stores.schema import memories, versions
from stores.writer import Transaction

_m, _s = raw_messages.c, raw_sessions.c

# Built once: to build a statement costs more than to run it.
_ROWS = (
    select(_m.identity_id, _m.ordinal, _m.role, _m.content_hash, _m.epoch)
    .where(_m.session_row == bindparam("session"), _m.shown.is_(True))
    .order_by(_m.epoch, _m.number)
)
_SHOW = (
    update(raw_messages).where(_m.memory_id == bindparam("this_memory")).values(shown=bindparam("now_shown"))
)
_SESSION_OF = select(_m.session_row).where(_m.memory_id == bindparam("this_memory"))
_LEFT = select(func.count()).where(_m.session_row == bindparam("session"), _m.content_hash.is_not(None))


def in_raw_session(memory: Memory) -> bool:
    """Whether a message came with a root, and so belongs to a raw session."""
    return isinstance(memory.details, MessageDetails) and memory.details.source_root is not None


def place_plain(transaction: Transaction, memory: Memory) -> None:
    """Note a message that belongs to no raw session, so that a search in all messages finds it."""
    details = memory.details
    role = details.role if isinstance(details, MessageDetails) else None
    transaction.insert(raw_messages, [place_values(memory, role)])


def place_values(memory: Memory, role: str | None) -> Values:
    """The row of a stored message, without what only a raw session knows."""
    product, agent, user = memory.partition
    at = memory.gmt_created if memory.memory_at is None else memory.memory_at
    return {
        "memory_id": memory.memory_id,
        "product": product,
        "agent": agent,
        "user": user,
        "session_row": None,
        "identity_id": 0,
        "ordinal": 0,
        "number": memory.number,
        "role": role,
        "epoch": at // 1000,
        "timed": memory.memory_at is not None,
        "shown": not memory.hidden,
        "ascii": memory.content.isascii(),
        "content_hash": None,
        "once_key": None,
    }


def last_position(transaction: Transaction, partition: Partition, session_key: str) -> int:
    """The highest that a memory of the session has, or had before it was moved elsewhere; -1 without any."""
    product, agent, user = partition
    highest = [
        transaction.scalar(
            select(func.max(table.c.session_position)).where(
                table.c.product == product,
                table.c.agent == agent,
                table.c.user == user,
                table.c.session_key == session_key,
            )
        )
        for table in (memories, vacated)
    ]
    return max(-1 if position is None else position for position in highest)


def show(transaction: Transaction, memory: Memory) -> None:
    """After a message was hidden or has come back: its session says so."""
    transaction.execute(_SHOW, {"this_memory": memory.memory_id, "now_shown": not memory.hidden})
    session = transaction.scalar(_SESSION_OF, {"this_memory": memory.memory_id})
    if session is not None:
        recount(transaction, [session])


def reveal(transaction: Transaction, identity: int) -> None:
    """Show whatever a transcript brought, but for what is hidden in its own right."""
    standing = select(versions.c.memory_id).where(
        versions.c.memory_id == _m.memory_id, versions.c.to_seq.is_(None), versions.c.status.not_in(HIDDEN)
    )
    these = update(raw_messages).where(_m.identity_id == identity, _m.shown.is_(False), standing.exists())
    transaction.execute(these.values(shown=True))


def erase(transaction: Transaction, ids: Sequence[str]) -> None:
    """Let go of whatever tells of purged memories. The place in a transcript stays taken, so that bringing
    it again does not bring the text back; of a session without any text even the names go."""
    transaction.execute(delete(session_labels).where(session_labels.c.memory_id.in_(ids)))
    these = _m.memory_id.in_(ids)
    touched = select(_m.session_row).where(these, _m.session_row.is_not(None)).distinct()
    sessions = list(transaction.execute(touched).scalars())
    nothing = {
        "role": None,
        "content_hash": None,
        "once_key": None,
        "shown": False,
        "ascii": True,
        "epoch": 0,
    }
    transaction.execute(update(raw_messages).where(these).values(nothing))
    recount(transaction, sessions)
    for session in sessions:
        if not transaction.scalar(_LEFT, {"session": session}):
            names = {"source_root": "", "host": "", "project": "", "session_id": "", "excluded": False}
            transaction.execute(update(raw_sessions).where(_s.session_row == session).values(names))


def recount(transaction: Transaction, sessions: Iterable[int]) -> None:
    """Bring the aggregates of sessions up to date with their messages."""
    transaction.flush()
    for session in sessions:
        found = transaction.execute(select(raw_sessions).where(_s.session_row == session)).one()
        name = SessionName(found.host, found.source_root, found.project, found.session_id)
        values = aggregates(transaction.connection, session, name)
        transaction.execute(update(raw_sessions).where(_s.session_row == session).values(values))
        settle(transaction, session)


def aggregates(connection: Connection, session: int, name: SessionName) -> Values:
    """What the messages of a session come to: the columns of its row."""
    hashed = ContentHash(name)
    counts = {"user": 0, "assistant": 0}
    total, first, last = 0, None, None
    for values in plain_rows(connection, _ROWS, {"session": session}):
        row = Row(*values)
        hashed.add(row)
        total += 1
        if row.role in counts:
            counts[row.role] += 1
        first, last = row.epoch if first is None else first, row.epoch
    return {
        "message_count": total,
        "user_count": counts["user"],
        "assistant_count": counts["assistant"],
        "first_epoch": first,
        "last_epoch": last,
        "content_hash": str(hashed),
    }


def settle(transaction: Transaction, session: int) -> None:
    """Say of a session, and of those that share its names, whether a list leaves it out: when its own
    provenance is in doubt, and for all hosts as soon as some of its messages came without any."""
    this = transaction.execute(select(raw_sessions).where(_s.session_row == session)).one()
    same = [
        _s[name] == getattr(this, name) for name in ("product", "agent", "user", *SessionName._fields[1:])
    ]
    rows = transaction.execute(select(raw_sessions).where(*same)).all()
    hostless = any(not row.host and row.message_count for row in rows)
    for row in rows:
        excluded = hostless or not row.host or row.taint is not None
        if excluded != row.excluded:
            change = update(raw_sessions).where(_s.session_row == row.session_row)
            transaction.execute(change.values(excluded=excluded))
