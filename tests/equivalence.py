"""The check that ledger ≡ graph ≡ vdb: whatever the ledger holds, the projections show the same."""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
from sqlalchemy import select

from models.memory import Memory, State
from models.scope import Partition, Scope
from service.brain import Brain
from stores.audit_checks import audit
from stores.loading import StoredPartition
from stores.resident import ResidentPartition
from stores.schema import memories, outbox
from stores.vdb import shard_of
from stores.vdb_rows import record_from


async def check(brain: Brain) -> None:
    """Compare everything in the ledger with memory, as it is and as it would be loaded, and with Chroma; and
    verify the audit log.
    What still waits in the outbox may be missing or older there, and nothing else may. The brain must be at
    rest: no write under way, no embedding either."""
    with brain.ledger.snapshot() as connection:
        assert list(audit(connection)) == []
    ids, behind = _in_ledger(brain)
    found = {memory_id: brain.ledger.find(memory_id) for memory_id in ids}
    _check_chains([memory for memory in found.values() if memory is not None])
    records = {memory_id: memory for memory_id, memory in found.items() if memory and not memory.hidden}
    assert len(found) == len(ids)
    for partition in sorted({memory.partition for memory in records.values()}):
        await _check_resident(brain, partition, records)
    await _check_vdb(brain, records, behind, {m.partition.scope for m in found.values() if m is not None})


def _check_chains(every: list[Memory]) -> None:
    """Both ends of a link of a chain say the same, nobody has two successors, a chain ends at one head, and
    only that may be active. What was purged is no more than a name at the end of a chain."""
    purged = {memory.memory_id for memory in every if memory.state.status == "purged"}
    alive = {memory.memory_id: memory for memory in every if memory.memory_id not in purged}
    for memory_id, memory in alive.items():
        newer = memory.state.superseded_by
        assert len(newer) <= 1
        assert memory.state.status != ("active" if newer else "superseded")
        assert all(id in purged or memory_id in alive[id].state.supersedes for id in newer)
        assert all(memory_id in alive[id].state.superseded_by for id in memory.state.supersedes)
        passed = {memory_id}
        while newer and newer[0] in alive:
            assert newer[0] not in passed, "a chain goes in a circle"
            passed.add(newer[0])
            newer = alive[newer[0]].state.superseded_by
    for memory in every:
        if memory.memory_id in purged:
            assert (memory.content, memory.state) == ("", State(status="purged"))


def _in_ledger(brain: Brain) -> tuple[list[str], set[str]]:
    """Every id, in the order of writing, and those that Chroma need not have yet."""
    with brain.ledger.snapshot() as connection:
        ids = list(connection.scalars(select(memories.c.memory_id).order_by(memories.c.seq)))
        return ids, set(connection.scalars(select(outbox.c.memory_id)))


async def _check_resident(brain: Brain, partition: Partition, records: dict[str, Memory]) -> None:
    stored = brain.ledger.load(partition, brain.meaning.stored)
    expected = {id: memory for id, memory in records.items() if memory.partition == partition}
    assert {memory.memory_id: memory for memory in stored.memories} == expected
    resident = await brain.residents.load(partition)
    assert {id: brain.residents.memory(id) for id in resident.memory_ids()} == expected
    fresh = ResidentPartition(partition, stored)
    assert _described(resident, stored, records) == _described(fresh, stored, records)
    assert fresh.actors == resident.actors
    _check_sessions(resident, expected)


def _described(
    resident: ResidentPartition, stored: StoredPartition, visible: dict[str, Memory]
) -> dict[str, Any]:
    """Everything that a search or a walk would see of each memory, whatever the numbers of the rows. A walk
    passes by what is hidden, so a link to it may be there or not."""
    terms = sorted({term for each in stored.terms for term in each.split("\n")})
    snapshot = resident.snapshot(terms)
    alive = set(resident.memory_ids())
    words: dict[int, dict[str, int]] = {}
    for term, postings in snapshot.postings.items():
        for row, count in postings.tolist():
            words.setdefault(row, {})[term] = count
    chunks: dict[int, list[bytes]] = {}
    for owner, vector in zip(snapshot.owners.tolist(), snapshot.vectors, strict=True):
        chunks.setdefault(owner, []).append(np.ascontiguousarray(vector).tobytes())
    described = {}
    for row, memory in enumerate(snapshot.rows):
        if memory.memory_id in alive:
            previous, newer = int(snapshot.previous[row]), int(snapshot.newer[row])
            described[memory.memory_id] = (
                memory,
                snapshot.rows[previous].memory_id if previous >= 0 else None,
                snapshot.rows[newer].memory_id if newer >= 0 else None,
                words.get(row, {}),
                chunks.get(row, []),
                float(snapshot.lengths[row]),
                (int(snapshot.statuses[row]), int(snapshot.layers[row]), int(snapshot.kinds[row])),
                resident.graph.neighbours(memory),
                Counter(
                    edge
                    for edge in resident.graph.edges(memory.memory_id)
                    if edge.type in ("in_session", "asserts") or {edge.from_id, edge.to_id} <= visible.keys()
                ),
            )
    assert len(described) == len(alive)
    return described


def _check_sessions(resident: ResidentPartition, records: dict[str, Memory]) -> None:
    sessions: dict[str, list[Memory]] = {}
    for memory in records.values():
        if memory.session_key is not None and memory.session_position is not None:
            sessions.setdefault(memory.session_key, []).append(memory)
    for turns in sessions.values():
        turns.sort(key=lambda memory: memory.session_position or 0)
        ids = [memory.memory_id for memory in turns]
        around = zip([None, *ids], [*ids[1:], None], strict=False)
        assert [resident.graph.neighbours(memory) for memory in turns] == list(around)
        follows = {
            edge.from_id: edge.to_id
            for memory_id in ids
            for edge in resident.graph.edges(memory_id)
            if edge.type == "next"
        }
        assert follows == dict(pairwise(ids))


async def _check_vdb(brain: Brain, records: dict[str, Memory], behind: set[str], scopes: set[Scope]) -> None:
    shards = {brain.shards.name(shard_of(*scope)) for scope in scopes}
    held: dict[str, int] = {}
    for shard in shards:
        held |= await brain.vdb.stored(shard)
    assert held.keys() <= records.keys() | behind, "Chroma holds what the ledger does not"
    for memory_id, memory in records.items():
        if memory_id in behind:
            continue
        shard = brain.shards.name(shard_of(*memory.partition.scope))
        record = await brain.vdb.get(shard, memory_id)
        assert record is not None, f"{memory_id} is missing in Chroma"
        assert (record_from(record), held[memory_id]) == (memory, memory.version)
