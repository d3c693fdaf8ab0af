"""The use cases of the history view that write: remember, and the acts on one memory."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from models.answers import Reply
from models.draft import Draft, content_key
from models.errors import MemoryForgotten
from models.history_clock import started
from models.history_requests import (
    ActOn,
    Corroborate,
    MarkConflict,
    Remember,
    Review,
    SetFrame,
    SetHistoryContext,
    SettleConflict,
)
from models.history_times import epoch_ms, shown
from models.injection import scan_all
from models.layers import STATUSES
from models.memory import Memory, State
from models.provenance import Provenance, guarded, layer_of
from models.requests import Request
from models.scope import Caller
from models.standing import Label
from service.brain import Brain
from service.history_fields import history_fields
from service.once import once, replayed
from stores import amendment, history, history_context, history_evidence, resolution
from stores.acts import Act
from stores.addition import Addition
from stores.dependents import dependents
from stores.history_context import Context
from stores.words import analyze
from stores.writer import Transaction

MAX_ANCHORS = 12  # that have a place of their own in recall
OWN_WORD = "own_word"  # the reason of a mark that the writer set
SHOWN = 100  # ids of what rests on a memory

Does = Callable[[Act, Transaction, str], Any]


async def remember(brain: Brain, caller: Caller, request: Remember) -> Reply:
    """Always a new memory; an earlier equal one is named."""
    act = Act(caller, "remember", brain.meaning.fingerprint())
    draft, [embedded] = await brain.meaning.of_documents(
        [request.content], lambda: _draft(brain, caller, request)
    )
    draft = replace(draft, embedded=embedded)

    def write(transaction: Transaction) -> dict[str, Any]:
        equal = history.earlier_equal(transaction, draft)
        stored = Addition(act).store(transaction, draft)
        return {"memory_id": stored.memory_id, "duplicate_of": equal, "indexed": stored.indexed}

    done, again = await once(brain, caller, act.operation, request, write)
    body = {**_memory(brain, done["memory_id"]), "duplicate_of": done["duplicate_of"]}
    return Reply(body | {"indexed": done["indexed"]} | replayed(again))


def _draft(brain: Brain, caller: Caller, request: Remember) -> Draft:
    content, now = request.content, brain.clock()
    provenance = Provenance(
        source=request.source,
        tier=request.tier,
        material_type=request.material_type,
        capture_context=request.capture_context,
        event_at=request.event_at,
    )
    labels = (request.source, request.frame, request.session_id, request.origin_id, request.capture_context)
    reasons = ((OWN_WORD,) if request.security_sensitive else ()) + scan_all(content, *labels)
    state = State(
        frame=request.frame,
        provenance=guarded(started(provenance, now), reasons),
    )
    memory = Memory(
        memory_id=brain.new_id(now),
        partition=caller.home,
        kind="memory",
        layer=layer_of(request.material_type),
        content=content,
        source_authority="informal",
        memory_at=None if request.event_at is None else epoch_ms(request.event_at),
        session_id=request.session_id,
        session_key=request.session_id,
        session_position=request.session_position,
        origin_id=request.origin_id,
        state=state,
    )
    return Draft(memory, analyze(content, None), content_key(content), None, "keep")


async def promote(brain: Brain, caller: Caller, request: ActOn) -> Reply:
    return await _act(brain, caller, request, "promote", history.promote)


async def pin(brain: Brain, caller: Caller, request: ActOn) -> Reply:
    return await _pin(brain, caller, request, "pin", history.pin)


async def unpin(brain: Brain, caller: Caller, request: ActOn) -> Reply:
    return await _pin(brain, caller, request, "unpin", history.unpin)


async def flag_sensitive(brain: Brain, caller: Caller, request: ActOn) -> Reply:
    return await _unpinning(brain, caller, request, "flag_sensitive", history.flag)


async def clear_sensitive(brain: Brain, caller: Caller, request: ActOn) -> Reply:
    return await _act(brain, caller, request, "clear_sensitive", history.clear)


async def forget(brain: Brain, caller: Caller, request: ActOn) -> Reply:
    """Hide a memory everywhere; what rests on it is due for review."""
    act = _named(brain, caller, "forget", request.reason)

    def write(transaction: Transaction) -> dict[str, Any]:
        memory = history.live(act, transaction, request.id)
        amendment.hide(act, transaction, memory, "forget", request.reason, revive=False)
        transaction.flush()
        resting = dependents(transaction.connection, [memory], SHOWN)
        shown_ids = [one.memory_id for one in resting if not one.hidden and caller.reaches(one.partition)]
        return {"at": transaction.now, "due_for_review": shown_ids}

    done, again = await once(brain, caller, act.operation, request, write)
    body = {
        "id": request.id,
        "memory_id": request.id,
        "status": "forgotten",
        "forgotten_at": shown(done["at"]),
        "forgotten_reason": request.reason,
        "due_for_review": done["due_for_review"],
    }
    return Reply(body | replayed(again))


async def restore(brain: Brain, caller: Caller, request: ActOn) -> Reply:
    """Bring a forgotten memory back."""
    return await _act(brain, caller, request, "restore", history.restore)


async def corroborate(brain: Brain, caller: Caller, request: Corroborate) -> Reply:
    act = _named(brain, caller, "corroborate", request.reason)

    def write(transaction: Transaction) -> dict[str, Any]:
        by = _source(act, transaction, request)
        return {"changed": history_evidence.corroborate(act, transaction, request.id, by)[1]}

    done, again = await once(brain, caller, act.operation, request, write)
    return Reply({"memory": _memory(brain, request.id), "changed": done["changed"]} | replayed(again))


async def retract_corroboration(brain: Brain, caller: Caller, request: Corroborate) -> Reply:
    def retract(act: Act, transaction: Transaction, memory_id: str) -> tuple[Memory, bool]:
        by = _source(act, transaction, request)
        return history_evidence.retract(act, transaction, memory_id, by)

    return await _unpinning(brain, caller, request, "retract_corroboration", retract)


def _source(act: Act, transaction: Transaction, request: Corroborate) -> str | Label:
    if request.memory_id is not None:
        return request.memory_id
    assert request.source is not None
    return Label(request.source, request.origin_id, transaction.now, act.caller.key_id)


async def review(brain: Brain, caller: Caller, request: Review) -> Reply:
    def look(act: Act, transaction: Transaction, memory_id: str) -> None:
        history.review(act, transaction, memory_id, request.verdict)

    return await _act(brain, caller, request, "review", look, request.note)


async def set_frame(brain: Brain, caller: Caller, request: SetFrame) -> Reply:
    reasons = scan_all("", request.frame)

    def move(act: Act, transaction: Transaction, memory_id: str) -> tuple[Memory, bool]:
        return history_context.set_frame(act, transaction, memory_id, request.frame, reasons)

    return await _unpinning(brain, caller, request, "set_frame", move)


async def set_history_context(brain: Brain, caller: Caller, request: SetHistoryContext) -> Reply:
    given = {name: getattr(request, name) for name in request.given}
    at = None if request.event_at is None else epoch_ms(request.event_at)
    labels = (request.source, request.session_id, request.origin_id, request.capture_context)
    context = Context(given, at, scan_all("", *labels))

    def move(act: Act, transaction: Transaction, memory_id: str) -> tuple[Memory, bool]:
        return history_context.set_context(act, transaction, memory_id, context)

    return await _unpinning(brain, caller, request, "set_history_context", move)


async def mark_conflict(brain: Brain, caller: Caller, request: MarkConflict) -> Reply:
    act = _named(brain, caller, "mark_conflict", request.reason)

    def write(transaction: Transaction) -> dict[str, Any]:
        return {"id": resolution.mark(act, transaction, request.a, request.b, request.reason)}

    done, again = await once(brain, caller, act.operation, request, write)
    return Reply({"id": done["id"], "sides": sorted((request.a, request.b))} | replayed(again))


async def resolve_conflict(brain: Brain, caller: Caller, request: SettleConflict) -> Reply:
    act = _named(brain, caller, "resolve_conflict", request.reason)

    def write(transaction: Transaction) -> dict[str, Any]:
        sides = resolution.resolve(act, transaction, request.id, request.adopted, request.reason)
        return {"sides": list(sides)}

    done, again = await once(brain, caller, act.operation, request, write)
    now = brain.clock()
    body = {
        "id": request.id,
        "sides": sorted(done["sides"]),
        "adopted": request.adopted,
        "memories": [history_fields(memory, now) for memory in brain.current(done["sides"])],
    }
    return Reply(body | replayed(again))


def _named(brain: Brain, caller: Caller, operation: str, reason: str | None) -> Act:
    return Act(caller, operation, brain.meaning.fingerprint(), reason)


def _memory(brain: Brain, memory_id: str) -> dict[str, Any]:
    """A memory as it stands after a write. Raises MemoryForgotten when it was hidden since."""
    found = brain.current([memory_id])
    if not found:
        raise MemoryForgotten(f"Memory {memory_id} was forgotten since.")
    return {**history_fields(found[0], brain.clock())}


async def _act(
    brain: Brain, caller: Caller, request: Any, operation: str, does: Does, reason: str | None = None
) -> Reply:
    """Do something to one memory, once, and show it."""
    _, again = await _run(brain, caller, request, operation, does, reason)
    return Reply({"memory": _memory(brain, request.id)} | replayed(again))


async def _unpinning(brain: Brain, caller: Caller, request: Any, operation: str, does: Does) -> Reply:
    """The same of what may take a pin away, which is said."""
    done, again = await _run(brain, caller, request, operation, does)
    return Reply({"memory": _memory(brain, request.id), "unpinned": done["unpinned"]} | replayed(again))


async def _pin(brain: Brain, caller: Caller, request: ActOn, operation: str, does: Does) -> Reply:
    """The same of what changes the number of pins."""
    reply = await _act(brain, caller, request, operation, does)
    pins = 0
    for memory in brain.current([request.id]):
        rows = (await brain.residents.load(memory.partition)).snapshot(())
        pins = int((rows.pinned.astype(bool) & (rows.statuses == STATUSES.index("active"))).sum())
    warning = None
    if pins > MAX_ANCHORS:
        warning = (
            f"{pins} memories are pinned; recall has a place for {MAX_ANCHORS}. Unpin what matters less."
        )
    reply.body.update(pins=pins, warning=warning)
    return reply


async def _run(
    brain: Brain, caller: Caller, request: Any, operation: str, does: Does, reason: str | None = None
) -> tuple[dict[str, Any], bool]:
    act = _named(brain, caller, operation, reason or request.reason)

    def write(transaction: Transaction) -> dict[str, Any]:
        done = does(act, transaction, request.id)
        return {"unpinned": isinstance(done, tuple) and done[1]}

    assert isinstance(request, Request)
    return await once(brain, caller, operation, request, write)
