"""A partition in memory: records and links as a graph, words as an index, vectors as one matrix.

Row numbers are given once and never move. Only the event loop changes a partition; a search works on a
`Snapshot`, which later changes don't touch.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from models.memory import Memory, State
from models.scope import Partition
from stores.changes import Change, Edge
from stores.columns import NO_ROW, NO_STATUS, Columns
from stores.graph import MemoryGraph
from stores.loading import StoredPartition
from stores.records import CurrentRows
from stores.words import WordIndex

ROW_BYTES = 2_200  # a record, its node, its edges and its place in the maps, measured on 100,000 messages
PARTITION_BYTES = 20_000  # an empty one: it must count, or names that hold nothing would never leave


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A partition as a search sees it. n rows, m vectors.

    `vectors` (m, dimensions) float32 with `owners` (m,) int64, the row of each; `lengths` (n,) float32 words;
    `previous` (n,) int64, the row of the turn before a message or -1, and `newer` of what replaced a memory;
    codes (n,) uint8 are places in STATUSES, LAYERS, KINDS and AUTHORITIES; `sessions` and `speakers` (n,)
    int64 are numbers of the session and places in `actors`, -1 for none; `times`, `created`, `valid_from` and
    `valid_until` (n,) int64 epoch ms, NO_TIME for none, and so `reviews`, when each is due for review;
    `sensitive`, `pinned` and `consolidated` (n,) 0 or 1; `confidences` (n,) float32; `lots` (n,) int64 a
    number that depends on the id alone; `postings` has (k, 2) rows and counts for each term asked for;
    `conflicts` for a memory in open conflicts the ids of the other sides.
    """

    rows: Sequence[Memory]
    vectors: NDArray[np.float32]
    owners: NDArray[np.int64]
    lengths: NDArray[np.float32]
    previous: NDArray[np.int64]
    newer: NDArray[np.int64]
    statuses: NDArray[np.uint8]
    layers: NDArray[np.uint8]
    kinds: NDArray[np.uint8]
    authorities: NDArray[np.uint8]
    sessions: NDArray[np.int64]
    speakers: NDArray[np.int64]
    actors: tuple[str, ...]
    times: NDArray[np.int64]
    created: NDArray[np.int64]
    valid_from: NDArray[np.int64]
    valid_until: NDArray[np.int64]
    lots: NDArray[np.int64]
    confidences: NDArray[np.float32]
    sensitive: NDArray[np.uint8]
    pinned: NDArray[np.uint8]
    consolidated: NDArray[np.uint8]
    reviews: NDArray[np.int64]
    postings: dict[str, NDArray[np.uint32]]
    conflicts: Mapping[str, Collection[str]] = field(default_factory=dict)


