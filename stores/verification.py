"""Whether a generation that has been filled may serve: asked before the switch, of the real directories."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from models.scope import Scope
from stores.changes import Floats
from stores.chroma_check import unreached
from stores.embedding_run import EmbeddingRun, sample
from stores.generations import Generation
from stores.ledger import Ledger
from stores.reach import without_copies
from stores.vdb import WRITE_S, Vdb, VdbUnavailable, scope_key, shard_of
from stores.vdb_rows import held

TOGETHER = 200  # memories asked for in one call
NEAR, FAR = 3, 100  # rows among which a memory must find itself: at first, and before it counts as lost
TOLERATED = 0.001  # of a shard's memories that may stay unreachable in Chroma's index; one always may
SAMPLE = 32  # memories whose text is embedded again
COMPARED = 16  # memories whose neighbours are compared
SAME = 0.999  # cosine of a stored vector with the same text embedded again
NEIGHBOURS = 10


class VerificationFailed(Exception):
    """The new generation is not what the ledger says. The text names what differs and the next move."""


@dataclass(frozen=True, slots=True)
class Findings:
    """`memories` were looked for by their own vectors; `unreached` are those that Chroma has and never finds
    (exact search does). `lowest_cosine`: of a sample embedded again, None when no model
    took part; `overlap`: the mean share of the sample's old ten neighbours that are still among the ten."""

    memories: int = 0
    unreached: list[str] = field(default_factory=list)
    lowest_cosine: float | None = None
    overlap: float | None = None


async def verify(
    ledger: Ledger,
    vdb: Vdb,
    fingerprint: str,
    directories: Mapping[int, str],
    placed: Mapping[int, Mapping[str, int]],
    before: Generation,
    run: EmbeddingRun | None,
    told: Callable[[int], None] = lambda done: None,
) -> Findings:
    """Raises VerificationFailed, or VdbUnavailable when Chroma does not answer."""
    count = 0
    lost: list[str] = []
    for shard, directory in directories.items():
        if await vdb.stored(directory) != placed[shard]:
            raise VerificationFailed(f"{directory} does not hold what was put into it. Run it again.")
        missed = await _lost(ledger, vdb, directory, list(placed[shard]), fingerprint)
        if len(missed) > max(1, TOLERATED * len(placed[shard])):
            raise VerificationFailed(
                f"{len(missed)} of {len(placed[shard])} memories in {directory} are not found by their own "
                "vectors. Run it again."
            )
        lost += missed
        count += len(placed[shard])
        told(count)
    chosen = list(sample([id for ids in placed.values() for id in ids], SAMPLE))
    lowest = None if run is None else await _embedded_again(ledger, run, chosen, fingerprint)
    overlap = await _overlap(ledger, vdb, list(sample(chosen, COMPARED)), fingerprint, directories, before)
    return Findings(count, lost, lowest, overlap)


async def _lost(ledger: Ledger, vdb: Vdb, directory: str, ids: list[str], fingerprint: str) -> list[str]:
    """Those that do not find themselves, although they were put once more when they did not at first."""
    missed: list[str] = []
    for start in range(0, len(ids), TOGETHER):
        missed += await _missed(ledger, vdb, directory, ids[start : start + TOGETHER], fingerprint, NEAR)
    missed = await _missed(ledger, vdb, directory, missed, fingerprint, FAR)
    if missed:
        rows, _ = await asyncio.to_thread(held, ledger, missed, fingerprint)
        await vdb.put(directory, rows)
        missed = await _missed(ledger, vdb, directory, missed, fingerprint, FAR)
    return await without_copies(ledger, missed, len(ids))


async def _missed(
    ledger: Ledger, vdb: Vdb, directory: str, ids: list[str], fingerprint: str, k: int
) -> list[str]:
    if not ids:
        return []
    stored = await asyncio.to_thread(ledger.document_vectors, ids, fingerprint)
    asked = list(stored)  # what was purged a moment ago has none
    if not asked:
        return []
    packed = np.stack([stored[id][0] for id in asked]).astype(np.float32).tobytes()
    return await vdb.ask(directory, WRITE_S, unreached, asked, packed, k)


async def _embedded_again(
    ledger: Ledger, run: EmbeddingRun, ids: list[str], fingerprint: str
) -> float | None:
    """The lowest cosine of a stored vector with a fresh one of the same text."""
    found = await asyncio.to_thread(ledger.find_all, ids)
    stored = await asyncio.to_thread(ledger.document_vectors, ids, fingerprint)
    fresh = await run.vectors({id: memory.content for id, memory in found.items() if id in stored})
    lowest = None
    for id, made in fresh.items():
        if made.vectors.shape != stored[id].shape:
            raise VerificationFailed(
                f"Memory {id} has vectors of shape {stored[id].shape}, not {made.vectors.shape}."
            )
        cosine = float((made.vectors * stored[id]).sum(axis=1).min())
        lowest = cosine if lowest is None else min(lowest, cosine)
    if lowest is not None and not lowest >= SAME:
        raise VerificationFailed(
            f"A text embedded again differs from what is stored: cosine {lowest:.4f}. Run `brain rebuild` "
            "without --only-missing and --from-vectors."
        )
    return lowest


async def _overlap(
    ledger: Ledger,
    vdb: Vdb,
    ids: list[str],
    fingerprint: str,
    directories: Mapping[int, str],
    before: Generation,
) -> float | None:
    """None when the old directories can't be asked, which may be why there is a rebuild."""
    if before.fingerprint is None:
        return None
    found = await asyncio.to_thread(ledger.find_all, ids)
    new = await asyncio.to_thread(ledger.document_vectors, ids, fingerprint)
    old = await asyncio.to_thread(ledger.document_vectors, ids, before.fingerprint)
    shares = []
    for id in [id for id in ids if id in found and id in new and id in old]:
        scope, user = found[id].partition.scope, found[id].partition.user
        shard = shard_of(*scope)
        try:
            now = await _neighbours(vdb, directories[shard], new[id][0], scope, user, id)
            then = await _neighbours(vdb, before.shards[shard], old[id][0], scope, user, id)
        except (VdbUnavailable, KeyError):
            continue
        if then:
            shares.append(len(now & then) / len(then))
    return round(float(np.mean(shares)), 4) if shares else None


async def _neighbours(
    vdb: Vdb, directory: str, vector: Floats, scope: Scope, user: str, own: str
) -> set[str]:
    found = await vdb.query(directory, vector, scope=scope_key(*scope), user=user, k=NEIGHBOURS + 1)
    return set([id for id, _ in found if id != own][:NEIGHBOURS])
