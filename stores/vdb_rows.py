"""What the vector store should hold, as the ledger has it."""

from collections.abc import Sequence

import numpy as np
import orjson

from models.memory import Memory
from stores.changes import Floats
from stores.ledger import Ledger
from stores.vdb import VdbRow, scope_key


def held(ledger: Ledger, ids: Sequence[str], fingerprint: str) -> tuple[list[VdbRow], list[str]]:
    """The rows that Chroma should hold of these memories, and the ids that it should not hold. One without
    vectors is neither: its embedding will queue it again."""
    found = ledger.find_all(ids)
    vectors = ledger.document_vectors(found, fingerprint)
    shown = {id: memory for id, memory in found.items() if not memory.hidden}
    rows = [_row(memory, vectors[id]) for id, memory in shown.items() if id in vectors]
    return rows, [id for id in ids if id not in shown]


def record_of(memory: Memory) -> str:
    """The whole record as it stands in a row."""
    return orjson.dumps(memory.as_row()).decode()


def record_from(text: str) -> Memory | None:
    """The record in a row of Chroma; None when it is not one (another release wrote it, or it is broken):
    the ledger has it."""
    try:
        return Memory.from_row(orjson.loads(text))
    except (ValueError, TypeError, KeyError):
        return None


def _row(memory: Memory, vectors: Floats) -> VdbRow:
    return VdbRow(
        memory_id=memory.memory_id,
        scope=scope_key(*memory.partition.scope),
        user=memory.partition.user,
        layer=memory.layer,
        kind=memory.kind,
        version=memory.version,
        record=record_of(memory),
        vectors=np.ascontiguousarray(vectors, np.float32),
    )
