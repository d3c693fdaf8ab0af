"""Inserts that several writes share."""

from collections.abc import Sequence

from sqlalchemy import delete

from models.memory import Memory
from models.token_codes import Embedded
from stores.changes import Edge
from stores.schema import edges, outbox, token_vectors, vectors
from stores.token_rows import token_rows
from stores.vdb import shard_of
from stores.writer import Transaction


def insert_edges(transaction: Transaction, links: Sequence[Edge], seq: int) -> None:
    """Links that hold from event `seq` on."""
    rows = [
        {
            "from_id": edge.from_id,
            "type": edge.type,
            "to_id": edge.to_id,
            "from_seq": seq,
            "to_seq": None,
            "weight": edge.weight,
        }
        for edge in links
    ]
    transaction.insert(edges, rows)


def insert_vectors(transaction: Transaction, memory_id: str, fingerprint: str, embedded: Embedded) -> None:
    """Store the vectors and word pieces of a memory that has none of this fingerprint."""
    rows = [
        {"memory_id": memory_id, "chunk": chunk, "fingerprint": fingerprint, "vector": vector.tobytes()}
        for chunk, vector in enumerate(embedded.vectors.astype("<f4", copy=False))
    ]
    transaction.insert(vectors, rows)
    transaction.insert(token_vectors, token_rows(memory_id, fingerprint, embedded.pieces))


def requeue(transaction: Transaction, memory: Memory, task: str, seq: int) -> None:
    """Leave a task for the applier. It replaces an older one of the same kind for the memory."""
    older = (outbox.c.memory_id == memory.memory_id) & (outbox.c.task == task)
    transaction.execute(delete(outbox).where(older))
    queue(transaction, memory, task, seq)


def replace_vectors(
    transaction: Transaction, memory_ids: Sequence[str], fingerprint: str, embedded: Sequence[Embedded]
) -> None:
    """Store them instead of those that were there, if any: embedding a memory twice is harmless."""
    for table in (vectors, token_vectors):
        old = table.c.memory_id.in_(memory_ids) & (table.c.fingerprint == fingerprint)
        transaction.execute(delete(table).where(old))
    for memory_id, one in zip(memory_ids, embedded, strict=True):
        insert_vectors(transaction, memory_id, fingerprint, one)


def queue(transaction: Transaction, memory: Memory, task: str, seq: int) -> None:
    """Leave a task for the applier, of a memory that has none of this kind."""
    row = {
        "memory_id": memory.memory_id,
        "task": task,
        "seq": seq,
        "shard": shard_of(*memory.partition.scope),
        "state": "pending",
        "attempts": 0,
        "retry_at": 0,
        "error": None,
    }
    transaction.insert(outbox, [row])
