"""Whether a shard of Chroma holds what the ledger says it should, and answers. Chroma runs in its child
process, so that an index that kills whoever opens it kills nobody else."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from models.layers import HIDDEN
from models.memory import Memory
from models.scope import Scope
from stores.chroma_worker import digest
from stores.findings import Finding
from stores.ledger import Ledger
from stores.ledger_checks import stored_fingerprint
from stores.reach import without_copies
from stores.refill import Shards, pointer
from stores.schema import memories, outbox, vectors, versions
from stores.vdb import WRITE_S, Vdb, VdbUnavailable, scope_key
from stores.vdb_rows import record_from, record_of

CHECK = "chroma"
SAMPLE = 16  # stored vectors that are looked for in each shard
CLOSER = 256  # the same, where one of them was not found
TOLERATED = 0.01  # share of them; an index loses one of some thousands by itself (chroma-core/chroma 7758)
SHARDS = 16  # as many as `shard_of` has
AT_ONCE = 500  # records compared at once
LOOKS = 3  # a shard that is filled anew meanwhile is looked at again, so often
_NEAR = 1e-3  # cosine distance of a vector to itself, stored and rounded
_ELSEWHERE = "nothing"  # a shard and a memory that there are not
_MOVE = "Chroma answers for no shard: see the server's log; search and reads go on from the ledger"

Rows = list[tuple[str, int | None, bytes]]


@dataclass(frozen=True, slots=True)
class Expected:
    """What a shard should hold, in one snapshot of the ledger. `name` is the directory that the ledger points
    to; `every` has each memory of the shard's scopes with its version; `rows` those that Chroma should hold,
    with their number of chunks; `behind` are ids with a task in the outbox, which may differ."""

    name: str
    fingerprint: str | None
    every: dict[str, tuple[Scope, int]]
    rows: dict[str, int]
    behind: frozenset[str]

    def settled(self, after: "Expected") -> list[str]:
        """The memories of which nothing was to be done, then and now, and which are the same still."""
        behind = self.behind | after.behind
        return [
            id
            for id, mark in self.every.items()
            if id not in behind and after.every.get(id) == mark and self.rows.get(id) == after.rows.get(id)
        ]


class ShardChecks:
    """Looks at one shard at a time. Lives on the event loop."""

    def __init__(self, ledger: Ledger, vdb: Vdb, shards: Shards):
        self._ledger = ledger
        self._vdb = vdb
        self._shards = shards

    async def find(self, shard: int, *, deep: bool) -> list[Finding]:
        """What is wrong with a shard. Writes go on meanwhile: only what differed before and after the look is
        told. A shard that is about to be filled anew is passed by. `deep` opens its files anew and compares
        each record as well. Raises StoreUnavailable."""
        fault: VdbUnavailable | None = None
        for _ in range(LOOKS):
            before = await asyncio.to_thread(self._expected, shard)
            if shard in self._shards.due() or before.fingerprint is None:
                return []
            if not before.every and not self._shards.directory(shard).is_dir():
                return []
            try:
                found = await self._look(shard, before, deep)
            except VdbUnavailable as error:
                found, fault = await self._blame(shard, before, error), error
                if not found:
                    continue
            after = await asyncio.to_thread(self._expected, shard)
            names = {before.name, after.name, self._shards.name(shard)}
            if len(names) == 1 and before.fingerprint == after.fingerprint:
                return found
        return [] if fault is None else [Finding(CHECK, f"Chroma fails now and then: {fault}", move=_MOVE)]

    async def _look(self, shard: int, before: Expected, deep: bool) -> list[Finding]:
        if before.rows.keys() - before.behind and not self._shards.directory(shard).is_dir():
            return [Finding(CHECK, "a shard's directory is gone", (before.name,), "refill", shard=shard)]
        if deep:  # what a restart would find, rather than what the child has in memory
            await self._vdb.close_shard(before.name)
        rows = await self._vdb.rows(before.name)
        looked, blind = await self._blind(before, SAMPLE)
        if blind:
            looked, blind = await self._blind(before, CLOSER)
        after = await asyncio.to_thread(self._expected, shard)
        found = list(self._differences(shard, before, after, rows))
        if deep and (wrong := await self._other_records(before, after, rows)):
            what = "memories have another record in Chroma than in the ledger"
            found.append(Finding(CHECK, what, tuple(wrong), "index", shard=shard))
        unfound = [id for id in before.settled(after) if id in blind]
        if len(unfound) > looked * TOLERATED:
            what = "a shard's index does not find what it holds"
            found.append(Finding(CHECK, what, (before.name,), "quarantine", shard=shard))
        elif unfound:
            what = "memories are not found by their own vector"
            found.append(Finding(CHECK, what, tuple(unfound), "index", shard=shard))
        return found

    async def _blind(self, before: Expected, most: int) -> tuple[int, set[str]]:
        """How many memories were looked for by their own vector, evenly over the order of writing, and those
        of them that were not found. Equal vectors stand for each other."""
        ids = [id for id in before.rows if id not in before.behind]
        sample = ids[:: max(1, len(ids) // most)][:most]
        fingerprint = before.fingerprint or ""
        try:
            stored = await asyncio.to_thread(self._ledger.document_vectors, sample, fingerprint)
        except ValueError:  # bytes that are no vectors: the ledger's own check names them
            return 0, set()
        blind: set[str] = set()
        for id, chunks in stored.items():
            scope = scope_key(*before.every[id][0])
            hits = await self._vdb.query(before.name, chunks[0], scope=scope, k=1, within=WRITE_S)
            if not hits or hits[0][1] > _NEAR:
                blind.add(id)
        return len(stored), set(await without_copies(self._ledger, blind, len(stored)))

    async def _blame(self, shard: int, before: Expected, fault: VdbUnavailable) -> list[Finding]:
        """Whose fault it is: the shard's when it fails again, although Chroma answers otherwise; Chroma's
        when it doesn't; nobody's when all is well now."""
        try:
            await self._vdb.get(_ELSEWHERE, _ELSEWHERE)
        except VdbUnavailable as outage:
            return [Finding(CHECK, f"Chroma does not answer: {outage}", move=_MOVE)]
        try:
            await self._vdb.rows(before.name)
            await self._blind(before, SAMPLE)
        except VdbUnavailable as again:
            fault = again
        else:
            return []
        with suppress(VdbUnavailable):  # so that the child that died is not held against the other shards
            await self._vdb.get(_ELSEWHERE, _ELSEWHERE)
        what = f"a shard can't be read: {fault}"
        return [Finding(CHECK, what, (before.name,), "quarantine", shard=shard)]

    def _differences(self, shard: int, before: Expected, after: Expected, rows: Rows) -> Iterator[Finding]:
        versions = {row_id: version for row_id, version, _ in rows if version is not None}
        chunks = Counter(row_id.partition("#")[0] for row_id, _, _ in rows)
        wrong: dict[str, list[str]] = {}
        for id in before.settled(after):
            if id not in before.rows:
                fault = "memories are in Chroma that it should not hold" if id in chunks else None
            elif id not in chunks:
                fault = "memories are missing in Chroma"
            else:
                same = versions.get(id) == before.every[id][1] and chunks[id] == before.rows[id]
                fault = None if same else "memories have another version or other chunks in Chroma"
            if fault is not None:
                wrong.setdefault(fault, []).append(id)
        for fault, ids in wrong.items():
            yield Finding(CHECK, fault, tuple(ids), "index", shard=shard)
        strange = sorted(chunks.keys() - after.every.keys())
        if strange:
            what = "rows are in Chroma of memories that the ledger does not have"
            yield Finding(CHECK, what, tuple(strange), "refill", shard=shard)

    async def _other_records(self, before: Expected, after: Expected, rows: Rows) -> list[str]:
        """The memories whose record in Chroma reads as another one. Its text may differ: an earlier release
        may have written the same in other words."""
        told = {row_id: (version, text) for row_id, version, text in rows}
        ids = [
            id
            for id in before.settled(after)
            if id in before.rows and id in told and told[id][0] == before.every[id][1]
        ]
        suspects = await asyncio.to_thread(self._suspects, ids, told)
        wrong: list[str] = []
        for id, memory in suspects.items():
            record = await self._vdb.get(before.name, id, within=WRITE_S)
            if record is not None and record_from(record) != memory:
                wrong.append(id)
        return wrong

    def _suspects(self, ids: list[str], told: dict[str, tuple[int | None, bytes]]) -> dict[str, Memory]:
        found: dict[str, Memory] = {}
        for start in range(0, len(ids), AT_ONCE):
            for id, memory in self._readable(ids[start : start + AT_ONCE]).items():
                if digest(record_of(memory)) != told[id][1]:
                    found[id] = memory
        return found

    def _readable(self, ids: list[str]) -> dict[str, Memory]:
        """Those of the records that can be read: the others are the ledger's own finding."""
        try:
            return self._ledger.find_all(ids)
        except (ValueError, TypeError, KeyError, AttributeError):
            if len(ids) == 1:
                return {}
            half = len(ids) // 2
            return self._readable(ids[:half]) | self._readable(ids[half:])

    def _expected(self, shard: int) -> Expected:
        scopes = self._shards.scopes().get(shard, [])
        with self._ledger.snapshot() as connection:
            fingerprint = stored_fingerprint(connection)
            every: dict[str, tuple[Scope, int]] = {}
            rows: dict[str, int] = {}
            for scope in scopes:
                for id, version, status, chunks in _of_scope(connection, scope, fingerprint):
                    every[id] = (scope, version)
                    if chunks and status not in HIDDEN:
                        rows[id] = chunks
            behind = connection.scalars(select(outbox.c.memory_id).where(outbox.c.shard == shard))
            return Expected(pointer(connection, shard), fingerprint, every, rows, frozenset(behind))


def _of_scope(connection: Connection, scope: Scope, fingerprint: str | None) -> Any:
    """Id, version, status and number of chunks of every memory of a scope, in the order of writing."""
    current = (versions.c.memory_id == memories.c.memory_id) & versions.c.to_seq.is_(None)
    counted = (vectors.c.memory_id == memories.c.memory_id) & (vectors.c.fingerprint == fingerprint)
    return connection.execute(
        select(memories.c.memory_id, versions.c.version, versions.c.status, func.count(vectors.c.chunk))
        .join(versions, current)
        .outerjoin(vectors, counted)
        .where(memories.c.product == scope.product, memories.c.agent == scope.agent)
        .group_by(memories.c.memory_id, versions.c.version, versions.c.status)
        .order_by(memories.c.seq)
    )
