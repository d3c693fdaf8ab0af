"""Inserts that several writes share."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, delete, insert

from models.memory import Memory
from stores.changes import Edge, Floats
from stores.schema import edges, outbox, vectors
from stores.vdb import shard_of
from stores.writer import Transaction


def insert_rows(transaction: Transaction, table: Table, rows: list[dict[str, Any]]) -> None:
    """Rows into a table, if there are any."""
    if rows:
        transaction.connection.execute(insert(table), rows)


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
    insert_rows(transaction, edges, rows)


def insert_vectors(transaction: Transaction, memory_id: str, fingerprint: str, matrix: Floats) -> None:
    """Store the vectors (chunks, dimensions) of a memory."""
    rows = [
        {"memory_id": memory_id, "chunk": chunk, "fingerprint": fingerprint, "vector": vector.tobytes()}
        for chunk, vector in enumerate(matrix.astype("<f4", copy=False))
    ]
    insert_rows(transaction, vectors, rows)


def queue(transaction: Transaction, memory: Memory, task: str, seq: int) -> None:
    """Leave a task for the applier. It replaces an older one of the same kind for the memory."""
    transaction.connection.execute(
        delete(outbox).where(outbox.c.memory_id == memory.memory_id, outbox.c.task == task)
    )
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
    insert_rows(transaction, outbox, [row])
