"""What searches ask of every row of a partition, as columns of numbers."""

from array import array
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.authority import AUTHORITIES
from models.layers import KINDS, LAYERS, STATUSES
from models.memory import Memory, State
from stores.records import Records

NO_ROW = -1
NO_TIME = -(2**63)
NO_STATUS = 255  # the code of a row that was taken out

_STATUS, _LAYER, _KIND, _AUTHORITY = (
    {name: code for code, name in enumerate(names)} for names in (STATUSES, LAYERS, KINDS, AUTHORITIES)
)
_OF_STATE: dict[str, Callable[[State], Any]] = {
    "statuses": lambda state: _STATUS[state.status],
    "confidences": lambda state: state.confidence,
    "valid_from": lambda state: _time(state.valid_from),
    "valid_until": lambda state: _time(state.valid_until),
    "sensitive": lambda state: state.provenance.security_sensitive,
    "pinned": lambda state: state.provenance.pinned_at is not None,
    "consolidated": lambda state: state.provenance.stage == "consolidated",
    "reviews": lambda state: _time(state.provenance.review_due_at),
}


class Columns:
    """One number a row each, by the names and with the units of `Snapshot`."""

    def __init__(self, records: Records):
        self.session_numbers: dict[str, int] = {}
        self.speaker_numbers: dict[str, int] = {}
        column, states = records.column, records.column("state")
        self._held: dict[str, MutableSequence[Any]] = {
            "layers": bytearray(map(_LAYER.__getitem__, column("layer"))),
            "kinds": bytearray(map(_KIND.__getitem__, column("kind"))),
            "authorities": bytearray(map(_AUTHORITY.__getitem__, column("source_authority"))),
            "statuses": bytearray([_STATUS[state.status] for state in states]),
            "confidences": array("f", [state.confidence for state in states]),
            "valid_from": _times([state.valid_from for state in states]),
            "valid_until": _times([state.valid_until for state in states]),
            "sensitive": bytearray([state.provenance.security_sensitive for state in states]),
            "pinned": bytearray([state.provenance.pinned_at is not None for state in states]),
            "consolidated": bytearray([state.provenance.stage == "consolidated" for state in states]),
            "reviews": _times([state.provenance.review_due_at for state in states]),
            "sessions": _numbered(self.session_numbers, column("session_key")),
            "speakers": _numbered(self.speaker_numbers, column("actor")),
            "times": _times(column("memory_at")),
            "created": array("q", column("gmt_created")),
            "lots": _lots(column("memory_id")),
            "previous": array("q", [NO_ROW]) * len(records),
            "newer": array("q", [NO_ROW]) * len(records),
        }
        self._view: dict[str, NDArray[Any]] | None = None  # of `_held`, until that changes

    def append(self, memory: Memory) -> None:
        """Add the next row."""
        self._view = None
        values = {
            "layers": _LAYER[memory.layer],
            "kinds": _KIND[memory.kind],
            "authorities": _AUTHORITY[memory.source_authority],
            "sessions": _number(self.session_numbers, memory.session_key),
            "speakers": _number(self.speaker_numbers, memory.actor),
            "times": _time(memory.memory_at),
            "created": memory.gmt_created,
            "lots": _lot(memory.memory_id),
            "previous": NO_ROW,
            "newer": NO_ROW,
        } | {name: of(memory.state) for name, of in _OF_STATE.items()}
        for name, value in values.items():
            self._held[name].append(value)

    def put_state(self, row: int, state: State) -> None:
        for name, of in _OF_STATE.items():
            self.put(row, name, of(state))

    def put(self, row: int, name: str, value: float) -> None:
        self._view = None
        self._held[name][row] = value

    def view(self) -> dict[str, NDArray[Any]]:
        """All of them, as copies that no later change touches; the same ones until there is one."""
        if self._view is None:
            self._view = {name: _copy(values) for name, values in self._held.items()}
        return self._view


def _copy(values: MutableSequence[Any]) -> NDArray[Any]:
    copy = np.array(values, np.uint8 if isinstance(values, bytearray) else None)
    copy.flags.writeable = False  # several searches have it
    return copy


def _numbered(numbers: dict[str, int], names: Sequence[str | None]) -> "array[int]":
    return array("q", [_number(numbers, name) for name in names])


def _number(numbers: dict[str, int], name: str | None) -> int:
    """The number of a name, a new one if it has none; -1 for no name."""
    return NO_ROW if name is None else numbers.setdefault(name, len(numbers))


def _lot(memory_id: str) -> int:
    return _lots([memory_id])[0]


def _lots(memory_ids: Sequence[str]) -> "array[int]":
    """The random part of each id, as a number."""
    tails = bytes.fromhex("".join([f"0000{memory_id[-12:]}" for memory_id in memory_ids]))
    return array("q", np.frombuffer(tails, ">i8").astype(np.int64).tobytes())


def _times(moments: Sequence[int | None]) -> "array[int]":
    return array("q", [NO_TIME if at is None else at for at in moments])


def _time(at: int | None) -> int:
    return NO_TIME if at is None else at
