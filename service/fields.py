"""How a record is shown: the 18 fields of a memory, and the rest of it on request."""

from typing import Any, cast

import orjson

from models.answers import MemoryDetails, MemoryFields
from models.memory import Memory
from models.provenance import MessageDetails
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
        "evidence_ids": list(state.evidence_ids),
        "tier": provenance.tier,
        "stage": provenance.stage,
        "pinned": provenance.pinned_at is not None,
        "security_sensitive": provenance.security_sensitive,
        "speculation_rule": _speculation(memory, now)[1],
    }


def entity_tag(memory: Memory, now: int) -> str:
    """Weak: two answers with one tag say the same, though timing and store may differ."""
    return f'W/"{memory.version}-{_speculation(memory, now)[1] or "plain"}"'


def _speculation(memory: Memory, now: int) -> tuple[str | None, str | None]:
    """What we infer about a memory and the named rule that says so. Computed at each read, since it
    depends on the clock; equal for both stores."""
    until = memory.state.valid_until
    if until is not None and until <= now:
        return f"probably no longer current: valid until {until} (epoch ms)", "validity_expired"
    return None, None
