"""Drafts of memories for tests that write into the ledger below the doors."""

from typing import Any

from models.draft import Draft, content_key
from models.identity import uuid7
from models.memory import Memory, State
from models.scope import Partition
from stores.words import analyze


def draft(
    content: str, partition: Partition, kind: Any, details: Any, project: str = "", status: Any = "active"
) -> Draft:
    """A memory of a kind, of the layer that such a one has."""
    layers: dict[str, Any] = {"session_summary": "l3_summary", "message": "l1_raw"}
    memory = Memory(
        memory_id=uuid7(1_700_000_000_000),
        partition=partition,
        kind=kind,
        layer=layers.get(kind, "l2_fact"),
        content=content,
        source_authority="informal",
        gmt_created=0,
        seq=0,
        number=0,
        project=project,
        details=details,
        state=State(status=status),
    )
    return Draft(memory, analyze(content), content_key(content), None, "keep")
