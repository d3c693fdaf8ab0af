"""Generations: which vectors count and which directories hold them. A rebuild ends by pointing to another, in
one transaction; the one before is kept, by name, until it is pruned.

In `settings`, next to the pointers of `stores.refill`:

    embedding.fingerprint   whose vectors count
    embedding.model         the name or path of that model, as the last rebuild was told
    rebuild.previous        the earlier generation: {"fingerprint", "model", "shards", "at"}
    rebuild.progress        how far re-embedding with the same model has come
    rebuild.last            when the last rebuild ended, epoch ms
"""

from collections.abc import Iterator
from dataclasses import dataclass

import orjson
from sqlalchemy import delete, select

from models.layers import HIDDEN
from models.memory import Memory
from stores.inserts import requeue
from stores.ledger import Ledger
from stores.refill import PREVIOUS, point, put_row, request
from stores.rows import memory_from, select_memories
from stores.schema import memories, outbox, token_vectors, vectors, versions
from stores.vdb import shard_of
from stores.writer import FINGERPRINT, Transaction

MODEL, PROGRESS, LAST = "embedding.model", "rebuild.progress", "rebuild.last"
SLICE = 500  # ids in one statement


@dataclass(frozen=True, slots=True)
class Generation:
    """Vectors that counted, and the directories, by number of the shard, that held them. `at`: until when,
    epoch ms."""

    fingerprint: str | None
    model: str | None
    shards: dict[int, str]
    at: int = 0

    def row(self, at: int) -> str:
        """As it is kept in `settings`."""
        kept = {"fingerprint": self.fingerprint, "model": self.model, "at": at}
        return orjson.dumps(
            kept | {"shards": {str(shard): name for shard, name in self.shards.items()}}
        ).decode()


def earlier(ledger: Ledger) -> Generation | None:
    """The generation before this one, if it is kept."""
    row = ledger.setting(PREVIOUS)
    if row is None:
        return None
    kept = orjson.loads(row)
    shards = {int(shard): name for shard, name in kept["shards"].items()}
    return Generation(kept["fingerprint"], kept["model"], shards, kept["at"])


@dataclass(frozen=True, slots=True)
class Flip:
    """A write that makes another generation count. `directories` hold every memory as it stood after event
    `since`; what changed later is left to the outbox, so that nothing is missed and nobody waits. `missing`
    are those that had no vectors then: the outbox embeds them."""

    fingerprint: str
    model: str | None
    directories: dict[int, str]
    before: Generation
    since: int
    missing: list[str]

    def __call__(self, transaction: Transaction) -> list[int]:
        """Returns the shards that are to be filled anew: something was purged from them meanwhile."""
        due = set()
        with_vectors = select(vectors.c.memory_id).where(vectors.c.fingerprint == self.fingerprint)
        for memory in self._changed(transaction):
            seq = transaction.next_seq()
            requeue(transaction, memory, "index", seq)
            shard = shard_of(*memory.partition.scope)
            if memory.state.status == "purged" and shard in self.directories:
                request(transaction, shard)
                due.add(shard)
            if not memory.hidden:
                own = with_vectors.where(vectors.c.memory_id == memory.memory_id).limit(1)
                if transaction.scalar(own) is None:
                    requeue(transaction, memory, "embed", seq)
        for start in range(0, len(self.missing), SLICE):
            wanted = memories.c.memory_id.in_(self.missing[start : start + SLICE])
            query = select_memories().where(wanted, versions.c.status.not_in(HIDDEN))
            for memory in [memory_from(row) for row in transaction.execute(query)]:
                requeue(transaction, memory, "embed", transaction.next_seq())
        embedded = (outbox.c.task == "embed") & outbox.c.memory_id.in_(with_vectors)
        transaction.execute(delete(outbox).where(embedded))
        point(transaction, self.directories)
        put_row(transaction, FINGERPRINT, self.fingerprint)
        put_row(transaction, MODEL, self.model)
        put_row(transaction, PREVIOUS, self.before.row(transaction.now))
        put_row(transaction, PROGRESS, None)
        put_row(transaction, LAST, str(transaction.now))
        return sorted(due)

    def _changed(self, transaction: Transaction) -> list[Memory]:
        query = select_memories().where(versions.c.from_seq > self.since)
        return [memory_from(row) for row in transaction.execute(query)]


def stale_ids(ledger: Ledger, fingerprint: str | None) -> Iterator[list[str]]:
    """The memories with vectors of other fingerprints, some at a time."""
    for table in (vectors, token_vectors):
        query = select(table.c.memory_id).where(table.c.fingerprint != fingerprint).distinct()
        with ledger.snapshot() as connection:
            ids = list(connection.scalars(query))
        yield from (ids[start : start + SLICE] for start in range(0, len(ids), SLICE))


def forget_vectors(transaction: Transaction, ids: list[str], fingerprint: str | None) -> int:
    """Delete the vectors of other fingerprints of these memories. Returns how many there were."""
    count = 0
    for table in (vectors, token_vectors):
        stale = table.c.memory_id.in_(ids) & (table.c.fingerprint != fingerprint)
        count += transaction.execute(delete(table).where(stale)).rowcount
    return count


def forget_previous(transaction: Transaction) -> None:
    """Keep no earlier generation, and no half-done rebuild."""
    for name in (PREVIOUS, PROGRESS):
        put_row(transaction, name, None)
