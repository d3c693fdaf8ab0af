"""The plain model that the state machine compares a brain with: a dict of records and the rules of an add."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from models.draft import content_key
from models.scope import Caller, Partition

Request = dict[str, Any]
INVALID = "no such layer"


@dataclass(frozen=True)
class Refusal:
    """The status and code of an item that is not stored."""

    status: int
    code: str


@dataclass
class Entry:
    """A memory as the model has it. `shown` is what a read shows, but for its source and timing."""

    partition: Partition
    kind: str
    layer: str
    content: str
    tags: list[str]
    frame: str | None
    custom: dict[str, Any]
    session_id: str | None
    position: int | None
    version: int = 1
    memory_id: str = ""
    shown: dict[str, Any] = field(default_factory=dict)


@dataclass
class Added:
    """The entries that an add answers for, in order, and whether they were there before."""

    entries: list[Entry]
    duplicate: bool


class Model:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.keys: dict[tuple[Partition, str, str], tuple[Request, Any]] = {}

    def visible(self, who: Caller) -> list[Entry]:
        return [entry for entry in self.entries if who.reaches(entry.partition)]

    def copy(self) -> "Model":
        other = Model()
        other.entries, other.keys = deepcopy(self.entries), self.keys
        return other

    def add(self, who: Caller, request: Request) -> Added | Refusal:
        """What an add does, applied to the model."""
        if request.get("layer") == INVALID:
            return Refusal(422, "invalid_argument")
        turns = request.get("messages")
        if turns is None:
            return self._add_one(who, request, request.get("kind", "memory"))
        shared = {name: value for name, value in request.items() if name != "messages"}
        added = [self._add_one(who, {**shared, **turn}, "message") for turn in turns]
        return Added([entry for one in added if isinstance(one, Added) for entry in one.entries], False)

    def _add_one(self, who: Caller, request: Request, kind: str) -> Added | Refusal:
        entry = Entry(
            partition=who.home,
            kind=kind,
            layer=request.get("layer") or ("l1_raw" if kind == "message" else "l2_fact"),
            content=request["content"],
            tags=list(request.get("tags", [])),
            frame=request.get("frame"),
            custom=request.get("metadata", {}),
            session_id=request.get("session_id"),
            position=request.get("session_position"),
        )
        policy = request.get("on_duplicate", "merge")
        equal = next((old for old in self.entries if _equal(old, entry)), None)
        if kind == "memory" and policy != "keep" and equal is not None:
            if policy == "error":
                return Refusal(409, "duplicate")
            tags = list(dict.fromkeys([*equal.tags, *entry.tags]))
            if tags != equal.tags:
                equal.tags, equal.version = tags, equal.version + 1
            return Added([equal], True)
        taken = [
            old.position
            for old in self.entries
            if (old.partition, old.session_id) == (entry.partition, entry.session_id)
            and entry.session_id is not None
            and old.position is not None
        ]
        if entry.position in taken:
            return Refusal(409, "position_taken")
        if entry.position is None and kind == "message" and entry.session_id is not None:
            entry.position = max(taken, default=-1) + 1
        self.entries.append(entry)
        return Added([entry], False)

    def batch(self, who: Caller, items: list[Request], *, atomic: bool) -> list[Added | Refusal] | Refusal:
        """What a batch does: of an atomic one all or nothing, and the first refusal."""
        trial = self.copy()
        outcomes = [trial.add(who, item) for item in items]
        refusals = [one for one in outcomes if isinstance(one, Refusal)]
        if atomic and refusals:
            # What is not even valid is found before anything is stored.
            return next((one for one in refusals if one.status == 422), refusals[0])
        return [self.add(who, item) for item in items]

    def neighbours(self, entry: Entry) -> tuple[str | None, str | None]:
        """Ids before and after an entry in its session."""
        if entry.session_id is None or entry.position is None:
            return None, None
        seats = sorted(
            (old.position, old.memory_id)
            for old in self.entries
            if (old.partition, old.session_id) == (entry.partition, entry.session_id)
            and old.position is not None
        )
        at = seats.index((entry.position, entry.memory_id))
        return (
            seats[at - 1][1] if at else None,
            seats[at + 1][1] if at + 1 < len(seats) else None,
        )


def _equal(old: Entry, new: Entry) -> bool:
    """Whether one is a duplicate of the other. Validity is not used here, so it is always the same."""
    return (
        old.kind == new.kind == "memory"
        and (old.partition, old.layer, old.frame) == (new.partition, new.layer, new.frame)
        and content_key(old.content) == content_key(new.content)
    )
