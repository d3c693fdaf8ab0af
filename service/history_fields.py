"""How the history view shows a record."""

from typing import cast

from models.history_answers import HistoryFields
from models.history_clock import is_due
from models.history_times import in_utc, shown
from models.memory import Memory


def history_fields(memory: Memory, now: int) -> HistoryFields:
    """The memory as any answer of the view shows it; `now` is epoch ms."""
    state, provenance = memory.state, memory.state.provenance
    at = provenance.event_at
    forgotten = state.status == "forgotten"
    return {
        "id": memory.memory_id,
        "memory_id": memory.memory_id,
        "content": memory.content,
        "source": provenance.source,
        "tier": provenance.tier,
        "security_sensitive": provenance.security_sensitive,
        "sensitivity_reasons": list(provenance.sensitivity_reasons),
        "frame": state.frame,
        "event_at": shown(memory.memory_at) if at is None else in_utc(at),
        "session_id": memory.session_id,
        "session_position": memory.session_position,
        "material_type": provenance.material_type,
        "origin_id": memory.origin_id,
        "capture_context": provenance.capture_context,
        "status": provenance.stage if state.status == "active" else state.status,
        "created_at": cast("str", shown(memory.gmt_created)),
        "consolidated_at": shown(provenance.consolidated_at),
        "consolidation_reason": provenance.consolidation_reason,
        "pinned": provenance.pinned_at is not None,
        "pinned_at": shown(provenance.pinned_at),
        "review_status": "due" if is_due(provenance, now) else "current",
        "review_due_at": shown(provenance.review_due_at),
        "last_reviewed_at": shown(provenance.last_reviewed_at),
        "forgotten_at": shown(provenance.forgotten_at),
        "forgotten_reason": state.status_reason if forgotten else None,
        "conflicts": list(state.standing.conflicts),
        "corroborations": len(state.standing.agreements),
        "layer": memory.layer,
        "confidence": state.confidence,
        "source_authority": memory.source_authority,
    }
