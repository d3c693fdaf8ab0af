"""The use cases of the brain view that store: add one, add many."""

import asyncio
from collections.abc import Iterable
from typing import Any

from models import verbatim
from models.answers import Added, Reply
from models.draft import Draft, content_key
from models.errors import BrainError, FieldError, InvalidArgument, MemoryForgotten
from models.facts import Fact
from models.injection import scan_all
from models.memory import Memory, State
from models.priority import unhurried
from models.provenance import Details, MemoryDetails, MessageDetails, Provenance, guarded
from models.requests import AddBatch, AddMemory, FactGiven
from models.scope import Caller
from service.audit import record_items
from service.brain import Brain
from service.fields import memory_fields
from service.validation import validate
from stores.acts import Act
from stores.addition import Addition, Item, Outcome, Refused, store_each, store_item
from stores.changes import latest
from stores.idempotency import Once
from stores.words import analyze
from stores.writer import Transaction

SLICE = 25  # results made between two yields, so that a batch never holds up a read by id


async def add(brain: Brain, caller: Caller, request: AddMemory) -> Reply:
    [item] = await items_of(brain, caller, [request])
    addition = Addition(Act(caller, "brain_memory_add", brain.meaning.fingerprint()))

    def write(transaction: Transaction) -> tuple[Outcome, dict[str, Memory]]:
        return store_item(addition, transaction, item), latest(transaction.changes)

    outcome, written = await brain.write(write)
    found = brain.current(outcome.memory_ids[-1:], written)
    return Reply({**_added(outcome, found[0] if found else None, brain.clock())}, _status(outcome))


async def add_batch(brain: Brain, caller: Caller, request: AddBatch) -> Reply:
    checked = await asyncio.to_thread(_check_items, request)
    good = [item for item in checked if isinstance(item, AddMemory)]
    if request.atomic and len(good) < len(checked):
        raise _first_refusal(checked)
    made = iter(await items_of(brain, caller, good))
    items: list[Item | Refused] = [next(made) if isinstance(item, AddMemory) else item for item in checked]
    addition = Addition(Act(caller, "brain_memory_add", brain.meaning.fingerprint()))
    # A refused item may hold what JSON can't say; its Python text tells it apart as well.
    same = [
        item if isinstance(ok, AddMemory) else repr(item)
        for item, ok in zip(request.items, checked, strict=True)
    ]
    once = _once("brain_memory_add_batch", request.idempotency_key, {"items": same, "atomic": request.atomic})

    def write(transaction: Transaction) -> tuple[list[dict[str, Any]], bool, dict[str, Memory]]:
        def store() -> list[dict[str, Any]]:
            outcomes = store_each(addition, transaction, items)
            if request.atomic and any(isinstance(outcome, Refused) for outcome in outcomes):
                raise _first_refusal(outcomes)
            record_items(transaction, caller, addition.act.operation, items, outcomes)
            return [_kept(outcome) for outcome in outcomes]

        done = (store(), False) if once is None else once.run(transaction, caller, store)
        return *done, latest(transaction.changes)

    kept, replayed, written = await brain.write(write)
    results = []
    for start in range(0, len(kept), SLICE):
        results += _results(brain, caller, kept[start : start + SLICE], written)
        await asyncio.sleep(0)
    return Reply({"results": results, **({"replayed": True} if replayed else {})})


def _check_items(request: AddBatch) -> list[AddMemory | Refused]:
    checked: list[AddMemory | Refused] = []
    for item in unhurried(request.items):
        try:
            checked.append(validate(AddMemory, item))
        except InvalidArgument as error:
            checked.append(Refused(error))
    return checked


def _texts(request: AddMemory) -> list[str]:
    """The contents of its drafts, in their order."""
    if request.messages is None:
        return [request.content or ""]
    return [turn.content for turn in request.messages]


async def items_of(brain: Brain, caller: Caller, requests: list[AddMemory]) -> list[Item]:
    """The requests as drafts, embedded all together."""

    def prepare() -> list[tuple[list[Draft], Once | None]]:
        return [(drafts_of(brain, caller, request), _once_of(request)) for request in unhurried(requests)]

    texts = [text for request in requests for text in _texts(request)]
    prepared, embedded = await brain.meaning.of_documents(texts, prepare)
    made = iter(embedded)
    return [
        Item(tuple(draft.with_vectors(next(made)) for draft in drafts), once) for drafts, once in prepared
    ]


def _once_of(request: AddMemory) -> Once | None:
    if request.idempotency_key is None:
        return None
    body = request.model_dump(exclude={"idempotency_key"})
    return Once("brain_memory_add", request.idempotency_key, body)


