"""The use cases that write observations and merge several into one."""

from dataclasses import replace
from typing import Any

from models.answers import Reply
from models.authority import lowest
from models.confidence import appraised
from models.draft import Draft
from models.errors import ConflictState, invalid
from models.memory import Memory, State
from models.observation_requests import AddObservation, CompressObservations
from models.observation_view import COMPRESSED, made_at
from models.provenance import Compressed, ObservationDetails
from models.scope import Caller
from service.brain import Brain
from service.observations import check_found
from service.observations_drafts import Text, draft_of, milliseconds, written
from service.once import once, replayed
from stores.acts import Act
from stores.addition import Addition
from stores.appraisal import alive, settle
from stores.changes import Change, Edge
from stores.compression import source_digest
from stores.inserts import insert_edges
from stores.observations import find_rows
from stores.writer import Transaction


async def add_observation(brain: Brain, caller: Caller, request: AddObservation) -> Reply:
    """Store an observation."""
    act = Act(caller, "add_observation", brain.meaning.fingerprint())
    draft = await draft_of(brain, caller, _observed(request))

    def write(transaction: Transaction) -> dict[str, Any]:
        stored = Addition(act).store(transaction, draft)
        return {"memory_id": stored.memory_id, "indexed": stored.indexed}

    done, again = await once(brain, caller, act.operation, request, write)
    return Reply(written(brain, done)[1] | replayed(again))


def _observed(request: AddObservation) -> Text:
    made = milliseconds(request.created_at_epoch)
    details = ObservationDetails(
        type=request.type,
        title=request.title,
        subtitle=request.subtitle,
        narrative=request.narrative,
        facts=tuple(request.facts),
        concepts=tuple(request.concepts),
        files_read=tuple(request.files_read),
        files_modified=tuple(request.files_modified),
        branch=request.branch,
        commit_sha=request.commit_sha,
        memory_session_id=request.memory_session_id,
        discovery_tokens=request.discovery_tokens,
    )
    beside = "\n".join((*request.concepts, *request.files_read, *request.files_modified))
    return Text(
        "observation",
        "l2_fact",
        request.content,
        details,
        request.project or "",
        request.content_session_id,
        made,
        State(),
        beside,
    )


async def compress(brain: Brain, caller: Caller, request: CompressObservations) -> Reply:
    """Store one observation for several, and retire those, in one transaction."""
    act = Act(caller, "compress_observations", brain.meaning.fingerprint())
    draft = await draft_of(brain, caller, _observed(request.replacement))
    if draft.memory.state.status == "quarantined":
        rules = ", ".join(draft.memory.state.provenance.sensitivity_reasons)
        raise invalid("replacement", f"its text gives orders ({rules}); nothing was merged")
    session = request.compression_session_id or request.replacement.memory_session_id

    def write(transaction: Transaction) -> dict[str, Any]:
        sources = _mergeable(transaction, caller, request.ids, draft.memory)
        retired = []
        for old in sources:
            state = replace(old.state, status="archived", status_reason=COMPRESSED)
            retired.append(act.change(transaction, old, state, ("status",)))
        settle(act, transaction, retired)
        merged = _merged(draft, sources, session or draft.memory.memory_id, transaction.now)
        stored = Addition(act).store(transaction, merged)
        [memory] = alive(transaction, [stored.memory_id])
        links = tuple(Edge(memory.memory_id, "derived_from", old.memory_id) for old in sources)
        insert_edges(transaction, links, memory.seq)
        transaction.changes.append(Change(memory, edges=links))
        return {"memory_id": stored.memory_id, "indexed": stored.indexed}

    done, again = await once(brain, caller, act.operation, request, write)
    return Reply(written(brain, done)[1] | {"compressed": request.ids} | replayed(again))


def _mergeable(transaction: Transaction, caller: Caller, ids: list[int], replacement: Memory) -> list[Memory]:
    """The sources, by number. Raises ObservationNotFound, ConflictState, InvalidArgument or
    AuthorityNotAllowed."""
    transaction.flush()
    rows = find_rows(transaction.connection, caller, "observation", ids)
    rows = [row for row in rows if row.memory.state.status != "quarantined"]
    check_found("observation", ids, rows)
    sources = sorted((row.memory for row in rows), key=lambda memory: memory.number)
    for old in sources:
        caller.check_change(old.source_authority)
        if old.partition != replacement.partition:
            raise invalid("ids", f"{old.number} is another user's; write as that user to merge it")
        if old.state.status != "active":
            raise ConflictState(f"Observation {old.number} is {old.state.status}, not active.")
        if old.state.provenance.pinned_at is not None:
            raise ConflictState(f"Observation {old.number} is pinned; unpin it first.")
    return sources


def _merged(draft: Draft, sources: list[Memory], session: str, now: int) -> Draft:
    """The draft with its sources; of their project, where it names none and they agree."""
    memory = draft.memory
    assert isinstance(memory.details, ObservationDetails)
    compressed = tuple(
        Compressed(
            old.number,
            source_digest(old.content),
            made_at(old),
            session,
            now,
        )
        for old in sources
    )
    projects = {old.project for old in sources}
    memory = replace(
        memory,
        project=memory.project or (projects.pop() if len(projects) == 1 else ""),
        source_authority=lowest([memory.source_authority, *(old.source_authority for old in sources)]),
        details=replace(memory.details, compressed=compressed),
    )
    return replace(draft, memory=replace(memory, state=appraised(memory, memory.state.standing)))
