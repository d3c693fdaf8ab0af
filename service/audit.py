"""The audit log: refusals go into it here, and `brain_audit` shows it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from models.answers import Reply
from models.audit_requests import GetAudit
from models.errors import BrainError, StoreUnavailable
from models.scope import Caller
from service.brain import MEMORY_ID, Brain
from service.cursors import cursor_of, mark_of, read_cursor
from service.operation import Operation
from stores import audit_log
from stores.addition import Item, Outcome, Refused
from stores.audit_log import Filter
from stores.writer import Transaction

# What was judged and refused. A call that was not understood, came too often or met a fault was not judged.
JUDGED = frozenset({403, 404, 409, 410, 412})
JUDGED_CODES = frozenset({"evidence_required"})
# Arguments that say which memory is meant.
_NAMING = ("id", "a", "memory_id", "from_id", "supersedes", "memory_ids")


async def record_refusal(
    brain: Brain, operation: Operation[Any], caller: Caller, arguments: Any, refusal: BrainError
) -> None:
    """Put a refused call into the audit log: of what may write, and of all that the caller has no right to. A
    ledger that takes no writes is no reason to answer otherwise."""
    concerned = operation.right != "read" or operation.right not in caller.rights
    if concerned and judged(refusal):
        memory_id = _named(arguments)

        def write(transaction: Transaction) -> None:
            record(transaction, caller, operation.name, memory_id, refusal)

        with suppress(StoreUnavailable):
            await brain.write(write)


def record_items(
    transaction: Transaction,
    caller: Caller,
    action: str,
    items: Sequence[Item | Refused],
    outcomes: Sequence[Outcome | Refused],
) -> None:
    """The refused items of a batch that goes on without them, in the write that stores the others."""
    for item, outcome in zip(items, outcomes, strict=True):
        if isinstance(outcome, Refused) and judged(outcome.error):
            replaced = [] if isinstance(item, Refused) else item.drafts[0].memory.state.supersedes
            record(transaction, caller, action, _named({"supersedes": [*replaced]}), outcome.error)


def record(
    transaction: Transaction, caller: Caller, action: str, memory_id: str | None, refusal: BrainError
) -> None:
    """One refusal: who, what, of which memory, and the error's code."""
    transaction.event(
        action,
        caller.home,
        memory_id,
        key_id=caller.key_id,
        request_id=caller.request_id,
        refused=refusal.code,
    )


def judged(refusal: BrainError) -> bool:
    """Whether a refusal belongs into the log."""
    return refusal.status in JUDGED or refusal.code in JUDGED_CODES


def _named(arguments: Any) -> str | None:
    """The first memory that the arguments name, if that is the id of one: any other text stays out."""
    if isinstance(arguments, dict) and "adopted" in arguments:
        return None  # it is a conflict that is named
    for name in _NAMING:
        value = arguments.get(name) if isinstance(arguments, dict) else None
        first = value[0] if isinstance(value, list) and value else value
        if first is not None:
            return first if isinstance(first, str) and MEMORY_ID.fullmatch(first) else None
    return None


async def page(brain: Brain, caller: Caller, request: GetAudit) -> Reply:
    """A page of the log of the caller's scope, the newest entries first."""
    wanted = Filter(
        caller.scope,
        caller.user,
        whole=caller.user is None and not caller.bound,
        memory_id=request.memory_id,
        action=request.action,
        key_id=request.key_id,
        refused=request.refused,
        since=request.since,
        until=request.until,
    )
    [before] = read_cursor(request.cursor, mark_of(wanted), (int,)) or [None]
    entries = await asyncio.to_thread(audit_log.entries, brain.ledger, wanted, before, request.limit + 1)
    shown = entries[: request.limit]
    body = {
        "entries": [entry.fields() for entry in shown],
        "next_cursor": cursor_of(mark_of(wanted), shown[-1].seq) if len(entries) > len(shown) else None,
        "verified": all(entry.verified for entry in shown),
    }
    return Reply(body)
