"""The labels of sessions, which session summaries carry, as a list of sessions finds them."""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, ScalarSelect, and_, bindparam, delete, or_, select

from models.memory import Memory
from models.provenance import SummaryDetails
from models.raw_labels import Label, intent_of, source_of, topic_of
from stores.purge import slices
from stores.raw_schema import session_labels
from stores.schema import versions
from stores.writer import Transaction

_l = session_labels.c

_BY_HAND = _l.source == "override"
_COUNTING = ("active", "superseded", "conflicted")  # what was withdrawn labels nothing
_OLD = delete(session_labels).where(session_labels.c.memory_id == bindparam("this_memory"))


def put(transaction: Transaction, summary: Memory, at: int, session_id: str | None = None) -> None:
    """Let the sessions of the summary's user, host and project that bear its session id (its own
    `session_id`, else its details' `memory_session_id`, unless another is given) have the label in its
    details. The latest `at` (epoch ms, when the label was set) counts, then the higher number. It replaces
    what the same summary said before. Without a host or a session it labels nothing."""
    details = summary.details
    if not isinstance(details, SummaryDetails):
        raise TypeError("only a session summary labels a session")
    transaction.execute(_OLD, {"this_memory": summary.memory_id})
    session = session_id or summary.session_id or details.memory_session_id
    if details.host is None or session is None:
        return
    product, agent, user = summary.partition
    row = {
        "memory_id": summary.memory_id,
        "product": product,
        "agent": agent,
        "user": user,
        "host": details.host,
        "project": summary.project,
        "session_id": session,
        "intent": details.intent,
        "topic": details.topic,
        "source": details.label_source,
        "at": at,
        "number": summary.number,
    }
    transaction.insert(session_labels, [row])


def label_of(session: Any) -> ScalarSelect[str]:
    """The id of the summary that labels a session, of whose row `session` has the columns by name: the
    newest counts wholesale. That of a quarantined summary counts only where somebody set it by hand, that of
    one that was withdrawn or hidden never."""
    same = [
        _l[name] == session[name] for name in ("product", "agent", "user", "host", "project", "session_id")
    ]
    stands = or_(versions.c.status.in_(_COUNTING), and_(versions.c.status == "quarantined", _BY_HAND))
    return (
        select(_l.memory_id)
        .join(versions, (versions.c.memory_id == _l.memory_id) & versions.c.to_seq.is_(None))
        .where(*same, stands)
        .order_by(_l.at.desc(), _l.number.desc())
        .limit(1)
        .scalar_subquery()
    )


def labels_of(connection: Connection, memory_ids: Sequence[str]) -> Iterator[tuple[str, Label]]:
    """What summaries say, by their ids."""
    for some in slices(memory_ids):
        query = select(_l.memory_id, _l.intent, _l.topic, _l.source).where(_l.memory_id.in_(some))
        for memory_id, intent, topic, source in connection.execute(query):
            yield memory_id, Label(intent_of(intent), topic_of(topic), source_of(source))
