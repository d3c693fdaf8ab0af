"""The use cases that show memories in their context: history, profile, intentions, scopes."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from models.answers import MemoryFields, Reply
from models.authority import rank
from models.errors import MemoryForgotten, MemoryNotFound
from models.layers import LAYERS, STATUSES, Layer, Status
from models.memory import Memory
from models.scope import Caller
from models.view_requests import GetHistory, GetIntentions, GetProfile, ListScopes
from service.brain import Brain
from service.fields import memory_fields
from stores import chronicle
from stores.chronicle import Stood
from stores.expiry import REASON

SOON_MS = 7 * 24 * 3600 * 1000


async def read_as_of(brain: Brain, caller: Caller, memory_id: str, at: int) -> Memory:
    """A memory as it stood at a time, epoch ms. What is hidden now stays hidden. Raises MemoryNotFound,
    MemoryForgotten or StoreUnavailable."""
    memory, _ = await brain.read(caller, memory_id)
    stood = await asyncio.to_thread(chronicle.stood_at, brain.ledger, memory, at)
    if stood is None:
        raise MemoryNotFound(f"There is no memory {memory_id[:64]!r} here.")
    if stood.hidden:
        raise MemoryForgotten(f"Memory {memory_id} was forgotten.")
    return stood


async def history(brain: Brain, caller: Caller, request: GetHistory) -> Reply:
    found = await asyncio.to_thread(chronicle.history, brain.ledger, caller, request.memory_id)
    if found is None:
        raise MemoryNotFound(f"There is no memory {request.memory_id[:64]!r} here.")
    now = brain.clock()
    body = {
        "versions": [_version(one, found.hidden, now) for one in found.versions],
        "events": list(found.events),
        "truncated": found.truncated,
    }
    return Reply(body)


async def profile(brain: Brain, caller: Caller, request: GetProfile) -> Reply:
    lists = await profile_lists(brain, caller)
    now = brain.clock()
    return _cut(lists, request.limit, lambda memory: _profile_entry(memory, now))


async def profile_lists(brain: Brain, caller: Caller) -> dict[str, list[Memory]]:
    """What is known of the user for good, by its sort, each list best first."""
    layers: tuple[Layer, ...] = ("l0_basic_info", "l4_identity", "l6_schema")
    active = await _of(brain, caller, LAYERS, ("active",))
    active.sort(key=lambda m: (rank(m.source_authority), m.state.confidence, m.seq), reverse=True)
    lists = {layer[:2]: [memory for memory in active if memory.layer == layer] for layer in layers}
    lists["pinned"] = [memory for memory in active if memory.state.provenance.pinned_at is not None]
    return lists


async def intentions(brain: Brain, caller: Caller, request: GetIntentions) -> Reply:
    now = brain.clock()
    due_before = now + SOON_MS if request.due_before is None else request.due_before
    found = await _of(brain, caller, ("l7_intention",), ("active", "archived"))
    found.sort(key=lambda memory: (_end(memory), -memory.seq))
    active = [memory for memory in found if memory.state.status == "active" and _end(memory) > now]
    expired = [memory for memory in found if _has_expired(memory, now)]
    lists = {
        "due": [memory for memory in active if _end(memory) <= due_before],
        "active": [memory for memory in active if _end(memory) > due_before],
        "expired": expired[::-1],
    }
    reply = _cut(lists, request.limit, lambda memory: _intention(memory, now))
    reply.body["due_before"] = due_before
    return reply


async def scopes(brain: Brain, caller: Caller, request: ListScopes) -> Reply:
    counted = await asyncio.to_thread(
        chronicle.count_users, brain.ledger, caller.scope, caller.bound, request.limit + 1
    )
    agents: dict[str, dict[str, Any]] = {}
    for agent, user, count in counted[: request.limit]:
        shown = agents.setdefault(agent, {"agent_id": agent, "memories": 0, "users": []})
        shown["memories"] += count
        shown["users"].append({"user_id": user, "memories": count})
    return Reply({"agents": list(agents.values()), "truncated": len(counted) > request.limit})


async def _of(
    brain: Brain, caller: Caller, layers: Iterable[Layer], statuses: Iterable[Status]
) -> list[Memory]:
    """The caller's memories of some layers and statuses."""
    wanted_layers = [LAYERS.index(layer) for layer in layers]
    wanted_statuses = [STATUSES.index(status) for status in statuses]
    found: list[Memory] = []
    for partition in await brain.reach(caller):
        rows = partition.snapshot(())
        wanted = np.isin(rows.layers, wanted_layers) & np.isin(rows.statuses, wanted_statuses)
        found += [rows.rows[row] for row in np.flatnonzero(wanted).tolist()]
    return found


def _cut(lists: dict[str, list[Memory]], limit: int, shown: Callable[[Memory], dict[str, Any]]) -> Reply:
    body: dict[str, Any] = {
        name: [shown(memory) for memory in found[:limit]] for name, found in lists.items()
    }
    body["truncated"] = any(len(found) > limit for found in lists.values())
    return Reply(body)


def _has_expired(memory: Memory, now: int) -> bool:
    """Archived because its time was over, or about to be."""
    if memory.state.status == "active":
        return _end(memory) <= now
    return memory.state.status_reason == REASON


def _end(memory: Memory) -> float:
    """Epoch ms; infinite when there is none."""
    until = memory.state.valid_until
    return float("inf") if until is None else until


def _profile_entry(memory: Memory, now: int) -> dict[str, Any]:
    return {**memory_fields(memory, "graph", now), "conflicts": list(memory.state.standing.conflicts)}


def _intention(memory: Memory, now: int) -> dict[str, Any]:
    return {**memory_fields(memory, "graph", now), "valid_until": memory.state.valid_until}


def _version(stood: Stood, hidden: frozenset[str], now: int) -> dict[str, Any]:
    memory = stood.memory
    # What was inferred then: the clock of a version that has ended stands still.
    fields: MemoryFields = memory_fields(memory, "graph", now if stood.until is None else stood.until)
    if memory.hidden or memory.memory_id in hidden:
        fields |= {"content": "", "tags": [], "custom": {}}
    return {**fields, "version": memory.version, "from": stood.since, "to": stood.until}
