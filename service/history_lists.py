"""The use cases of the history view that only ask: where a memory comes from, what is due, frames, the
timeline. None of them writes anything."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from models.answers import Reply
from models.folding import frame_key
from models.history_clock import DAY_MS
from models.history_requests import (
    DueForConsolidation,
    DueForReview,
    GetProvenance,
    ListFrames,
    Timeline,
)
from models.history_times import epoch_ms, shown
from models.layers import KINDS, STATUSES
from models.memory import Memory
from models.scope import Caller
from models.sources import key_of, weigh
from models.trust_requests import ListConflicts
from service import conflicts, consolidation
from service.brain import Brain
from service.cursors import cursor_of, mark_of, read_cursor
from service.history_fields import history_fields
from stores import resolution
from stores.columns import NO_TIME
from stores.lineage import kin_of
from stores.resident import Snapshot

_ACTIVE = STATUSES.index("active")
_CURATED = KINDS.index("memory")


async def provenance(brain: Brain, caller: Caller, request: GetProvenance) -> Reply:
    """Where a memory comes from and who agrees, each counted or not and why."""
    memory, _ = await brain.read(caller, request.id)
    body = await asyncio.to_thread(_provenance, brain, caller, memory)
    return Reply(body)


def _provenance(brain: Brain, caller: Caller, memory: Memory) -> dict[str, Any]:
    state, given = memory.state, memory.state.provenance
    counted = [one for one in state.standing.agreements if one.memory_id is not None]
    ids = dict.fromkeys((*state.evidence_ids, *(one.memory_id or "" for one in counted)))
    found = brain.ledger.find_all(list(ids))
    heard = [one for one in found.values() if one.state.status == "active"]
    with brain.ledger.snapshot() as connection:
        kin = kin_of(connection, memory, [one.memory_id for one in heard])
    disputes = resolution.conflicts_of(brain.ledger, list(state.standing.conflicts))
    against = {id for row in disputes for id in (row.a_id, row.b_id)}
    weighed = weigh(memory, heard, kin, against)
    why = {one.agreement.memory_id or "": one.why for one in weighed}
    by_memory = [
        _by_memory(found[id], why.get(id), caller) for id in ids if id in found and not _purged(found[id])
    ]
    by_label = [
        {
            "memory_id": None,
            "source": label.source,
            "origin_id": label.origin_id,
            "at": shown(label.at),
            "counted": one.why == "independent",
            "why": one.why,
        }
        for label, one in zip(state.standing.labels, weighed[len(heard) :], strict=True)
    ]
    return {
        "id": memory.memory_id,
        "memory_id": memory.memory_id,
        "tier": given.tier,
        "source": given.source,
        "origin_id": memory.origin_id,
        "source_known": key_of(memory) is not None,
        "material_type": given.material_type,
        "capture_context": given.capture_context,
        "event_at_as_written": given.event_at,
        "independent": len(state.standing.agreements),
        "corroborations": by_memory + by_label,
        "independence_verified": False,
        "security_sensitive": given.security_sensitive,
        "may_be_pinned": not given.security_sensitive or bool(state.standing.agreements),
    }


def _purged(memory: Memory) -> bool:
    return memory.state.status == "purged"


def _by_memory(other: Memory, why: str | None, caller: Caller) -> dict[str, Any]:
    readable = not other.hidden and caller.reaches(other.partition)
    source = other.state.provenance.source or other.actor
    return {
        "memory_id": other.memory_id,
        "source": source if readable else None,
        "origin_id": other.origin_id if readable else None,
        "at": None,
        "counted": why == "independent",
        "why": why,
    }


async def due_for_review(brain: Brain, caller: Caller, request: DueForReview) -> Reply:
    """What is to be looked at again, the most overdue first."""
    now = brain.clock()
    before = now + request.days * DAY_MS

    def due(rows: Snapshot) -> Any:
        return (rows.reviews != NO_TIME) & (rows.reviews <= before)

    found = await _active(brain, caller, due)
    found.sort(key=lambda one: (one.state.provenance.review_due_at or 0, one.seq))
    page = [history_fields(memory, now) for memory in found[: request.limit]]
    return Reply({"memories": page, "total": len(found)})


async def due_for_consolidation(brain: Brain, caller: Caller, request: DueForConsolidation) -> Reply:
    """Working memories, the oldest first, with those that belong together named as groups. Turns of a
    conversation are summed up, not promoted."""
    now = brain.clock()
    found: list[tuple[Memory, int | None]] = []
    groups = 0
    for partition in await brain.reach(caller):
        rows = partition.snapshot(())
        waiting = (rows.statuses == _ACTIVE) & (rows.consolidated == 0) & (rows.kinds == _CURATED)
        waiting &= rows.created <= now - request.days * DAY_MS
        queue = np.flatnonzero(waiting).tolist()  # in the order of writing
        related = await asyncio.to_thread(consolidation.topics, rows, queue[: consolidation.CONSIDERED], ())
        group_of: dict[str, int] = {}
        for group in related:
            if len(group.members) > 1:
                groups += 1
                group_of |= dict.fromkeys((memory.memory_id for memory in group.members), groups)
        members = [rows.rows[row] for row in queue]
        found += [(memory, group_of.get(memory.memory_id)) for memory in members]
    found.sort(key=lambda one: one[0].seq)
    page = [{**history_fields(memory, now), "group": group} for memory, group in found[: request.limit]]
    return Reply({"memories": page, "total": len(found)})


async def list_conflicts(brain: Brain, caller: Caller, request: ListConflicts) -> Reply:
    """The open conflicts: the very list of the brain view."""
    return await conflicts.page(brain, caller, request)


async def list_frames(brain: Brain, caller: Caller, request: ListFrames) -> Reply:
    """The frames that memories hold in, each as it was first spelled."""
    found = await _active(brain, caller, lambda rows: np.ones(len(rows.rows), np.bool_))
    counts: dict[str | None, int] = {}
    spelled: dict[str | None, str | None] = {}
    for memory in sorted(found, key=lambda one: one.seq):
        key = memory.state.frame_key
        counts[key] = counts.get(key, 0) + 1
        spelled.setdefault(key, memory.state.frame)
    ranked = sorted(counts, key=lambda key: (-counts[key], key is not None, key or ""))
    page = [{"frame": spelled[key], "memories": counts[key]} for key in ranked[: request.limit]]
    return Reply({"frames": page, "total": len(counts)})


async def timeline(brain: Brain, caller: Caller, request: Timeline) -> Reply:
    """Memories by the time of their event; those of unknown time follow, and are left out of a span."""
    now = brain.clock()
    since, until = (None if text is None else epoch_ms(text) for text in (request.since, request.until))
    found = await _active(brain, caller, lambda rows: np.ones(len(rows.rows), np.bool_))
    wanted = [one for one in found if _is_wanted(one, request)]
    unknown = [one for one in wanted if one.memory_at is None]
    known = [one for one in wanted if _within(one.memory_at, since, until)]
    listed = known if since is not None or until is not None else known + unknown
    listed.sort(key=_place)
    mark = mark_of((request.frame, request.session_id, since, until, caller.user))
    after = read_cursor(request.cursor, mark, (bool, int, int))
    left = listed if after is None else [one for one in listed if _place(one) > tuple(after)]
    page = left[: request.limit]
    body = {
        "memories": [history_fields(memory, now) for memory in page],
        "next_cursor": cursor_of(mark, *_place(page[-1])) if len(left) > len(page) else None,
        "total": len(listed),
        "unknown": len(unknown),
    }
    return Reply(body)


def _is_wanted(memory: Memory, request: Timeline) -> bool:
    frame = None if request.frame is None else memory.state.frame_key
    return frame == _key(request.frame) and request.session_id in (None, memory.session_id)


def _key(frame: str | None) -> str | None:
    return None if frame is None else frame_key(frame)


def _within(at: int | None, since: int | None, until: int | None) -> bool:
    return at is not None and (since is None or at >= since) and (until is None or at <= until)


def _place(memory: Memory) -> tuple[bool, int, int]:
    """Orders the timeline: by the event, what has no time last, then by the order of writing."""
    return memory.memory_at is None, memory.memory_at or 0, memory.seq


async def _active(brain: Brain, caller: Caller, among: Callable[[Snapshot], Any]) -> list[Memory]:
    """The active memories among some rows, in the order of writing inside each partition."""
    snapshots = [partition.snapshot(()) for partition in await brain.reach(caller)]
    return await asyncio.to_thread(_picked, snapshots, among)


def _picked(snapshots: Sequence[Snapshot], among: Callable[[Snapshot], Any]) -> list[Memory]:
    return [
        rows.rows[row]
        for rows in snapshots
        for row in np.flatnonzero(among(rows) & (rows.statuses == _ACTIVE)).tolist()
    ]
