"""The use cases of trust: open conflicts, their resolution, feedback."""

import asyncio
from typing import Any

from models.answers import Reply
from models.scope import Caller
from models.trust_requests import GiveFeedback, ListConflicts, ResolveConflict
from models.verdict import REASONS, proposal
from service.brain import Brain
from service.cursors import cursor_of, read_cursor
from service.fields import memory_fields
from service.once import once, replayed, shown
from stores import hearing, resolution
from stores.acts import Act
from stores.resolution import Conflict
from stores.writer import Transaction

_MARK = "conflicts"  # of their cursors


async def page(brain: Brain, caller: Caller, request: ListConflicts) -> Reply:
    """The open conflicts of the caller, newest first."""
    [before] = read_cursor(request.cursor, _MARK, (int,)) or [None]
    found, total = await asyncio.to_thread(
        resolution.open_conflicts, brain.ledger, caller, before, request.limit + 1
    )
    page = found[: request.limit]
    now = brain.clock()
    body = {
        "conflicts": [_fields(one, now) for one in page],
        "next_cursor": cursor_of(_MARK, page[-1].seq) if len(found) > request.limit else None,
        "total": total,
    }
    return Reply(body)


async def resolve(brain: Brain, caller: Caller, request: ResolveConflict) -> Reply:
    """Close a conflict: one side is current since, or both stand."""
    act = Act(caller, "brain_conflict_resolve", brain.meaning.fingerprint(), request.reason)

    def write(transaction: Transaction) -> dict[str, Any]:
        sides = resolution.resolve(act, transaction, request.conflict_id, request.adopted, request.reason)
        return {"sides": list(sides)}

    done, again = await once(brain, caller, act.operation, request, write)
    now = brain.clock()
    sides = [memory_fields(memory, "graph", now) for memory in brain.current(done["sides"])]
    body = {"conflict_id": request.conflict_id, "adopted": request.adopted, "sides": sides}
    return Reply(body | replayed(again))


async def feedback(brain: Brain, caller: Caller, request: GiveFeedback) -> Reply:
    """Hear what the caller says of a memory."""
    act = Act(caller, "brain_memory_feedback", brain.meaning.fingerprint(), request.note)

    def write(transaction: Transaction) -> dict[str, Any]:
        memory = act.find(transaction, request.memory_id, request.expected_version)
        return {"changed": hearing.hear(act, transaction, memory, request.verdict)}

    done, again = await once(brain, caller, act.operation, request, write)
    return Reply({"memory": shown(brain, request.memory_id), "changed": done["changed"]} | replayed(again))


def _fields(conflict: Conflict, now: int) -> dict[str, Any]:
    best, because = proposal(conflict.one, conflict.other)
    return {
        "conflict_id": conflict.conflict_id,
        "rule": conflict.rule,
        "because": REASONS[conflict.rule],
        "reason": conflict.reason,
        "opened_at": conflict.opened_at,
        "sides": [memory_fields(side, "graph", now) for side in (conflict.one, conflict.other)],
        "proposal": {"adopt": best.memory_id, "because": because},
    }
