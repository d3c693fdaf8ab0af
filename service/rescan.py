"""Looks at stored texts again when the rules that mark them have changed: in the background, once for each
version of the rules. What it finds is marked, and observations and summaries are quarantined; nothing that
was marked before is set free."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import structlog

from models.confidence import appraised
from models.errors import MemoryForgotten, MemoryNotFound
from models.injection import RULES_VERSION, scan_all
from models.memory import Memory
from models.provenance import guarded
from models.quarantine import status_with
from models.scope import Caller
from service.brain import Brain
from stores.acts import Act
from stores.appraisal import READABLE, settle
from stores.expiry import SYSTEM
from stores.observations import written_after
from stores.writer import Transaction

log = structlog.get_logger()

RULES = "injection.rules"  # the setting that names the rules by which everything stored was looked at
AT_ONCE = 100  # memories between two looks at what else there is to do

Marked = tuple[Memory, tuple[str, ...]]


async def rescan(brain: Brain) -> int:
    """Look at everything, if it has not been looked at by these rules. Returns how many were marked anew.
    Raises StoreUnavailable."""
    if await asyncio.to_thread(brain.ledger.setting, RULES) == RULES_VERSION:
        return 0
    after = count = 0
    while found := await asyncio.to_thread(_page, brain, after):
        after = found[-1].seq
        marked = await asyncio.to_thread(unmarked, found)
        if marked:
            count += await brain.write(partial(mark, marked=marked))
    await asyncio.wrap_future(brain.ledger.put_setting(RULES, RULES_VERSION))
    return count


async def rescan_in_background(brain: Brain) -> None:
    """The same as a task that nobody waits for."""
    try:
        if count := await rescan(brain):
            log.info("stored texts were marked by changed rules", count=count)
    except Exception:
        log.exception("stored texts could not be looked at again")


def _page(brain: Brain, after: int) -> list[Memory]:
    with brain.ledger.snapshot() as connection:
        return written_after(connection, after, AT_ONCE)


def unmarked(found: Sequence[Memory]) -> list[Marked]:
    """Those that lack a mark which their text gives them, with all of its marks. For a thread."""
    marks = ((memory, scan_all(_text(memory), *_labels(memory))) for memory in found)
    return [
        (memory, reasons)
        for memory, reasons in marks
        if not set(reasons) <= set(memory.state.provenance.sensitivity_reasons)
    ]


def _text(memory: Memory) -> str:
    topic = getattr(memory.details, "topic", None)
    return f"{memory.content}\n{topic}" if topic else memory.content


def _labels(memory: Memory) -> tuple[str | None, ...]:
    """What is shown beside the text."""
    provenance = memory.state.provenance
    own = (memory.actor, memory.project, memory.session_id, memory.origin_id, memory.state.frame)
    return (*own, provenance.source, provenance.capture_context, provenance.consolidation_reason)


def mark(transaction: Transaction, marked: Sequence[Marked]) -> int:
    """Mark memories, and quarantine what is to be. Returns how many were still there."""
    count = 0
    for seen, reasons in marked:
        system = Caller(seen.partition.scope, None, frozenset(), "rescan", SYSTEM)
        act = Act(system, "rescan", None)
        try:
            memory = act.find(transaction, seen.memory_id)
        except (MemoryNotFound, MemoryForgotten):
            continue  # somebody hid it since it was looked at
        provenance = guarded(memory.state.provenance, reasons)
        status = status_with(memory.kind, memory.state.status, provenance.sensitivity_reasons)
        state = replace(memory.state, status=status, provenance=provenance)
        state = appraised(replace(memory, state=state), state.standing)  # no pin without support
        changed = act.change(transaction, memory, state, ("status", "sensitivity_reasons"))
        fell = memory.state.status in READABLE and status == "quarantined"
        if status != memory.state.status:
            settle(act, transaction, [changed], [changed] if fell else [])
        count += 1
    return count
