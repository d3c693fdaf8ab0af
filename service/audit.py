"""The audit log: refusals go into it here, and `brain_audit` shows it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from models.answers import Reply
from models.audit_requests import GetAudit
from models.errors import BrainError, StoreUnavailable
from models.scope import Caller, Partition
from service.brain import MEMORY_ID, Brain
from service.cursors import cursor_of, mark_of, read_cursor
from service.operation import Operation
from service.refusals import Origin
from stores import audit_log
from stores.addition import Item, Outcome, Refused
from stores.audit_log import Filter
from stores.writer import Transaction

# What was judged and refused. A call that was not understood or met a fault was not judged.
JUDGED = frozenset({403, 404, 409, 410, 412, 413})
JUDGED_CODES = frozenset({"evidence_required"})
# Arguments that say which memory is meant.
_NAMING = ("id", "a", "memory_id", "from_id", "supersedes", "memory_ids")


async def record_refusal(
    brain: Brain, operation: Operation[Any], caller: Caller, arguments: Any, refusal: BrainError
) -> None:
    """Put a refused call into the audit log: of what may write, and of all that the caller has no right to or
    that is too large. A ledger that takes no writes is no reason to answer otherwise."""
    concerned = operation.right != "read" or operation.right not in caller.rights or refusal.status == 413
    if not concerned or not judged(refusal):
        return
    memory_id = _named(arguments)
    if caller.key_id is not None:
        await brain.refusals.record(
            Origin.of(caller),
            operation.name,
            refusal,
            caller.request_id,
            place=caller.home,
            memory_id=memory_id,
        )
        return

    def write(transaction: Transaction) -> None:  # of whoever owns the machine: all of them
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
    transaction: Transaction,
    caller: Caller,
    action: str,
    memory_id: str | None,
    refusal: BrainError,
    place: Partition | None = None,
) -> None:
    """One refusal: who, what, of which memory, and the error's code; in the caller's own partition, unless
    another is given."""
    transaction.event(
        action,
        place or caller.home,
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
    await brain.refusals.write_counts()  # so that the log is whole up to now
    whole = caller.user is None and not caller.bound
    wanted = Filter(
        caller.scope,
        caller.user,
        whole=whole,
        store=whole and caller.key_id is None,
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
