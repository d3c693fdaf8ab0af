"""Memories of a partition by row, made into records when first asked for: a search shows ten of ten thousand.
Each may be read from any thread."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, overload

import orjson

from models.memory import Memory, State
from models.scope import Partition
from stores.rows import NAMES, PLACE, memory_of

_WORDS = ("kind", "layer", "source_authority")  # few, in many rows


class MemoryRows(Sequence[Memory]):
    """What all here have in common."""

    @abstractmethod
    def _row(self, row: int) -> Memory: ...

    @overload
    def __getitem__(self, row: int) -> Memory: ...

    @overload
    def __getitem__(self, row: slice) -> list[Memory]: ...

    def __getitem__(self, row: int | slice) -> Memory | list[Memory]:
        if isinstance(row, slice):
            return [self._row(at) for at in range(*row.indices(len(self)))]
        return self._row(row + len(self) if row < 0 else row)


class Records(MemoryRows):
    """Rows of the ledger as columns, by the names of `stores.rows.NAMES`; `state` has a `State` for each."""

    def __init__(self, columns: Sequence[Sequence[Any]], made: list[Memory | None]):
        self._columns = columns
        self._made = made

    @classmethod
    def read(cls, partition: Partition, found: Sequence[Sequence[Any]]) -> "Records":
        """Of the columns of `select_of_one_partition`. Equal states are one object, and so is every word of
        ours."""
        columns = dict(zip(NAMES[len(PLACE) :], found, strict=True))
        for name in _WORDS:
            known: dict[str, str] = {}
            columns[name] = list(map(known.setdefault, columns[name], columns[name]))
        states = {text: State.from_row(orjson.loads(text)) for text in set(columns["state"])}
        columns["state"] = list(map(states.__getitem__, columns["state"]))
        count = len(columns["state"])
        place = [[name] * count for name in partition]
        return cls([*place, *columns.values()], [None] * count)

    @classmethod
    def of(cls, memories: Sequence[Memory]) -> "Records":
        """Of records that are made already."""
        rows = [(*one.partition, *(getattr(one, name) for name in NAMES[len(PLACE) :])) for one in memories]
        return cls(list(zip(*rows, strict=True)) or [()] * len(NAMES), list(memories))

    def column(self, name: str) -> Sequence[Any]:
        return self._columns[NAMES.index(name)]

    def __len__(self) -> int:
        return len(self._made)

    def _row(self, row: int) -> Memory:
        found = self._made[row]
        if found is None:  # two threads may both make it, and make the same
            found = self._made[row] = memory_of([column[row] for column in self._columns])
        return found


class CurrentRows(MemoryRows):
    """Records as they were loaded, with those that came or changed since."""

    def __init__(self, loaded: Records, newer: list[Memory | None] | None = None):
        self._loaded = loaded
        self._newer: list[Memory | None] = [None] * len(loaded) if newer is None else newer

    def copy(self) -> "CurrentRows":
        """The rows as they are, whatever comes later."""
        return CurrentRows(self._loaded, self._newer.copy())

    def append(self, memory: Memory) -> None:
        self._newer.append(memory)

    def replace(self, row: int, memory: Memory) -> None:
        self._newer[row] = memory

    def __len__(self) -> int:
        return len(self._newer)

    def _row(self, row: int) -> Memory:
        newer = self._newer[row]
        return self._loaded[row] if newer is None else newer


class JoinedRows(MemoryRows):
    """Rows of several partitions, end to end."""

    def __init__(self, parts: Sequence[Sequence[Memory]]):
        self._parts = parts
        self._starts = [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self._starts[-1]

    def _row(self, row: int) -> Memory:
        if not 0 <= row < len(self):
            raise IndexError(row)
        part = bisect_right(self._starts, row) - 1
        return self._parts[part][row - self._starts[part]]