def drafts_of(brain: Brain, caller: Caller, request: AddMemory) -> list[Draft]:
    """The memories that a request asks for, without vectors."""
    if request.messages is None:
        assert request.content is not None
        kind = request.kind or "memory"
        facts = facts_of(request.facts)
        details = MessageDetails() if kind == "message" else MemoryDetails(facts=facts) if facts else None
        return [
            _draft(brain, caller, request, kind, request.content, request.actor, request.memory_at, details)
        ]
    return [
        _draft(
            brain,
            caller,
            request,
            "message",
            turn.content,
            turn.actor,
            turn.at,
            MessageDetails(role=turn.role),
        )
        for turn in unhurried(request.messages)
    ]


def facts_of(given: Iterable[FactGiven]) -> tuple[Fact, ...]:
    """The facts of a request, each once."""
    made = (Fact(one.subject, one.predicate, one.object, one.single_valued) for one in given)
    return tuple(dict.fromkeys(made))


def _draft(
    brain: Brain,
    caller: Caller,
    request: AddMemory,
    kind: Any,
    content: str,
    actor: str | None,
    memory_at: int | None,
    details: Details | None,
) -> Draft:
    state = State(
        tags=tuple(request.tags),
        custom=verbatim.dump(request.metadata),
        supersedes=tuple(dict.fromkeys(request.supersedes)),
        evidence_ids=tuple(dict.fromkeys(request.evidence_ids)),
        valid_from=request.valid_from,
        valid_until=request.valid_until,
        stated_confidence=request.confidence,
        frame=request.frame,
        provenance=guarded(
            Provenance(),
            scan_all(content, actor, request.frame, request.session_id, request.project, request.origin_id),
        ),
    )
    memory = Memory(
        memory_id=brain.new_id(brain.clock()),
        partition=caller.home,
        kind=kind,
        layer=request.layer or ("l1_raw" if kind == "message" else "l2_fact"),
        content=content,
        source_authority=request.source_authority,
        memory_at=memory_at,
        actor=actor,
        project=request.project,
        session_id=request.session_id,
        session_key=request.session_id,
        session_position=request.session_position,
        origin_id=request.origin_id,
        source_raw_memory_id=request.source_raw_memory_id,
        details=details,
        state=state,
    )
    terms, key = analyze(content, actor), content_key(content)
    return Draft(memory, terms, key, None, request.on_duplicate, request.on_conflict)


def _once(operation: str, key: str | None, request: dict[str, Any]) -> Once | None:
    return None if key is None else Once(operation, key, request)


def _status(outcome: Outcome) -> int:
    return 200 if outcome.deduplicated else 201


def _added(outcome: Outcome, memory: Memory | None, now: int) -> Added:
    """`memory` is the last that was written, as it stands now, if it does."""
    if memory is None:
        raise MemoryForgotten(f"Memory {outcome.memory_ids[-1]} was stored by this key and forgotten since.")
    added: Added = {
        "memory": memory_fields(memory, "graph", now),
        "memory_ids": list(outcome.memory_ids),
        "deduplicated": outcome.deduplicated,
        "superseded": list(outcome.superseded),
        "conflicts": list(outcome.conflicts),
        "indexed": outcome.indexed,
    }
    if outcome.replayed:
        added["replayed"] = True
    return added


def _kept(outcome: Outcome | Refused) -> dict[str, Any]:
    """An item's outcome as the idempotency row keeps it: no text."""
    if isinstance(outcome, Refused):
        return {"error": outcome.error.document(""), "status": outcome.error.status}
    return outcome.kept() | {"replayed": outcome.replayed}


def _results(
    brain: Brain, caller: Caller, kept: list[dict[str, Any]], written: dict[str, Memory]
) -> list[dict[str, Any]]:
    shown = [one["memory_ids"][-1] for one in kept if "error" not in one]
    found = {memory.memory_id: memory for memory in brain.current(shown, written)}
    now = brain.clock()

    def result(one: dict[str, Any]) -> dict[str, Any]:
        if "error" in one:
            return {"status": one["status"], "error": {**one["error"], "request_id": caller.request_id}}
        outcome = Outcome.from_kept(one, replayed=one["replayed"])
        try:
            return {"status": _status(outcome), **_added(outcome, found.get(outcome.memory_ids[-1]), now)}
        except BrainError as error:
            return {"status": error.status, "error": error.document(caller.request_id)}

    return [result(one) for one in kept]


def _first_refusal(outcomes: list[Any]) -> BrainError:
    """What an atomic batch is refused with: the first item's error, its fields under `items[i]`."""
    index, error = next((i, one.error) for i, one in enumerate(outcomes) if isinstance(one, Refused))
    fields = tuple(FieldError(f"items[{index}].{e.field}", e.message) for e in error.errors)
    return type(error)(
        f"items[{index}]: {error.detail}", fields or (FieldError(f"items[{index}]", error.detail),)
    )
