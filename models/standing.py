"""How a memory stands among others: who agrees with it, who contradicts it, what it rested on and lost."""

from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from typing import Any, Literal, get_args

Verdict = Literal["confirmed", "useful", "outdated", "wrong"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

MAX_FALLEN = 16  # ids kept of what fell; one is enough for the flag
MAX_VOICES = 256  # of feedback
MAX_LABELS = 64


@dataclass(frozen=True, slots=True)
class Agreement:
    """A source that agrees independently of the others, and how far it can be relied on, 0..1: a memory, or a
    bare `label`."""

    memory_id: str | None
    reliability: float
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Label:
    """A source that agrees as somebody says, with no memory of what it says: its label as given, the original
    that it repeats, when it was named (epoch ms) and by which key."""

    source: str
    origin_id: str | None = None
    at: int = 0
    key_id: str | None = None


@dataclass(frozen=True, slots=True)
class Voice:
    """One key's feedback. Each key has one voice for each verdict, however often it repeats itself."""

    verdict: Verdict
    key_id: str


@dataclass(frozen=True, slots=True)
class Standing:
    """`agreements` are the independent sources that count; `conflicts` the ids of open conflicts, which are
    `contested` when one of them is with an equal authority or a higher one, and `outranked` with a higher
    one. `fallen` are ids of what the memory rests on that fell since it was last reviewed, `labels` the
    sources that were named as agreeing, whether they count or not."""

    agreements: tuple[Agreement, ...] = ()
    conflicts: tuple[str, ...] = ()
    contested: bool = False
    outranked: bool = False
    fallen: tuple[str, ...] = ()
    voices: tuple[Voice, ...] = ()
    labels: tuple[Label, ...] = ()

    def count(self, verdict: Verdict) -> int:
        """How many keys gave it."""
        return sum(voice.verdict == verdict for voice in self.voices)

    def as_row(self) -> dict[str, Any]:
        row = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        for name in _PARTS.keys() & row.keys():
            row[name] = [list(astuple(one)) for one in row[name]]
        return row

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Standing":
        """The inverse of `as_row`."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
        }
        for name in _PARTS.keys() & values.keys():
            values[name] = tuple(_PARTS[name](*parts) for parts in values[name])
        return cls(**values)


_PARTS: dict[str, Callable[..., Any]] = {"agreements": Agreement, "voices": Voice, "labels": Label}
