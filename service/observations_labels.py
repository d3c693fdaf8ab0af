"""The use cases that write session summaries, and with them the labels of sessions."""

import asyncio
from dataclasses import replace
from typing import Any

from models.answers import Reply
from models.errors import ConflictState, MemoryForgotten, ObservationNotFound
from models.memory import State
from models.observation_requests import AddSummary, SetLabel
from models.observation_terms import coverage_of
from models.observation_view import made_at
from models.provenance import Provenance, SummaryDetails
from models.raw_labels import Label, intent_of, topic_of
from models.redaction import redact
from models.scope import Caller
from service.brain import Brain
from service.observations_drafts import Text, draft_of, milliseconds, written
from service.once import once, replayed
from stores import session_labels
from stores.acts import Act
from stores.addition import Addition
from stores.appraisal import alive
from stores.observations import find_rows
from stores.observations_labels import session_of, standing_label
from stores.topics import next_segment
from stores.writer import Transaction

NO_HOST = "unknown"


async def add_summary(brain: Brain, caller: Caller, request: AddSummary) -> Reply:
    """Store a session summary, and with it the label of its session. A label that somebody set by hand is
    carried forward."""
    act = Act(caller, "add_session_summary", brain.meaning.fingerprint())
    draft = await draft_of(brain, caller, _summed_up(request))

    def write(transaction: Transaction) -> dict[str, Any]:
        memory = draft.memory
        details = memory.details
        assert isinstance(details, SummaryDetails)
        transaction.flush()
        standing = standing_label(transaction.connection, memory)
        if standing is not None and standing.source == "override":
            details = replace(
                details, intent=standing.intent, topic=standing.topic, label_source=standing.source
            )
        if details.covered is not None and request.segment_index is None:
            assert request.topic_key is not None
            place = next_segment(transaction, memory.partition, memory.project, request.topic_key)
            details = replace(details, covered=replace(details.covered, segment=place))
        stored = Addition(act).store(transaction, replace(draft, memory=replace(memory, details=details)))
        [memory] = alive(transaction, [stored.memory_id])
        session_labels.put(transaction, memory, made_at(memory))
        return {"memory_id": stored.memory_id, "indexed": stored.indexed}

    done, again = await once(brain, caller, act.operation, request, write)
    memory, body = written(brain, done)
    assert isinstance(memory.details, SummaryDetails)
    label = {
        "session_intent": memory.details.intent,
        "session_topic": await _shown_topic(memory.details.topic),
        "session_intent_source": memory.details.label_source,
    }
    return Reply(body | label | replayed(again))


def _summed_up(request: AddSummary) -> Text:
    made = milliseconds(request.created_at_epoch)
    intent, topic = intent_of(request.intent), topic_of(request.topic)
    details = SummaryDetails(
        memory_session_id=request.memory_session_id,
        host=None if request.host == NO_HOST else request.host,
        request=request.request,
        completed=request.completed,
        decisions=request.decisions,
        learned=request.learned,
        next_steps=request.next_steps,
        preferences=request.preferences,
        intent=intent,
        topic=topic,
        label_source=None if intent is None and topic is None else "summary",
        covered=coverage_of(request),
    )
    return Text(
        "session_summary",
        "l3_summary",
        request.content,
        details,
        request.project or "",
        request.session_id,
        made,
        State(provenance=Provenance(topic_key=request.topic_key)),
        topic or "",
    )


async def set_label(brain: Brain, caller: Caller, request: SetLabel) -> Reply:
    """Label the session of a summary by hand."""
    act = Act(caller, "set_session_label", brain.meaning.fingerprint())

    def write(transaction: Transaction) -> dict[str, Any]:
        transaction.flush()
        rows = find_rows(transaction.connection, caller, "session_summary", [request.id])
        if not rows:
            raise ObservationNotFound(f"session_summary id(s) not found: [{request.id}]")
        memory = rows[0].memory
        details = memory.details
        assert isinstance(details, SummaryDetails)
        caller.check_change(memory.source_authority)
        if session_of(memory) is None:
            raise ConflictState(f"Session summary {request.id} names no host and session to label.")
        standing = standing_label(transaction.connection, memory) or Label()
        intent = request.intent if "intent" in request.given else standing.intent
        topic = request.topic if "topic" in request.given else standing.topic
        details = replace(details, intent=intent, topic=topic, label_source="override")
        act.event(transaction, memory.partition, memory.memory_id, ("intent", "topic"))
        session_labels.put(transaction, replace(memory, details=details), transaction.now)
        return {"memory_id": memory.memory_id}

    done, again = await once(brain, caller, act.operation, request, write)
    label = await asyncio.to_thread(_read_label, brain, done["memory_id"])
    body = {
        "id": request.id,
        "session_intent": label.intent,
        "session_topic": await _shown_topic(label.topic),
        "session_intent_source": "override",
    }
    return Reply(body | replayed(again))


def _read_label(brain: Brain, memory_id: str) -> Label:
    """The label of a summary's session as it stands after the write."""
    found = brain.current([memory_id])
    if not found:
        raise MemoryForgotten(f"Memory {memory_id} was forgotten since.")
    with brain.ledger.snapshot() as connection:
        return standing_label(connection, found[0]) or Label()


async def _shown_topic(topic: str | None) -> str | None:
    """In a thread: what finds secrets is loaded when it is first asked."""
    return None if topic is None else await asyncio.to_thread(redact, topic)
