"""Recall: what an agent should have in mind now. Anchors first, then what answers the query; never writes."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PrivateAttr

from models.answers import Reply
from models.authority import rank
from models.classification import classify
from models.folding import fold, frame_key
from models.history_clock import is_due
from models.history_requests import Recall
from models.history_times import shown
from models.layers import KINDS, STATUSES
from models.memory import Memory
from models.observation_view import details_of
from models.requests import SearchMemories
from models.scope import Caller
from service import finding
from service.brain import Brain
from service.history import MAX_ANCHORS
from service.history_fields import history_fields
from service.moment import Present
from service.trust import HISTORY
from stores import resolution
from stores.columns import NO_TIME
from stores.observations import Row, enrich
from stores.resident import Snapshot

SIDE = 20  # of a side list
MAX_FOUND = 100  # as many as a search gives

_ACTIVE, _MESSAGE = STATUSES.index("active"), KINDS.index("message")

Mask = NDArray[np.bool_]


class Recalling(SearchMemories):
    """A search among what is valid now."""

    _now: int = PrivateAttr()
    _frame: str | None = PrivateAttr()

    def valid_at(self) -> int | None:
        return self._now


class RecallingInFrame(Recalling):
    """The same in one frame, and among what holds in none."""

    def admits(self, memory: Memory) -> bool:
        return in_frame(memory, self._frame)


def in_frame(memory: Memory, frame: str | None) -> bool:
    """Whether a memory holds in the frame that is asked for, if one is; what holds in none holds in each."""
    return frame is None or memory.state.frame_key in (None, frame_key(frame))


@dataclass(frozen=True, slots=True)
class View:
    """What a caller may see of some partitions in a frame at a time, epoch ms."""

    snapshots: Sequence[Snapshot]
    frame: str | None
    now: int

    def shows(self, memory: Memory) -> bool:
        """Whether a memory is current, and its frame is asked for, or none, or it has none."""
        state = memory.state
        ends = (state.valid_until, state.provenance.expires_at)
        valid = all(end is None or end > self.now for end in ends)
        begun = state.valid_from is None or state.valid_from <= self.now
        return state.status == "active" and valid and begun and in_frame(memory, self.frame)

    def pick(self, among: Mask, snapshot: Snapshot) -> list[Memory]:
        rows = np.flatnonzero(among & (snapshot.statuses == _ACTIVE)).tolist()
        return [memory for memory in (snapshot.rows[row] for row in rows) if self.shows(memory)]

    def anchors(self) -> list[Memory]:
        """The pinned memories that are not overdue: the most binding first, then the last pinned."""
        pinned = [one for snapshot in self.snapshots for one in self.pick(snapshot.pinned > 0, snapshot)]
        held = [one for one in pinned if not is_due(one.state.provenance, self.now)]
        return sorted(
            held,
            key=lambda one: (rank(one.source_authority), one.state.provenance.pinned_at or 0, one.seq),
            reverse=True,
        )

    def stale(self) -> list[Memory]:
        """What is due for review, the most overdue first."""
        due = []
        for snapshot in self.snapshots:
            over = (snapshot.reviews != NO_TIME) & (snapshot.reviews <= self.now)
            due += self.pick(over, snapshot)
        return sorted(due, key=lambda one: (one.state.provenance.review_due_at or 0, one.seq))

    def newest(self, number: int, but: Collection[str]) -> list[Memory]:
        """The consolidated ones and then the others, each the last captured first; equal texts once."""
        found: list[Memory] = []
        for stage in (1, 0):
            rows = [
                (snapshot.rows, row)
                for snapshot in self.snapshots
                for row in np.flatnonzero(_curated(snapshot) & (snapshot.consolidated == stage)).tolist()
            ]
            # Rows of a partition are in the order of writing; several partitions are merged by it.
            if len(self.snapshots) > 1:
                rows.sort(key=lambda one: one[0][one[1]].seq)
            seen = {_said(memory) for memory in found}
            for held, row in reversed(rows):
                memory = held[row]
                if len(found) >= number:
                    return found
                if memory.memory_id not in but and self.shows(memory) and _said(memory) not in seen:
                    seen.add(_said(memory))
                    found.append(memory)
        return found


def _curated(snapshot: Snapshot) -> Mask:
    """What is no turn of a conversation: those are found by asking, not by being new."""
    curated: Mask = (snapshot.statuses == _ACTIVE) & (snapshot.kinds != _MESSAGE)
    return curated


def _said(memory: Memory) -> object:
    """Equal for what says the same, as in a search."""
    return fold(memory.content), memory.partition


async def recall(brain: Brain, caller: Caller, request: Recall) -> Reply:
    at = Present(brain, caller)
    search, degraded = None, None
    if request.query is not None:
        search, degraded = await _search(brain, at, request)
    snapshots = [partition.snapshot(()) for partition in await at.partitions()]
    view = View(snapshots, request.frame, at.now)
    anchors, stale = view.anchors(), view.stale()
    shown_anchors = anchors[:MAX_ANCHORS]
    named = {memory.memory_id for memory in shown_anchors}
    if search is None:
        best: list[tuple[Memory, float | None]] = [
            (memory, None) for memory in view.newest(request.limit, named)
        ]
    else:
        # What was forgotten since it was found, or holds elsewhere, is not shown.
        best = [(now, score) for one, score in search if (now := at.memory(one)) and view.shows(now)]
    out = await _ineligible(brain, caller, [memory for memory, _ in best], at.now)
    best = [one for one in best if one[0].memory_id not in out]
    rest = [one for one in best if one[0].memory_id not in named][: request.limit]
    disputes, disputed = await _disputes(brain, caller, [*shown_anchors, *(memory for memory, _ in rest)])
    body: dict[str, Any] = {
        "anchors": [history_fields(memory, at.now) for memory in shown_anchors],
        "memories": [{**history_fields(memory, at.now), "score": score} for memory, score in rest],
        "stale_interpretations": [_stale(memory) for memory in stale[:SIDE]],
        "conflicts": disputes,
        "totals": {
            "anchors": len(anchors),
            "stale_interpretations": len(stale),
            "conflicts": disputed,
        },
        "abstained": not best and (search is not None or not anchors),
        "degraded": degraded is not None,
        **({"degraded_reason": degraded} if degraded is not None else {}),
    }
    return Reply(body)


async def _search(brain: Brain, at: Present, request: Recall) -> tuple[list[tuple[str, float]], str | None]:
    """Ids and scores of what answers the query, best first; and what could not take part."""
    assert request.query is not None
    kind = Recalling if request.frame is None else RecallingInFrame
    asked = kind(query=request.query, limit=min(MAX_FOUND, request.limit + MAX_ANCHORS), frame=None)
    asked._now, asked._frame = at.now, request.frame
    found = await finding.find(brain, at, asked, HISTORY)
    return [(hit.memory.memory_id, hit.score) for hit in found.result.hits], found.degraded


async def _ineligible(brain: Brain, caller: Caller, memories: Sequence[Memory], now: int) -> set[str]:
    """Those among the memories saved in the observations view that may not stand as current there."""
    saved = [Row(one, 0) for one in memories if one.kind == "memory" and details_of(one).memory_type]

    def judged() -> set[str]:
        with brain.ledger.snapshot() as connection:
            return {
                one.row.memory.memory_id
                for one in enrich(connection, caller, saved)
                if not classify(one.row.memory, now, one.readable, rival=one.rival).eligible
            }

    return await asyncio.to_thread(judged) if saved else set()


async def _disputes(
    brain: Brain, caller: Caller, memories: Sequence[Memory]
) -> tuple[list[dict[str, Any]], int]:
    """The open conflicts that some memories stand in, by ids only."""
    ids = list(dict.fromkeys(id for memory in memories for id in memory.state.standing.conflicts))
    if not ids:
        return [], 0
    rows = await asyncio.to_thread(resolution.conflicts_of, brain.ledger, sorted(ids, reverse=True)[:SIDE])
    return [
        {
            "id": row.conflict_id,
            "sides": sorted((row.a_id, row.b_id)),
            "rule": row.rule,
            "opened_at": shown(row.opened_at),
        }
        for row in reversed(rows)
    ], len(ids)


def _stale(memory: Memory) -> dict[str, Any]:
    provenance = memory.state.provenance
    return {
        "id": memory.memory_id,
        "content": memory.content,
        "frame": memory.state.frame,
        "tier": provenance.tier,
        "pinned": provenance.pinned_at is not None,
        "review_due_at": shown(provenance.review_due_at),
    }
