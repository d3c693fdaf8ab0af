"""`save_memory`: a curated memory, or a new version of what is known under its topic."""

from dataclasses import replace
from typing import Any

from models.answers import Reply
from models.draft import Draft
from models.errors import MemoryForgotten, MemoryNotFound
from models.memory import State
from models.observation_memory_requests import SaveMemory
from models.observation_terms import coverage_of
from models.observation_view import layer_of
from models.provenance import MemoryDetails, Provenance
from models.scope import Caller
from service.additions import facts_of
from service.brain import Brain
from service.observations_drafts import Text, draft_of, milliseconds, written
from service.once import once, replayed
from stores.acts import Act
from stores.addition import Addition
from stores.appraisal import alive
from stores.topics import exchange_numbers, heads, next_segment
from stores.writer import Transaction


async def save(brain: Brain, caller: Caller, request: SaveMemory) -> Reply:
    """Store a memory. What stood under its project and topic is superseded by it, and gives it its id."""
    act = Act(caller, "save_memory", brain.meaning.fingerprint())
    draft = await draft_of(brain, caller, _saved(caller, request))

    def write(transaction: Transaction) -> dict[str, Any]:
        partition, key = draft.memory.partition, request.topic_key
        placed = _placed(act, transaction, draft, request)
        is_version = key is not None and request.covered_from_event_id is None
        olds = heads(transaction, partition, request.project, key) if is_version and key is not None else []
        state = replace(placed.memory.state, supersedes=tuple(old.memory_id for old in olds))
        placed = replace(placed, memory=replace(placed.memory, state=state))
        stored = Addition(act).store(transaction, placed)
        if olds and olds[0].memory_id in stored.superseded:
            [head] = alive(transaction, [stored.memory_id])
            exchange_numbers(transaction, head, olds[0])
        return {
            "memory_id": stored.memory_id,
            "indexed": stored.indexed,
            "superseded": list(stored.superseded),
            "conflicts": list(stored.conflicts),
        }

    done, again = await once(brain, caller, act.operation, request, write)
    memory, body = written(brain, done)
    body |= {
        "project": memory.project,
        "version": memory.version,
        "topic_key": memory.state.provenance.topic_key,
        "superseded": [old.number for old in brain.current(done["superseded"])],
        "conflicts": done["conflicts"],
    }
    return Reply(body | replayed(again))


def _saved(caller: Caller, request: SaveMemory) -> Text:
    details = MemoryDetails(
        title=request.title if request.title and request.title.strip() else None,
        memory_type=request.memory_type,
        shared=request.scope,
        host=request.host,
        branch=request.branch,
        files=tuple(request.files),
        reference_time=milliseconds(request.reference_time_epoch),
        source_trust_class="user_prompt" if caller.for_user else "agent",
        facts=facts_of(request.facts),
        created_at=milliseconds(request.created_at_epoch),
        evidence=tuple(dict.fromkeys(request.evidence_ids)),
        covered=coverage_of(request),
    )
    state = State(
        valid_from=milliseconds(request.valid_from_epoch),
        stated_confidence=request.confidence,
        provenance=Provenance(topic_key=request.topic_key, expires_at=milliseconds(request.expires_at_epoch)),
    )
    return Text(
        "memory",
        request.layer or layer_of(request.memory_type),
        request.text,
        details,
        request.project,
        request.session_id,
        details.reference_time,
        state,
        request.title or "",
    )


def _placed(act: Act, transaction: Transaction, draft: Draft, request: SaveMemory) -> Draft:
    """The draft with what only the ledger knows: which of its evidence there is, and its place among the
    segments of its topic. Evidence that can't be read stays in its details."""
    memory, details = draft.memory, draft.memory.details
    assert isinstance(details, MemoryDetails)
    found = tuple(one for one in details.evidence if _readable(act, transaction, one))
    if details.covered is not None and request.segment_index is None and request.topic_key is not None:
        place = next_segment(transaction, memory.partition, memory.project, request.topic_key)
        details = replace(details, covered=replace(details.covered, segment=place))
    state = replace(memory.state, evidence_ids=found)
    return replace(draft, memory=replace(memory, details=details, state=state))


def _readable(act: Act, transaction: Transaction, memory_id: str) -> bool:
    try:
        act.find(transaction, memory_id)
    except (MemoryNotFound, MemoryForgotten):
        return False
    return True
