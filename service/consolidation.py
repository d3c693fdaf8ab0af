"""The use case that says what is due to be summed up: turns of one session, and memories near in meaning,
that no summary rests on yet. Deterministic; writes nothing."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from models.answers import Reply
from models.context_requests import GetConsolidation
from models.layers import Layer
from models.links import EdgeType
from models.memory import Memory
from models.scope import Caller
from service.brain import Brain
from service.fields import memory_fields
from stores.resident import Snapshot

FULL = 50  # a group of so many is due at once; more make a group of their own
CONSIDERED = 2_000  # memories of a partition that are looked at for topics, the oldest first
NEAR = 0.5  # the cosine to the first memory of a topic from which another belongs to it
MINUTE_MS = 60_000

_SUMMARIES: frozenset[Layer] = frozenset({"l3_summary", "l5_knowledge", "l6_schema"})
_TOPICAL: frozenset[Layer] = frozenset({"l1_raw", "l2_fact", "l3_summary"})
_TYING: frozenset[EdgeType] = frozenset({"related", "updates", "explains", "same_origin"})

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Group:
    """Memories of one partition and frame, the oldest first."""

    reason: Literal["session", "topic"]
    members: Sequence[Memory]

    @property
    def until(self) -> int:
        return self.members[-1].gmt_created

    def is_due(self, request: GetConsolidation, now: int) -> bool:
        full = len(self.members) >= FULL
        quiet = now - self.until >= request.quiet_minutes * MINUTE_MS
        return len(self.members) >= request.min_size and (full or quiet)


async def consolidation(brain: Brain, caller: Caller, request: GetConsolidation) -> Reply:
    now = brain.clock()
    due: list[Group] = []
    more = False
    for partition in await brain.reach(caller):
        snapshot = partition.snapshot(())
        turns, topical = await asyncio.to_thread(_open, snapshot, now)
        more |= len(topical) > CONSIDERED
        topical = topical[:CONSIDERED]
        graph = (await brain.residents.load(partition.key)).graph
        ids = {snapshot.rows[row].memory_id for row in topical}
        ties = [
            (edge.from_id, edge.to_id)
            for memory_id in sorted(ids)
            for edge in graph.edges(memory_id)
            if edge.type in _TYING and edge.from_id == memory_id and edge.to_id in ids
        ]
        groups = [*_sessions(turns), *await asyncio.to_thread(topics, snapshot, topical, ties)]
        due += [group for group in groups if group.is_due(request, now)]
    # Those that have waited longest first; of two that began and ended at once, the first written.
    due.sort(key=lambda group: (group.until, group.members[0].seq))
    body = {
        "groups": [_shown(group, request.detail == "full", now) for group in due[: request.limit]],
        "truncated": more or len(due) > request.limit,
    }
    return Reply(body)


def _open(snapshot: Snapshot, now: int) -> tuple[list[Memory], list[int]]:
    """What no summary rests on yet: the turns of sessions, and the rows of what may share a topic, oldest
    first. What claims authority is not for summing up."""
    active = [(row, memory) for row, memory in enumerate(snapshot.rows) if memory.state.status == "active"]
    active.sort(key=lambda pair: pair[1].seq)
    covered = {
        source
        for _, memory in active
        if memory.layer in _SUMMARIES
        for source in (*memory.state.evidence_ids, memory.source_raw_memory_id)
    }
    free = [
        (row, memory)
        for row, memory in active
        if memory.memory_id not in covered
        and not memory.state.provenance.security_sensitive
        and (memory.state.valid_until is None or memory.state.valid_until > now)
    ]
    turns = [memory for _, memory in free if memory.kind == "message" and memory.session_key is not None]
    topical = [row for row, memory in free if memory.kind != "message" and memory.layer in _TOPICAL]
    return turns, topical


def _sessions(turns: Iterable[Memory]) -> list[Group]:
    """The turns of each session and frame, in runs of FULL."""
    sessions: dict[tuple[str | None, str | None], list[Memory]] = {}
    for turn in turns:
        sessions.setdefault((turn.session_key, turn.state.frame_key), []).append(turn)
    return [Group("session", run) for members in sessions.values() for run in _runs(members)]


def topics(snapshot: Snapshot, rows: Sequence[int], ties: Iterable[tuple[str, str]]) -> list[Group]:
    """Groups of memories of one layer and frame that are near to the first of them, or linked. In the order
    of writing, each joins the nearest topic there is, or begins one."""
    place, cosines = _cosines(snapshot, rows)
    leaders: dict[object, list[int]] = {}
    leader_of = {row: row for row in rows}
    for row in rows:
        if row not in place:
            continue  # it has no vector yet: only links tie it to others
        memory = snapshot.rows[row]
        own = leaders.setdefault((memory.layer, memory.state.frame_key), [])
        near = cosines[place[row], [place[leader] for leader in own]]
        if len(own) and near.max() >= NEAR:
            leader_of[row] = own[int(np.argmax(near))]  # the first of equals
        else:
            own.append(row)
    _join(snapshot, leader_of, ties)
    found: dict[int, list[Memory]] = {}
    for row in rows:
        found.setdefault(leader_of[row], []).append(snapshot.rows[row])
    return [Group("topic", run) for members in found.values() for run in _runs(members)]


def _join(snapshot: Snapshot, leader_of: dict[int, int], ties: Iterable[tuple[str, str]]) -> None:
    """Make one topic of two that a link ties together, in one layer and frame."""
    row_of = {snapshot.rows[row].memory_id: row for row in leader_of}
    for from_id, to_id in ties:
        one, other = leader_of[row_of[from_id]], leader_of[row_of[to_id]]
        first, second = snapshot.rows[one], snapshot.rows[other]
        if one != other and (first.layer, first.state.frame_key) == (second.layer, second.state.frame_key):
            kept, gone = (one, other) if first.seq < second.seq else (other, one)
            for row, leader in leader_of.items():
                if leader == gone:
                    leader_of[row] = kept


def _cosines(snapshot: Snapshot, rows: Sequence[int]) -> tuple[dict[int, int], Vectors]:
    """(k, k) between the beginnings of those rows that have a vector, and the place of each row in it."""
    owners, first = np.unique(snapshot.owners, return_index=True)
    chunk_of = dict(zip(owners.tolist(), first.tolist(), strict=True))
    embedded = [row for row in rows if row in chunk_of]
    vectors = snapshot.vectors[[chunk_of[row] for row in embedded]]
    return {row: at for at, row in enumerate(embedded)}, vectors @ vectors.T


def _runs(members: Sequence[Memory]) -> list[Sequence[Memory]]:
    return [members[start : start + FULL] for start in range(0, len(members), FULL)]


def _shown(group: Group, full: bool, now: int) -> dict[str, Any]:
    first = group.members[0]
    session = group.reason == "session"
    raised = "l3_summary" if session or first.layer == "l1_raw" else "l5_knowledge"
    return {
        "reason": group.reason,
        "suggested_layer": "l6_schema" if first.layer == "l3_summary" else raised,
        "memory_ids": [memory.memory_id for memory in group.members],
        "user_id": first.partition.user,
        "session_id": first.session_id if session else None,
        "frame": first.state.frame,
        "since": first.gmt_created,
        "until": group.until,
        **({"memories": [memory_fields(m, "graph", now) for m in group.members]} if full else {}),
    }
