"""How a record is shown: the 18 fields of a memory, and the rest of it on request."""

from typing import Any, cast

import orjson

from models.answers import ConfidenceTerms, FactFields, MemoryDetails, MemoryFields
from models.confidence import confidence_of
from models.facts import Fact
from models.memory import Memory
from models.provenance import MessageDetails
from models.standing import VERDICTS
from stores.changes import Edge


def memory_fields(memory: Memory, source: str, now: int) -> MemoryFields:
    """The memory as any answer shows it. `source` is the store that it was read from; `now` is epoch ms."""
    state = memory.state
    return {
        "memory_id": memory.memory_id,
        "content": memory.content,
        "layer": memory.layer,
        "status": state.status,
        "is_latest": memory.is_latest,
        "supersedes": list(state.supersedes) if state.supersedes else None,
        "superseded_by": list(state.superseded_by) if state.superseded_by else None,
        "tags": list(state.tags),
        # The writer's own text: parsed for nobody, so that it stays verbatim.
        "custom": cast("dict[str, Any]", orjson.Fragment(state.custom)),
        "user_id": memory.partition.user,
        "agent_id": memory.partition.agent,
        "memory_at": memory.memory_at,
        "gmt_created": memory.gmt_created,
        "speculate": _speculation(memory, now)[0],
        "confidence": state.confidence,
        "source_authority": memory.source_authority,
        "source_raw_memory_id": memory.source_raw_memory_id,
        "source": source,
    }


def link_fields(edge: Edge) -> dict[str, Any]:
    """A link as any answer shows it."""
    return {"from": edge.from_id, "to": edge.to_id, "type": edge.type, "weight": edge.weight}


def fact_fields(fact: Fact) -> FactFields:
    """A fact as any answer shows it."""
    return {
        "subject": fact.subject,
        "predicate": fact.predicate,
        "object": fact.object,
        "single_valued": fact.single_valued,
    }


def memory_details(memory: Memory, now: int) -> MemoryDetails:
    """What the 18 fields leave out."""
    state, provenance = memory.state, memory.state.provenance
    return {
        "version": memory.version,
        "kind": memory.kind,
        "number": memory.number,
        "seq": memory.seq,
        "actor": memory.actor,
        "role": memory.details.role if isinstance(memory.details, MessageDetails) else None,
        "project": memory.project,
        "session_id": memory.session_id,
        "session_position": memory.session_position,
        "origin_id": memory.origin_id,
        "frame": state.frame,
        "valid_from": state.valid_from,
        "valid_until": state.valid_until,
        "stated_confidence": state.stated_confidence,
        "confidence_terms": _confidence_terms(memory),
        "evidence_ids": list(state.evidence_ids),
        "facts": [fact_fields(fact) for fact in memory.facts],
        "conflicts": list(state.standing.conflicts),
        "status_reason": state.status_reason,
        "tier": provenance.tier,
        "stage": provenance.stage,
        "source": provenance.source,
        "event_at": provenance.event_at,
        "pinned": provenance.pinned_at is not None,
        "review_due_at": provenance.review_due_at,
        "last_reviewed_at": provenance.last_reviewed_at,
        "fallen": list(state.standing.fallen),
        "security_sensitive": provenance.security_sensitive,
        "sensitivity_reasons": list(provenance.sensitivity_reasons),
        "speculation_rule": _speculation(memory, now)[1],
    }


def entity_tag(memory: Memory, now: int) -> str:
    """Weak: two answers with one tag say the same, though timing and store may differ."""
    return f'W/"{memory.version}-{_speculation(memory, now)[1] or "plain"}"'


def _confidence_terms(memory: Memory) -> ConfidenceTerms:
    terms, standing = confidence_of(memory), memory.state.standing
    return {
        "authority": terms.authority,
        "statement": terms.statement,
        "stated": terms.stated,
        "start": terms.start,
        "sources": [
            {"memory_id": one.memory_id, "label": one.label, "reliability": one.reliability}
            for one in standing.agreements
        ],
        "agreed": terms.agreed,
        "feedback": {verdict: standing.count(verdict) for verdict in VERDICTS},
        "heard": terms.heard,
        "contested": terms.contested,
    }


def _speculation(memory: Memory, now: int) -> tuple[str | None, str | None]:
    """What we infer about a memory and the named rule that says so; the first that holds. Computed at each
    read, since it depends on the clock; equal for both stores."""
    until, standing, provenance = memory.state.valid_until, memory.state.standing, memory.state.provenance
    if until is not None and until <= now:
        return f"probably no longer current: valid until {until} (epoch ms)", "validity_expired"
    if standing.outranked:
        return "probably wrong: a higher authority says otherwise", "higher_authority_disagrees"
    if standing.fallen:
        return f"may no longer hold: {standing.fallen[0]}, which it rests on, fell", "evidence_fell"
    due = provenance.review_due_at
    if provenance.tier == "interpretation" and due is not None and due <= now:
        return f"an interpretation whose review is overdue since {due} (epoch ms)", "review_overdue"
    return None, None
