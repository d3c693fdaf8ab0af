"""A partition as the ledger has it, read in one snapshot."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, and_, or_, select

from models.memory import Memory, State
from models.scope import Partition
from stores.changes import Edge
from stores.rows import held, memory_from, plain_rows, select_memories, shown
from stores.schema import edges, memories, tokens, vectors
from stores.words import ANALYZER, analyze


@dataclass(frozen=True, slots=True, eq=False)
class StoredPartition:
    """A partition as one consistent snapshot of the ledger. Row i of every column is one memory, in the
    order of `seq`; `vectors` (m, dimensions) float32 with `owners` (m,) int64: the row of each."""

    memories: list[Memory]
    terms: list[tuple[str, ...]]
    vectors: NDArray[np.float32]
    owners: NDArray[np.int64]
    edges: list[Edge]


def load_partition(
    connection: Connection, partition: Partition, fingerprint: str | None, at: int | None = None
) -> StoredPartition:
    """All that is resident of a partition, vectors of one fingerprint only; as it is, or as it was after
    event `at`. The connection is in a read transaction."""
    records, terms = _load_memories(connection, partition, at)
    row_of = {memory.memory_id: row for row, memory in enumerate(records)}
    owners, matrix = _load_vectors(connection, partition, fingerprint, row_of)
    return StoredPartition(records, terms, matrix, owners, _load_edges(connection, partition, at))


def _of(partition: Partition) -> Any:
    return and_(
        memories.c.product == partition.product,
        memories.c.agent == partition.agent,
        memories.c.user == partition.user,
    )


def _load_memories(
    connection: Connection, partition: Partition, at: int | None
) -> tuple[list[Memory], list[tuple[str, ...]]]:
    """The records, and the terms of each. A row that an older analyzer wrote is analysed again here rather
    than matched by other rules."""
    analysed = (tokens.c.memory_id == memories.c.memory_id) & (tokens.c.analyzer == ANALYZER)
    query = (
        select_memories(at)
        .add_columns(tokens.c.terms)
        .outerjoin(tokens, analysed)
        .where(_of(partition), shown(at))
        .order_by(memories.c.seq)
    )
    states: dict[str, State] = {}
    records: list[Memory] = []
    terms: list[tuple[str, ...]] = []
    for *row, stored in plain_rows(connection, query):
        memory = memory_from(row, states)
        records.append(memory)
        if stored is None:
            terms.append(analyze(memory.content, memory.actor))
        else:
            terms.append(tuple(stored.split("\n")) if stored else ())
    return records, terms


def _load_vectors(
    connection: Connection, partition: Partition, fingerprint: str | None, row_of: dict[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    query = (
        select(vectors.c.memory_id, vectors.c.vector)
        .join(memories, memories.c.memory_id == vectors.c.memory_id)
        .where(_of(partition), vectors.c.fingerprint == fingerprint)
        .order_by(memories.c.seq, vectors.c.chunk)
    )
    found = [(row_of[id], blob) for id, blob in plain_rows(connection, query) if id in row_of]
    owners = np.fromiter((row for row, _ in found), np.int64, len(found))
    joined = np.frombuffer(b"".join(blob for _, blob in found), "<f4")
    return owners, joined.reshape(len(found), -1) if found else joined.reshape(0, 0)


def _load_edges(connection: Connection, partition: Partition, at: int | None) -> list[Edge]:
    """Edges that hold, or held after event `at`, and touch a memory of the partition at either end."""
    own = select(memories.c.memory_id).where(_of(partition))
    query = select(edges.c.from_id, edges.c.type, edges.c.to_id, edges.c.weight).where(
        held(edges, at), or_(edges.c.from_id.in_(own), edges.c.to_id.in_(own))
    )
    return [Edge(*row) for row in connection.execute(query)]
