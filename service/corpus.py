"""The rows that a search looks at: snapshots of partitions laid end to end, and the filters."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import PrivateAttr

from models import verbatim
from models.authority import rank
from models.folding import frame_key
from models.layers import KINDS, LAYERS, STATUSES
from models.memory import Memory
from models.requests import Filters, SearchMemories
from stores.columns import NO_TIME
from stores.records import JoinedRows
from stores.resident import Snapshot

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]


class FilteredSearch(SearchMemories):
    """A search with one more filter, of a view that has its own. It applies before the best are chosen."""

    _admits: Callable[[Memory], bool] = PrivateAttr()

    def admitting(self, admits: Callable[[Memory], bool]) -> "FilteredSearch":
        """The same search over those memories only."""
        filtered = self.model_copy()
        filtered._admits = admits
        return filtered

    @property
    def admits(self) -> Callable[[Memory], bool]:
        return self._admits


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Snapshots end to end, so that one set of statistics covers all that the caller reaches. `previous`,
    `newer`, `sessions` and `speakers` (n,) are numbers in the whole; -1 for none."""

    snapshots: Sequence[Snapshot]
    starts: tuple[int, ...]
    rows: Sequence[Memory]
    lengths: Floats
    previous: Rows
    newer: Rows
    sessions: Rows
    session_count: int
    speakers: Rows
    actors: tuple[str, ...]

    @classmethod
    def of(cls, snapshots: Sequence[Snapshot]) -> "Corpus":
        """The whole of at least one snapshot."""
        if len(snapshots) == 1:  # mostly; then nothing has to be copied
            one = snapshots[0]
            count = int(one.sessions.max(initial=-1)) + 1
            return cls(
                snapshots,
                (0,),
                one.rows,
                one.lengths,
                one.previous,
                one.newer,
                one.sessions,
                count,
                one.speakers,
                one.actors,
            )
        starts = np.cumsum([0, *(len(snapshot.rows) for snapshot in snapshots)]).tolist()
        numbers: dict[str, int] = {}
        sessions: list[Rows] = []
        speakers: list[Rows] = []
        count = 0
        for snapshot in snapshots:
            sessions.append(_shifted(snapshot.sessions, count))
            count += int(snapshot.sessions.max(initial=-1)) + 1
            places = [numbers.setdefault(actor, len(numbers)) for actor in snapshot.actors]
            speakers.append(np.array([*places, -1], np.int64)[snapshot.speakers])
        previous, newer = (
            [_shifted(getattr(one, name), start) for one, start in zip(snapshots, starts, strict=False)]
            for name in ("previous", "newer")
        )
        return cls(
            snapshots,
            tuple(starts[:-1]),
            JoinedRows([snapshot.rows for snapshot in snapshots]),
            np.concatenate([snapshot.lengths for snapshot in snapshots]),
            np.concatenate(previous),
            np.concatenate(newer),
            np.concatenate(sessions),
            count,
            np.concatenate(speakers),
            tuple(numbers),
        )

    def all(self, name: str) -> NDArray[Any]:
        """(n,) a column that all snapshots have."""
        if len(self.snapshots) == 1:
            column: NDArray[Any] = getattr(self.snapshots[0], name)
            return column
        return np.concatenate([getattr(snapshot, name) for snapshot in self.snapshots])

    def conflicts(self) -> Mapping[str, Collection[str]]:
        """For each memory in open conflicts the ids of the other sides."""
        return {id: others for snapshot in self.snapshots for id, others in snapshot.conflicts.items()}

    def counts(self, term: str) -> Floats:
        """(n,) how often a term stands in each row."""
        counts = np.zeros(len(self.rows), np.float32)
        for start, snapshot in zip(self.starts, self.snapshots, strict=True):
            postings = snapshot.postings[term]
            counts[postings[:, 0] + np.uint32(start)] = postings[:, 1]
        return counts

    def documents(self, term: str, eligible: Mask) -> int:
        """In how many eligible rows a term stands."""
        return sum(
            int(np.count_nonzero(eligible[snapshot.postings[term][:, 0] + np.uint32(start)]))
            for start, snapshot in zip(self.starts, self.snapshots, strict=True)
        )

    def cosines(self, vector: Floats | None) -> Floats:
        """(n,) the best chunk's cosine of each row, NaN for a row without vectors."""
        best = np.full(len(self.rows), -np.inf, np.float32)
        for start, snapshot in zip(self.starts, self.snapshots, strict=True):
            if vector is not None and len(snapshot.owners):
                # Not `@`: BLAS rounds a row by its place, and equal memories would not be equally near.
                cosines = np.einsum("md,d->m", snapshot.vectors, vector)
                if np.array_equal(snapshot.owners, np.arange(len(best))):  # mostly: a chunk for each row
                    best = cosines
                else:
                    np.maximum.at(best, snapshot.owners + start, cosines)
        best[np.isneginf(best)] = np.nan
        return best

    def first_vectors(self, rows: Rows) -> Floats:
        """(k, d) the first chunk's vector of each of some rows, zeros for one without."""
        found = np.zeros((len(rows), max(one.vectors.shape[1] for one in self.snapshots)), np.float32)
        for start, snapshot in zip(self.starts, self.snapshots, strict=True):
            chunk = np.full(len(snapshot.rows), -1)
            chunk[snapshot.owners[::-1]] = np.arange(len(snapshot.owners))[::-1]
            own = np.flatnonzero((rows >= start) & (rows < start + len(chunk)))
            own = own[chunk[rows[own] - start] >= 0]
            if len(own):  # a partition without vectors has none of any dimension
                found[own] = snapshot.vectors[chunk[rows[own] - start]]
        return found

    def eligible(self, filters: Filters) -> Mask:
        """(n,) which rows pass every filter. The cheap ones first, over codes; the rest row by row."""
        mask = _among(self.all("statuses"), [STATUSES.index(status) for status in filters.statuses])
        if filters.layers:
            mask &= _among(self.all("layers"), [LAYERS.index(layer) for layer in filters.layers])
        if filters.kinds:
            mask &= _among(self.all("kinds"), [KINDS.index(kind) for kind in filters.kinds])
        if (at := filters.valid_at()) is not None:
            until = self.all("valid_until")  # no time is less than any
            mask &= (self.all("valid_from") <= at) & ((until == NO_TIME) | (until > at))
        if _has_row_filters(filters):
            wanted = {key: _canonical(value) for key, value in filters.metadata.items()}
            for row in np.flatnonzero(mask).tolist():
                mask[row] = _passes(self.rows[row], filters, wanted)
        if isinstance(filters, FilteredSearch):
            admits = filters.admits
            for row in np.flatnonzero(mask).tolist():
                mask[row] = admits(self.rows[row])
        return mask


