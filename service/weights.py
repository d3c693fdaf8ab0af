"""The weights of a search. Fitted on conversations and on memories in eleven languages; docs/retrieval.md
says how."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

VERSION = "2026-12c"

# A message's first stage: enough to pick the rows that late interaction looks at.
_FIRST = {
    "dense": 0.4,
    "words": 0.4,
    "session": 0.2,
    "actor": 1.6,
    "time": 0.4,
    "date": 0.9,
    "question": -0.8,
    "length": 0.2,
}
# A message's last stage.
_MESSAGE = {
    "late": 0.94,
    "session": 0.19,
    "coverage": 0.28,
    "session_best": 0.21,
    "answer": 0.31,
    "actor": 2.4,
    "date": 4.4,
    "when_time": 1.8,
    "duration_time": 1.2,
    "where_place": 1.3,
    "where_name": 1.3,
    "who_person": 1.6,
    "many_number": 0.5,
    "named_name": 0.75,
    "question": -0.51,
    "first": 0.17,
}
# Everything else, in both stages; and with vectors that read all languages.
_PLAIN = {"late": 1.0, "dense": 0.5, "words": 0.45, "actor": 1.6, "date": 0.9}
_MULTILINGUAL = {"late": 0.7, "dense": 1.0, "words": 0.2, "actor": 1.6, "date": 0.9}


@dataclass(frozen=True, slots=True)
class Weights:
    """In standard deviations of the eligible rows. `floor` is the absolute relevance that the best row of a
    search needs."""

    first: Mapping[str, float] = field(default_factory=lambda: MappingProxyType(_FIRST))
    message: Mapping[str, float] = field(default_factory=lambda: MappingProxyType(_MESSAGE))
    plain: Mapping[str, float] = field(default_factory=lambda: MappingProxyType(_PLAIN))
    multilingual: Mapping[str, float] = field(default_factory=lambda: MappingProxyType(_MULTILINGUAL))
    floor: float = 0.08
    version: str = VERSION

    @property
    def looks_again(self) -> bool:
        """Whether late interaction counts anywhere."""
        return any(group["late"] for group in (self.message, self.plain, self.multilingual))

    def others(self, multilingual: bool) -> Mapping[str, float]:
        """Of what is no message, by what the vectors read."""
        return self.multilingual if multilingual else self.plain

    def adjusted(self, changes: Mapping[str, float], floor: float) -> "Weights":
        """With some weights changed, by `group.name` as in `names`."""
        groups = {group: dict(getattr(self, group)) for group in _GROUPS}
        for path, weight in changes.items():
            group, _, name = path.partition(".")
            groups[group][name] = weight
        fixed = {group: MappingProxyType(weights) for group, weights in groups.items()}
        return Weights(**fixed, floor=floor, version=self.version + "+changed" * bool(changes))


_GROUPS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {"first": _FIRST, "message": _MESSAGE, "plain": _PLAIN, "multilingual": _MULTILINGUAL}
)


def names() -> list[str]:
    """Every weight, as `group.name`."""
    return [f"{group}.{name}" for group, weights in _GROUPS.items() for name in weights]
