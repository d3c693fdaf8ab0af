"""A partition in memory: records and links as a graph, words as an index, vectors as one matrix.

Row numbers are given once and never move. Only the event loop changes a partition; a search works on a
`Snapshot`, which later changes don't touch.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from models.authority import AUTHORITIES
from models.layers import KINDS, LAYERS, STATUSES
from models.memory import Memory, State
from models.scope import Partition
from stores.changes import Change
from stores.graph import MemoryGraph
from stores.loading import StoredPartition
from stores.words import WordIndex

ROW_BYTES = 2_200  # a record, its node, its edges and its place in the maps, measured on 100,000 messages
PARTITION_BYTES = 20_000  # an empty one: it must count, or names that hold nothing would never leave
NO_ROW = -1
NO_TIME = -(2**63)
NO_STATUS = 255  # the code of a row that was taken out


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A partition as a search sees it. n rows, m vectors.

    `vectors` (m, dimensions) float32 with `owners` (m,) int64, the row of each; `lengths` (n,) float32
    words; `previous` (n,) int64, the row of the turn before a message or -1; codes (n,) uint8 are places in
    STATUSES, LAYERS, KINDS and AUTHORITIES; `sessions` and `speakers` (n,) int64 are numbers of the session
    and places in `actors`, -1 for none; `times`, `created`, `valid_from` and `valid_until` (n,) int64 epoch
    ms, NO_TIME for none; `confidences` (n,) float32; `lots` (n,) int64 a number that depends on the id alone;
    `postings` has (k, 2) rows and counts for each term asked for.
    """

    rows: list[Memory]
    vectors: NDArray[np.float32]
    owners: NDArray[np.int64]
    lengths: NDArray[np.float32]
    previous: NDArray[np.int64]
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
    postings: dict[str, NDArray[np.uint32]]


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
        self.graph = MemoryGraph()
        self.actors: dict[str, int] = {}
        self._rows: list[Memory] = []
        self._row_of: dict[str, int] = {}
        self._words = WordIndex.of(stored.terms)
        self._previous = array("q")
        self._statuses, self._layers, self._kinds = bytearray(), bytearray(), bytearray()
        self._authorities, self._confidences = bytearray(), array("f")
        self._sessions, self._speakers, self._times = array("q"), array("q"), array("q")
        self._created, self._valid_from, self._valid_until = array("q"), array("q"), array("q")
        self._lots = array("q")
        self._session_numbers: dict[str, int] = {}
        self._speaker_numbers: dict[str, int] = {}
        self._matrix = Matrix(stored.vectors, stored.owners)
        self._with_vectors = set(stored.owners.tolist())
        self._text_bytes = 0
        for memory in stored.memories:
            self._append(memory)
        for edge in stored.edges:
            self.graph.link(edge)

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
            self._rows[row] = memory
            self._statuses[row] = STATUSES.index(memory.state.status)
            self._confidences[row] = memory.state.confidence
            self._valid_from[row] = _time(memory.state.valid_from)
            self._valid_until[row] = _time(memory.state.valid_until)
            self.graph.put(memory)
        if change.vectors is not None and row not in self._with_vectors:
            self._matrix.append(row, change.vectors)
            self._with_vectors.add(row)
        for edge in change.edges:
            self.graph.link(edge)
        for edge in change.unlinked:
            self.graph.unlink(edge.from_id, edge.type, edge.to_id)
        return True

    def snapshot(self, terms: Sequence[str]) -> Snapshot:
        """What a search over these terms needs; microseconds for a thousand rows."""
        vectors, owners = self._matrix.view()
        return Snapshot(
            rows=self._rows.copy(),
            vectors=vectors,
            owners=owners,
            lengths=self._words.lengths(),
            previous=np.array(self._previous, np.int64),
            statuses=np.array(self._statuses, np.uint8),
            layers=np.frombuffer(bytes(self._layers), np.uint8),
            kinds=np.frombuffer(bytes(self._kinds), np.uint8),
            authorities=np.frombuffer(bytes(self._authorities), np.uint8),
            sessions=np.array(self._sessions, np.int64),
            speakers=np.array(self._speakers, np.int64),
            actors=tuple(self._speaker_numbers),
            times=np.array(self._times, np.int64),
            created=np.array(self._created, np.int64),
            valid_from=np.array(self._valid_from, np.int64),
            valid_until=np.array(self._valid_until, np.int64),
            lots=np.array(self._lots, np.int64),
            confidences=np.array(self._confidences, np.float32),
            postings={term: self._words.postings(term) for term in terms},
        )

    def _append(self, memory: Memory) -> int:
        row = len(self._rows)
        self._rows.append(memory)
        self._row_of[memory.memory_id] = row
        self._statuses.append(STATUSES.index(memory.state.status))
        self._layers.append(LAYERS.index(memory.layer))
        self._kinds.append(KINDS.index(memory.kind))
        self._authorities.append(AUTHORITIES.index(memory.source_authority))
        self._confidences.append(memory.state.confidence)
        self._sessions.append(_number(self._session_numbers, memory.session_key))
        self._speakers.append(_number(self._speaker_numbers, memory.actor))
        self._times.append(_time(memory.memory_at))
        self._created.append(memory.gmt_created)
        self._valid_from.append(_time(memory.state.valid_from))
        self._valid_until.append(_time(memory.state.valid_until))
        self._lots.append(int(memory.memory_id[-12:], 16))  # the random part of the id
        self._text_bytes += len(memory.content) + len(memory.state.custom)
        if memory.actor is not None:
            self.actors[memory.actor] = self.actors.get(memory.actor, 0) + 1
        self.graph.put(memory)
        before, after = self.graph.seat(memory)
        self._previous.append(self._row_of[before] if before and memory.kind == "message" else NO_ROW)
        if after and self._rows[self._row_of[after]].kind == "message":
            self._previous[self._row_of[after]] = row
        return row

    def _drop(self, row: int) -> None:
        """Empty a row. Its number stays taken; a code that no filter can ask for keeps it out."""
        memory = self._rows[row]
        before, after = self.graph.neighbours(memory)
        if after and self._rows[self._row_of[after]].kind == "message":
            self._previous[self._row_of[after]] = self._row_of[before] if before else NO_ROW
        self._rows[row] = replace(memory, content="", details=None, state=State(status="forgotten"))
        self._statuses[row] = NO_STATUS
        if memory.actor is not None:
            self.actors[memory.actor] -= 1
            if not self.actors[memory.actor]:
                del self.actors[memory.actor]
        self.graph.drop(memory.memory_id)
        del self._row_of[memory.memory_id]


def _number(numbers: dict[str, int], name: str | None) -> int:
    """The number of a name, a new one if it has none; -1 for no name."""
    return NO_ROW if name is None else numbers.setdefault(name, len(numbers))


def _time(at: int | None) -> int:
    return NO_TIME if at is None else at
