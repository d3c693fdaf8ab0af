"""What a read by id shows besides the memory, when it is asked for."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from models.memory import Memory
from models.scope import Caller
from models.verdict import proposal
from service.brain import Brain
from service.fields import link_fields, memory_details
from service.moment import Present
from stores import chronicle, resolution


async def included(
    brain: Brain, caller: Caller, memory: Memory, keys: Collection[str], now: int
) -> dict[str, Any]:
    """The keys that were asked for. Details are of the memory as it is given, the others as they stand now.
    Raises StoreUnavailable."""
    body: dict[str, Any] = {}
    if "details" in keys:
        body["details"] = memory_details(memory, now)
    for key, shown in _SHOWN.items():
        if key in keys:
            body[key] = await asyncio.to_thread(partial(shown, brain, caller, memory))
    if "links" in keys:
        graph = await Present(brain, caller).graph(memory.partition)
        body["links"] = [link_fields(edge) for edge in graph.edges(memory.memory_id)]
    return body


def _chain(brain: Brain, caller: Caller, memory: Memory) -> list[dict[str, Any]]:
    chain, _ = chronicle.chain(brain.ledger, caller, memory.memory_id)
    return [
        {
            "memory_id": one.memory_id,
            "status": one.state.status,
            "memory_at": one.memory_at,
            "gmt_created": one.gmt_created,
        }
        for one in chain
    ]


def _evidence(brain: Brain, caller: Caller, memory: Memory) -> list[dict[str, Any]]:
    ids = list(memory.state.evidence_ids)
    if memory.source_raw_memory_id is not None:
        ids.append(memory.source_raw_memory_id)
    found = brain.ledger.find_all(list(dict.fromkeys(ids)))
    counted = {one.memory_id for one in memory.state.standing.agreements}
    return [
        {
            "memory_id": id,
            "status": one.state.status,
            "source_authority": one.source_authority,
            "counted": id in counted,
        }
        for id in dict.fromkeys(ids)
        if (one := found.get(id)) is not None and caller.reaches(one.partition)
    ]


def _conflicts(brain: Brain, caller: Caller, memory: Memory) -> list[dict[str, Any]]:
    rows = resolution.conflicts_of(brain.ledger, memory.state.standing.conflicts)
    against = {row.conflict_id: row.b_id if row.a_id == memory.memory_id else row.a_id for row in rows}
    others = brain.ledger.find_all(list(against.values()))
    return [
        {
            "conflict_id": row.conflict_id,
            "against": against[row.conflict_id],
            "rule": row.rule,
            "opened_at": row.opened_at,
            "adopt": proposal(memory, others[against[row.conflict_id]])[0].memory_id,
        }
        for row in rows
        if against[row.conflict_id] in others
    ]


_SHOWN: dict[str, Callable[[Brain, Caller, Memory], list[dict[str, Any]]]] = {
    "chain": _chain,
    "evidence": _evidence,
    "conflicts": _conflicts,
}