class Matrix:
    """Vectors, appended; doubles its room. A view of the first m rows stays valid and unchanged."""

    def __init__(self, vectors: NDArray[np.float32], owners: NDArray[np.int64]):
        self._vectors = np.ascontiguousarray(vectors, np.float32)
        self._owners = owners
        self._count = len(owners)

    @property
    def size_bytes(self) -> int:
        return self._vectors.nbytes + self._owners.nbytes

    def append(self, row: int, vectors: NDArray[np.float32]) -> None:
        """Add the chunks (c, dimensions) of one row."""
        end = self._count + len(vectors)
        if end > len(self._owners):
            room = max(64, end, 2 * self._count)
            grown = np.empty((room, vectors.shape[1]), np.float32)
            grown[: self._count] = self._vectors[: self._count] if self._count else grown[:0]
            owners = np.empty(room, np.int64)
            owners[: self._count] = self._owners[: self._count]
            self._vectors, self._owners = grown, owners
        self._vectors[self._count : end] = vectors
        self._owners[self._count : end] = row
        self._count = end

    def view(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        return self._vectors[: self._count], self._owners[: self._count]


class ResidentPartition:
    """What is held in memory of one partition."""

    def __init__(self, key: Partition, stored: StoredPartition):
        self.key = key
        column = stored.memories.column
        ids = column("memory_id")
        self.actors: dict[str, int] = dict(Counter(actor for actor in column("actor") if actor is not None))
        self._rows = CurrentRows(stored.memories)
        self._row_of: dict[str, int] = dict(zip(ids, range(len(ids)), strict=True))
        self._columns = Columns(stored.memories)
        self._words = WordIndex.of(stored.terms)
        self._matrix = Matrix(stored.vectors, stored.owners)
        self._with_vectors = set(stored.owners.tolist())
        self._text_bytes = sum(map(len, column("content")))
        self._text_bytes += sum(len(state.custom) for state in column("state"))
        self.graph = MemoryGraph(self._memory)
        kinds = column("kind")
        for before, after in self.graph.fill(ids, column("session_key"), column("session_position")):
            if kinds[self._row_of[after]] == "message":
                self._follow(self._row_of[after], before)
        for row, state in enumerate(column("state")):
            if state.superseded_by:
                self._note_newer(row, state)
        self._conflicts: dict[str, frozenset[str]] = {}  # never changed in place: snapshots have it
        for edge in stored.edges:
            self._link(edge)

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def size_bytes(self) -> int:
        """An estimate of the memory that the partition takes."""
        return (
            PARTITION_BYTES
            + ROW_BYTES * len(self._rows)
            + self._text_bytes
            + self._matrix.size_bytes
            + self._words.size_bytes
        )

    def memory_ids(self) -> Iterable[str]:
        return self._row_of

    def has_vectors(self, memory_id: str) -> bool:
        return self._row_of.get(memory_id, NO_ROW) in self._with_vectors

    def apply(self, change: Change) -> bool:
        """Take over a committed change. Applying one twice, or after a newer one, does no harm. False when
        the change does not say enough, or asks for more than taking a row out: the partition has to be
        loaded again."""
        memory = change.memory
        if memory.state.status == "purged":
            return False  # its words stand in the index too
        row = self._row_of.get(memory.memory_id)
        if memory.hidden:
            if row is not None:
                self._drop(row)
            return True
        if row is None:
            if change.terms is None:
                return False
            row = self._append(memory)
            self._words.append(change.terms)
        elif memory.version > self._rows[row].version:
            if _context(memory) != _context(self._rows[row]):
                return False  # its place among the turns, or its time, was set anew
            self._rows.replace(row, memory)
            self._columns.put_state(row, memory.state)
            self._note_newer(row, memory.state)
        if change.vectors is not None and row not in self._with_vectors:
            self._matrix.append(row, change.vectors)
            self._with_vectors.add(row)
        for edge in change.edges:
            self._link(edge)
        for edge in change.unlinked:
            self._unlink(edge)
        return True

    def snapshot(self, terms: Sequence[str]) -> Snapshot:
        """What a search over these terms needs; microseconds."""
        vectors, owners = self._matrix.view()
        return Snapshot(
            rows=self._rows.copy(),
            vectors=vectors,
            owners=owners,
            lengths=self._words.lengths(),
            actors=tuple(self._columns.speaker_numbers),
            postings={term: self._words.postings(term) for term in terms},
            conflicts=self._conflicts,
            **self._columns.view(),
        )

    def _link(self, edge: Edge) -> None:
        self.graph.link(edge)
        if edge.type == "conflicts_with":
            for one, other in ((edge.from_id, edge.to_id), (edge.to_id, edge.from_id)):
                others = self._conflicts.get(one, frozenset()) | {other}
                self._conflicts = {**self._conflicts, one: others}

    def _unlink(self, edge: Edge) -> None:
        self.graph.unlink(edge.from_id, edge.type, edge.to_id)
        if edge.type == "conflicts_with":
            for one, other in ((edge.from_id, edge.to_id), (edge.to_id, edge.from_id)):
                others = self._conflicts.get(one, frozenset()) - {other}
                rest = {id: known for id, known in self._conflicts.items() if id != one}
                self._conflicts = {**rest, one: others} if others else rest

    def _memory(self, memory_id: str) -> Memory | None:
        row = self._row_of.get(memory_id)
        return None if row is None else self._rows[row]

    def _append(self, memory: Memory) -> int:
        row = len(self._rows)
        self._rows.append(memory)
        self._row_of[memory.memory_id] = row
        self._columns.append(memory)
        self._text_bytes += len(memory.content) + len(memory.state.custom)
        if memory.actor is not None:
            self.actors[memory.actor] = self.actors.get(memory.actor, 0) + 1
        before, after = self.graph.seat(memory)
        if memory.kind == "message":
            self._follow(row, before)
        if after and self._rows[self._row_of[after]].kind == "message":
            self._follow(self._row_of[after], memory.memory_id)
        self._note_newer(row, memory.state)
        self._note_older(memory)
        return row

    def _follow(self, row: int, before: str | None) -> None:
        """Note which turn comes before a message."""
        self._columns.put(row, "previous", self._row_of[before] if before else NO_ROW)

    def _note_newer(self, row: int, state: State) -> None:
        """Note what replaced a memory, if that is here: it may come later, and be forgotten again."""
        newer = next((self._row_of[id] for id in state.superseded_by if id in self._row_of), NO_ROW)
        self._columns.put(row, "newer", newer)

    def _note_older(self, memory: Memory) -> None:
        """Note anew what replaced those that a memory replaced, which has come or gone."""
        for older in memory.state.supersedes:
            if (row := self._row_of.get(older)) is not None:
                self._note_newer(row, self._rows[row].state)

    def _drop(self, row: int) -> None:
        """Empty a row. Its number stays taken; a code that no filter can ask for keeps it out."""
        memory = self._rows[row]
        before, after = self.graph.neighbours(memory)
        if after and self._rows[self._row_of[after]].kind == "message":
            self._follow(self._row_of[after], before)
        self._rows.replace(row, replace(memory, content="", details=None, state=State(status="forgotten")))
        self._columns.put(row, "statuses", NO_STATUS)
        if memory.actor is not None:
            self.actors[memory.actor] -= 1
            if not self.actors[memory.actor]:
                del self.actors[memory.actor]
        self.graph.drop(memory)
        del self._row_of[memory.memory_id]
        self._note_older(memory)


def _context(memory: Memory) -> tuple[str | None, int | None, int | None]:
    """What the history view may set anew of a record that is fixed otherwise, as far as it is held twice."""
    return memory.session_key, memory.session_position, memory.memory_at
