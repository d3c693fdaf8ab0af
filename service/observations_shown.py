"""How the observations view shows a record: to the letter of its contract, times in epoch seconds."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from models.classification import classify
from models.memory import Memory
from models.observation_view import (
    SOURCES,
    covered_by,
    details_of,
    made_at,
    maybe_seconds,
    rfc3339,
    seconds,
    shown_status,
    title_of,
    type_of,
    updated_at,
)
from models.provenance import MemoryDetails, ObservationDetails, SummaryDetails
from stores.observations import Enriched, Row

Shown = dict[str, Any]

FACTS = 12  # of a memory that are shown


def memory_detail(found: Enriched, now: int, project: str | None) -> Shown:
    """A memory in full at `now`, epoch ms, as a project sees it. What it has no facts or segments for has no
    key."""
    memory, details, state = found.row.memory, details_of(found.row.memory), found.row.memory.state
    verdict = classify(memory, now, found.readable, rival=found.rival)
    shown: Shown = {
        "id": memory.number,
        "project": memory.project,
        "title": title_of(memory),
        "text": memory.content,
        "memory_type": type_of(memory),
        "created_at_epoch": seconds(made_at(memory)),
        "updated_at_epoch": seconds(updated_at(memory, found.row.changed_at)),
        "status": shown_status(memory),
        "scope": details.shared,
        "classification": verdict.name,
        "classification_reason": verdict.reason,
        "current_context_eligible": verdict.eligible,
        "session_id": memory.session_id,
        "topic_key": state.provenance.topic_key,
        "files": _json(details.files),
        "branch": details.branch,
    }
    facts = list(_facts(memory, now)) if project in (None, memory.project) else []
    if facts:
        shown["temporal_facts"] = facts[:FACTS]
    if found.segments:
        shown["topic_trace"] = [_segment(row) for row in found.segments]
    return shown


def _facts(memory: Memory, now: int) -> Iterable[Shown]:
    """What it asserts and holds now. All of one memory have its times and its confidence, so that the later
    one comes first."""
    state = memory.state
    begun = state.valid_from is None or state.valid_from <= now
    ended = state.valid_until is not None and state.valid_until <= now
    if state.status != "active" or not begun or ended:
        return
    for fact in reversed(memory.facts):
        yield {
            "project": memory.project,
            "subject": fact.subject,
            "predicate": fact.predicate,
            "object": fact.object,
            "learned_at_epoch": seconds(memory.gmt_created),
            "confidence": float(state.confidence),
            "status": "active",
            "valid_from_epoch": maybe_seconds(state.valid_from),
            "valid_to_epoch": maybe_seconds(state.valid_until),
        }


def _segment(row: Row) -> Shown:
    memory, covered = row.memory, covered_by(row.memory)
    assert covered is not None
    files = memory.details.files if isinstance(memory.details, MemoryDetails) else ()
    return {
        "id": memory.number,
        "topic_key": memory.state.provenance.topic_key,
        "title": title_of(memory),
        "summary": memory.content,
        "status": shown_status(memory),
        "segment_index": covered.segment,
        "covered_from_event_id": covered.first,
        "covered_to_event_id": covered.last,
        "evidence_event_ids": list(covered.evidence),
        "created_at_epoch": seconds(made_at(memory)),
        "updated_at_epoch": seconds(updated_at(memory, row.changed_at)),
        "files": list(files) if files else None,
    }


def observation_detail(memory: Memory, last_accessed: int | None) -> Shown:
    """An observation in full; `last_accessed` is epoch ms. What it was not written with of branch, commit,
    session and sources has no key."""
    details = memory.details
    assert isinstance(details, ObservationDetails)
    made = made_at(memory)
    shown: Shown = {
        "id": memory.number,
        "memory_session_id": details.memory_session_id or "",
        "type": details.type,
        "created_at": rfc3339(made),
        "created_at_epoch": seconds(made),
        "status": shown_status(memory),
        "title": details.title,
        "subtitle": details.subtitle,
        "narrative": details.narrative,
        "facts": _json(details.facts),
        "concepts": _json(details.concepts),
        "files_read": _json(details.files_read),
        "files_modified": _json(details.files_modified),
        "discovery_tokens": details.discovery_tokens,
        "project": memory.project or None,
        "last_accessed_epoch": maybe_seconds(last_accessed),
    }
    optional = {
        "content_session_id": memory.session_id,
        "branch": details.branch,
        "commit_sha": details.commit_sha,
        "compressed_sources": _sources(memory.number, details),
    }
    return shown | {name: value for name, value in optional.items() if value}


def _sources(number: int, details: ObservationDetails) -> list[Shown]:
    return [
        {
            "compressed_observation_id": number,
            "source_observation_id": one.number,
            "source_hash": one.digest,
            "source_created_at_epoch": seconds(one.made_at),
            "compression_session_id": one.session,
            "created_at_epoch": seconds(one.at),
        }
        for one in sorted(details.compressed, key=lambda one: one.number)
    ]


def summary_detail(memory: Memory) -> Shown:
    """A session summary in full."""
    details = memory.details
    assert isinstance(details, SummaryDetails)
    made = made_at(memory)
    return {
        "id": memory.number,
        "memory_session_id": details.memory_session_id or "",
        "project": memory.project or None,
        "request": details.request,
        "completed": details.completed,
        "decisions": details.decisions,
        "learned": details.learned,
        "next_steps": details.next_steps,
        "preferences": details.preferences,
        "created_at": rfc3339(made),
        "created_at_epoch": seconds(made),
    }


def compact(memory: Memory) -> Shown:
    """A row in few words."""
    return {
        "id": memory.number,
        "source": next(source for source in SOURCES if source == memory.kind),
        "memory_id": memory.memory_id,
        "title": title_of(memory),
        "type": "session_summary" if memory.kind == "session_summary" else type_of(memory),
        "project": memory.project if memory.kind == "memory" else memory.project or None,
        "status": shown_status(memory),
        "created_at_epoch": seconds(made_at(memory)),
    }


def _json(values: Sequence[str]) -> str | None:
    """A list as this view has it: a JSON text, null when it is empty."""
    return orjson.dumps(values).decode() if values else None
