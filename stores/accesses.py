"""When and how often details were fetched: counters beside the record. They make no version and no event, and
no other store has them."""

from collections.abc import Sequence

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import SQLAlchemyError

from models.errors import StoreUnavailable
from stores.observations_schema import accesses
from stores.rows import VARIABLES
from stores.writer import Transaction


def record(transaction: Transaction, memory_ids: Sequence[str]) -> None:
    """One more access of each, now. Raises StoreUnavailable; then none is recorded."""
    try:
        for start in range(0, len(memory_ids), VARIABLES):
            some = memory_ids[start : start + VARIABLES]
            this = accesses.c.memory_id.in_(some)
            known = set(transaction.execute(select(accesses.c.memory_id).where(this)).scalars())
            count = accesses.c.access_count + 1
            if known:
                values = {"last_accessed": transaction.now, "access_count": count}
                transaction.execute(update(accesses).where(this).values(values))
            new = [one for one in some if one not in known]
            transaction.insert(
                accesses,
                [{"memory_id": one, "last_accessed": transaction.now, "access_count": 1} for one in new],
            )
        transaction.flush()
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or type(error).__name__
        raise StoreUnavailable(f"The access could not be recorded: {cause}", retry_after=1) from error


def last_accessed(connection: Connection, memory_ids: Sequence[str]) -> dict[str, int]:
    """When each was fetched last, epoch ms; those that never were are left out."""
    found: dict[str, int] = {}
    for start in range(0, len(memory_ids), VARIABLES):
        some = memory_ids[start : start + VARIABLES]
        query = select(accesses.c.memory_id, accesses.c.last_accessed).where(accesses.c.memory_id.in_(some))
        found |= {row.memory_id: row.last_accessed for row in connection.execute(query)}
    return found
