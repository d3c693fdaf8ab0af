"""The label of the session that a summary is about."""

from sqlalchemy import Connection, select

from models.memory import Memory
from models.provenance import SummaryDetails
from models.raw_labels import Label, intent_of, source_of, topic_of
from stores.raw_schema import session_labels
from stores.session_labels import label_of


def session_of(summary: Memory) -> dict[str, str] | None:
    """The names of the session that a summary is about; None when it does not say."""
    details = summary.details
    assert isinstance(details, SummaryDetails)
    session = summary.session_id or details.memory_session_id
    if details.host is None or not session:
        return None
    product, agent, user = summary.partition
    place = {"product": product, "agent": agent, "user": user}
    return {**place, "host": details.host, "project": summary.project, "session_id": session}


def standing_label(connection: Connection, summary: Memory) -> Label | None:
    """What that session is labelled now; None without a session or a label."""
    session, said = session_of(summary), session_labels.c
    by = None if session is None else connection.scalar(select(label_of(session)))
    if by is None:
        return None
    row = connection.execute(select(said.intent, said.topic, said.source).where(said.memory_id == by)).one()
    return Label(intent_of(row.intent), topic_of(row.topic), source_of(row.source))
