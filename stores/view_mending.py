"""How the doctor mends the tables behind the observations view: it writes them again from the records."""

from collections.abc import Sequence

from sqlalchemy import delete, update

from stores.observations_schema import topics
from stores.purge import slices
from stores.raw_adoption import adopt
from stores.raw_places import recount
from stores.raw_schema import raw_messages
from stores.rows import memory_from, select_memories
from stores.schema import memories, versions
from stores.topics import topic_values
from stores.view_checks import unlike_places
from stores.writer import Transaction


def write_places(transaction: Transaction, _: Sequence[str]) -> None:
    transaction.flush()
    touched: set[int | None] = set()
    for memory, values in list(unlike_places(transaction.connection)):
        if values is None:
            touched.add(adopt(transaction, memory))
            continue
        this = update(raw_messages).where(raw_messages.c.memory_id == memory.memory_id)
        rows = transaction.execute(this.values(values).returning(raw_messages.c.session_row))
        touched.add(rows.scalar())
    recount(transaction, sorted(session for session in touched if session is not None))


def count_again(transaction: Transaction, sessions: Sequence[str]) -> None:
    recount(transaction, [int(session) for session in sessions])


def write_topics(transaction: Transaction, ids: Sequence[str]) -> None:
    for some in slices(ids):
        transaction.execute(delete(topics).where(topics.c.memory_id.in_(some)))
        query = select_memories().where(memories.c.memory_id.in_(some), versions.c.status != "purged")
        for row in transaction.execute(query).all():
            transaction.insert(topics, topic_values(memory_from(row)))
