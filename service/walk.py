"""A walk along the links of memories: breadth first, bounded, and inside the caller's reach."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from models.links import EdgeType
from models.memory import Memory
from models.scope import Partition
from service.moment import Moment
from stores.changes import Edge
from stores.graph import MemoryGraph

_HUBS: frozenset[EdgeType] = frozenset({"asserts", "in_session"})  # lead to nodes that are no memories
MAX_VISITS = 2_000  # nodes that are looked at, whether they are shown or not


@dataclass(slots=True)
class Walk:
    """`types` of links to follow, all when empty; `limit` memories at the most. What it has come to: `found`
    memories with their distance, nearest first, the `edges` that were walked, and whether there is more."""

    moment: Moment
    types: frozenset[EdgeType]
    limit: int
    found: list[tuple[Memory, int]] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    truncated: bool = False
    _starts: set[str] = field(default_factory=set)
    _reached: set[str] = field(default_factory=set)
    _came_by: dict[str, Edge] = field(default_factory=dict)
    _left_out: set[str] = field(default_factory=set)
    _walked: set[Edge] = field(default_factory=set)

    async def go(self, starts: Sequence[Memory], hops: int) -> None:
        """Walk from memories that the caller may read. Raises StoreUnavailable."""
        self._starts.update(start.memory_id for start in starts)
        self._reached |= self._starts
        level = list(starts)
        for hop in range(1, hops + 1):
            fresh: list[Memory] = []
            for partition, members in _by_partition(level).items():
                # Loaded one by one, and read at once: loading another may let this one go.
                graph = await self.moment.graph(partition)
                for memory in members:
                    fresh += self._step(graph, memory)
            self.found += [(memory, hop) for memory in fresh]
            level = fresh

    def path(self, memory_id: str) -> list[Edge]:
        """The links by which a memory was reached, from the start to it."""
        path: list[Edge] = []
        while memory_id not in self._starts:
            edge = self._came_by[memory_id]
            path.append(edge)
            memory_id = edge.from_id if edge.to_id == memory_id else edge.to_id
        return path[::-1]

    def _step(self, graph: MemoryGraph, memory: Memory) -> list[Memory]:
        """The memories that are reached from one for the first time."""
        fresh: list[Memory] = []
        for edge in self._links(graph, memory.memory_id):
            other = edge.to_id if edge.from_id == memory.memory_id else edge.from_id
            if other in self._left_out:
                continue
            if other not in self._reached:
                if self._visits >= MAX_VISITS:
                    self.truncated = True
                    break
                node = graph.memory(other) or self.moment.memory(other)  # another user's, if readable
                if node is None:
                    self._left_out.add(other)
                    continue
                if len(self._reached) >= self.limit + len(self._starts):
                    self.truncated = True
                    break
                self._reached.add(other)
                self._came_by[other] = edge
                fresh.append(node)
            if edge not in self._walked:
                self._walked.add(edge)
                self.edges.append(edge)
        return fresh

    @property
    def _visits(self) -> int:
        return len(self._reached) + len(self._left_out)

    def _links(self, graph: MemoryGraph, memory_id: str) -> Iterator[Edge]:
        """The links of a memory, the session that it shares with others last: that says the least. A session
        is no memory, nor is what a fact is about: each is walked through once, to all who lead there."""
        own = [edge for edge in graph.edges(memory_id) if not self.types or edge.type in self.types]
        yield from (edge for edge in own if edge.type not in _HUBS)
        for edge in sorted((edge for edge in own if edge.type in _HUBS), key=lambda edge: edge.type):
            hub = edge.to_id
            if hub not in self._left_out:
                self._left_out.add(hub)
                others = (other.from_id for other in graph.edges(hub))
                yield from (Edge(memory_id, edge.type, other) for other in others if other != memory_id)


def _by_partition(memories: list[Memory]) -> dict[Partition, list[Memory]]:
    groups: dict[Partition, list[Memory]] = {}
    for memory in memories:
        groups.setdefault(memory.partition, []).append(memory)
    return groups
