"""What a commit changed, as the projections in memory need it."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.links import EdgeType
from models.memory import Memory

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Edge:
    """A typed, directed link between two memories of one scope."""

    from_id: str
    type: EdgeType
    to_id: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A memory as it stands after a commit. `terms` and `vectors` (chunks, dimensions) are given when the
    commit wrote them, `edges` are those that it added and `unlinked` those that it ended."""

    memory: Memory
    terms: tuple[str, ...] | None = None
    vectors: Floats | None = None
    edges: tuple[Edge, ...] = ()
    unlinked: tuple[Edge, ...] = ()


def latest(changes: Iterable[Change]) -> dict[str, Memory]:
    """The memories that were changed, as they stand after it; those that are hidden then are left out."""
    found: dict[str, Memory] = {}
    for change in changes:
        memory = change.memory
        known = found.get(memory.memory_id)
        if known is None or memory.version >= known.version:
            found[memory.memory_id] = memory
    return {id: memory for id, memory in found.items() if not memory.hidden}
