"""A partition as the ledger has it, read in one snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, and_, func, or_, select

from models.scope import Partition
from stores.changes import Edge
from stores.records import Records
from stores.rows import held, plain_rows, select_of_one_partition, shown
from stores.schema import edges, memories, tokens, vectors
from stores.words import ANALYZER, analyze


@dataclass(frozen=True, slots=True, eq=False)
class StoredPartition:
    """A partition as one consistent snapshot of the ledger. Row i of every column is one memory, in the
    order of `seq`; `terms` has the terms of each joined by newlines; `vectors` (m, dimensions) float32 with
    `owners` (m,) int64: the row of each; `analysed` are the rows whose terms were worked out anew."""

    memories: Records
    terms: list[str]
    vectors: NDArray[np.float32]
    owners: NDArray[np.int64]
    edges: list[Edge]
    analysed: Sequence[int] = ()


def load_partition(
    connection: Connection, partition: Partition, fingerprint: str | None, at: int | None = None
) -> StoredPartition:
    """All that is resident of a partition, vectors of one fingerprint only; as it is, or as it was after
    event `at`. The connection is in a read transaction."""
    records, terms, analysed = _load_memories(connection, partition, at)
    owners, matrix = _load_vectors(connection, partition, fingerprint, records.column("seq"))
    links = _load_edges(connection, partition, records.column("memory_id"), at)
    return StoredPartition(records, terms, matrix, owners, links, analysed)


def _of(partition: Partition) -> Any:
    return and_(
        memories.c.product == partition.product,
        memories.c.agent == partition.agent,
        memories.c.user == partition.user,
    )


def _load_memories(
    connection: Connection, partition: Partition, at: int | None
) -> tuple[Records, list[str], list[int]]:
    """The records, the terms of each, and which of them an older analyzer wrote: these are analysed again
    here rather than matched by other rules."""
    analysed = (tokens.c.memory_id == memories.c.memory_id) & (tokens.c.analyzer == ANALYZER)
    query = (
        select_of_one_partition(at)
        .add_columns(tokens.c.terms)
        .outerjoin(tokens, analysed)
        .where(_of(partition), shown(at))
        .order_by(memories.c.seq)
    )
    rows = plain_rows(connection, query)
    *columns, found = zip(*rows, strict=True) if rows else [()] * len(query.selected_columns)
    records = Records.read(partition, columns)
    terms = list(found)
    anew = [row for row, stored in enumerate(terms) if stored is None]
    for row in anew:
        terms[row] = "\n".join(analyze(records[row].content, records[row].actor))
    return records, terms, anew


def _load_vectors(
    connection: Connection, partition: Partition, fingerprint: str | None, seqs: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The row of each vector and the vectors, of the rows with these numbers of their events, ascending; the
    chunks of a memory in order."""
    query = (
        select(memories.c.seq, vectors.c.chunk, vectors.c.vector)
        .join(memories, memories.c.memory_id == vectors.c.memory_id)
        .where(_of(partition), vectors.c.fingerprint == fingerprint)
        .order_by(memories.c.seq)  # and chunk: but with that SQLite would sort the blobs
    )
    found = plain_rows(connection, query)
    if not found or not seqs:
        return np.empty(0, np.int64), np.empty((0, 0), np.float32)
    of, chunks, blobs = (list(column) for column in zip(*found, strict=True))
    written = np.array(seqs, np.int64)
    owners = np.searchsorted(written, of).clip(max=len(written) - 1)
    order = np.lexsort((chunks, of))
    order = order[written[owners[order]] == np.array(of)[order]]  # without what is hidden
    joined = np.frombuffer(b"".join([blobs[place] for place in order.tolist()]), "<f4")
    return owners[order], joined.reshape(len(order), -1) if len(order) else joined.reshape(0, 0)


def _load_edges(
    connection: Connection, partition: Partition, ids: Sequence[str], at: int | None
) -> list[Edge]:
    """Edges that hold, or held after event `at`, and touch a memory of the partition at either end."""
    query = select(edges.c.from_id, edges.c.type, edges.c.to_id, edges.c.weight).where(held(edges, at))
    some = select(edges.c.from_id).limit(len(ids) + 1).subquery()
    if connection.execute(select(func.count()).select_from(some)).scalar_one() <= len(ids):
        # So few in all are read faster than those of each memory are looked for.
        own = set(ids)
        return [Edge(*row) for row in plain_rows(connection, query) if row[0] in own or row[2] in own]
    mine = select(memories.c.memory_id).where(_of(partition))
    query = query.where(or_(edges.c.from_id.in_(mine), edges.c.to_id.in_(mine)))
    return [Edge(*row) for row in plain_rows(connection, query)]