def successors(previous: Rows) -> Rows:
    """(n,) the row of the turn after each, of the rows of the turns before; -1 for none."""
    following = np.full(len(previous), -1, np.int64)
    after = np.flatnonzero(previous >= 0)
    following[previous[after]] = after
    return following


def _shifted(numbers: Rows, by: int) -> Rows:
    return np.where(numbers < 0, -1, numbers + by)


def _among(codes: NDArray[np.uint8], wanted: list[int]) -> Mask:
    among = np.zeros(256, np.bool_)
    among[wanted] = True
    return among[codes]


_CODED = {"layers", "kinds", "statuses", "tags_match"}


def _has_row_filters(filters: Filters) -> bool:
    return any(
        getattr(filters, name) not in (None, [], {}) for name in Filters.model_fields if name not in _CODED
    )


def passes(memory: Memory, filters: Filters) -> bool:
    """Whether one memory passes every filter."""
    if isinstance(filters, FilteredSearch) and not filters.admits(memory):
        return False
    return (
        memory.state.status in filters.statuses
        and (not filters.layers or memory.layer in filters.layers)
        and (not filters.kinds or memory.kind in filters.kinds)
        and _passes(memory, filters, {key: _canonical(value) for key, value in filters.metadata.items()})
    )


def _passes(memory: Memory, filters: Filters, metadata: dict[str, bytes]) -> bool:
    state = memory.state
    at = memory.memory_at
    if filters.tags:
        has = [tag in state.tags for tag in filters.tags]
        if not (all(has) if filters.tags_match == "all" else any(has)):
            return False
    return (
        filters.session_id in (None, memory.session_id)
        and filters.project in (None, memory.project)
        and (filters.frame is None or state.frame_key == frame_key(filters.frame))
        and (filters.memory_at_from is None or (at is not None and at >= filters.memory_at_from))
        and (filters.memory_at_to is None or (at is not None and at <= filters.memory_at_to))
        and (filters.min_authority is None or rank(memory.source_authority) >= rank(filters.min_authority))
        and (filters.min_confidence is None or state.confidence >= filters.min_confidence)
        and (not metadata or _has_metadata(state.custom, metadata))
    )


def _has_metadata(custom: str, wanted: dict[str, bytes]) -> bool:
    values = orjson.loads(custom)
    return all(key in values and _canonical(values[key]) == text for key, text in wanted.items())


def _canonical(value: object) -> bytes:
    """Equal for equal JSON values; 2, 2.0, "2" and true are four."""
    return orjson.dumps(orjson.loads(verbatim.dump(value)), option=orjson.OPT_SORT_KEYS)
