"""The plain model that the state machine compares a brain with: a dict of records and the rules of an add.
`tests.state.model_changes` has the rules of everything that comes after."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from models.authority import Authority, lowest, rank
from models.draft import content_key
from models.scope import Caller, Partition

Request = dict[str, Any]
Link = tuple[str, str, str]  # from, type, to
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
    authority: Authority = "informal"
    evidence: list[str] = field(default_factory=list)
    raw: str | None = None
    status: str = "active"
    reason: str | None = None
    supersedes: list[str] = field(default_factory=list)
    superseded_by: list[str] = field(default_factory=list)
    memory_id: str = ""
    shown: dict[str, Any] = field(default_factory=dict)
    equal: "Entry | None" = None  # of a lower authority, which it replaces as soon as its id is known

    @property
    def readable(self) -> bool:
        """Whether a conflict of it counts."""
        return self.status in ("active", "conflicted")

    @property
    def hidden(self) -> bool:
        return self.status in ("forgotten", "purged")

    def change(self, **values: Any) -> None:
        """To be looked at anew, if anything differs."""
        before = {name: getattr(self, name) for name in values}
        if before != values:
            for name, value in values.items():
                setattr(self, name, value)
            self.shown = {}


@dataclass
class Added:
    """The entries that an add answers for, in order, and whether they were there before."""

    entries: list[Entry]
    duplicate: bool


@dataclass
class Known:
    """What an idempotency key stands for: a request, what came of it, and every id that it names."""

    request: Request
    outcome: Any
    names: str


class Model:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.links: set[Link] = set()
        self.lost: list[tuple[Entry, Entry]] = []  # open conflicts: who lost, and to whom
        self.keys: dict[tuple[Partition, str, str], Known] = {}

    def reachable(self, who: Caller) -> list[Entry]:
        return [entry for entry in self.entries if who.reaches(entry.partition) and not entry.hidden]

    def active(self, who: Caller) -> list[Entry]:
        return [entry for entry in self.reachable(who) if entry.status == "active"]

    def entry(self, memory_id: str) -> Entry:
        return next(entry for entry in self.entries if entry.memory_id == memory_id)

    def add(self, who: Caller, request: Request) -> Added | Refusal:
        """What an add does, applied to the model."""
        if request.get("layer") == INVALID:
            return Refusal(422, "invalid_argument")
        if self._rests_on_nothing(who, request):
            return Refusal(422, "invalid_argument")
        turns = request.get("messages")
        if turns is None:
            return self._add_one(who, request, request.get("kind", "memory"))
        shared = {name: value for name, value in request.items() if name != "messages"}
        added = [self._add_one(who, {**shared, **turn}, "message") for turn in turns]
        return Added([entry for one in added if isinstance(one, Added) for entry in one.entries], False)

    def _rests_on_nothing(self, who: Caller, request: Request) -> bool:
        """Whether it names evidence that the caller can't read, or a source that is not what was said."""
        within = {entry.memory_id: entry for entry in self.reachable(who)}
        raw = request.get("source_raw_memory_id")
        wrong = raw is not None and (raw not in within or within[raw].layer != "l1_raw")
        return wrong or any(id not in within for id in request.get("evidence_ids", []))

    def _add_one(self, who: Caller, request: Request, kind: str) -> Added | Refusal:
        entry = self.draft(who, request, kind)
        policy = request.get("on_duplicate", "merge")
        equal = next((old for old in self.entries if _equal(old, entry)), None)
        if kind == "memory" and policy != "keep" and equal is not None:
            if policy == "error":
                return Refusal(409, "duplicate")
            if rank(entry.authority) > rank(equal.authority):
                return self._raise(equal, entry)
            tags = list(dict.fromkeys([*equal.tags, *entry.tags]))
            equal.change(tags=tags, evidence=list(dict.fromkeys([*equal.evidence, *entry.evidence])))
            return Added([equal], True)
        return self.store(entry)

    def _raise(self, equal: Entry, entry: Entry) -> Added | Refusal:
        """Of equal texts the one of a higher authority replaces the other."""
        entry.tags = list(dict.fromkeys([*entry.tags, *equal.tags]))
        entry.evidence = list(dict.fromkeys([*entry.evidence, *equal.evidence]))
        stored = self.store(entry)
        if isinstance(stored, Added):
            entry.equal = equal
            equal.change(status="superseded")
        return stored

    def named(self, entry: Entry, memory_id: str) -> None:
        """Now its id is known."""
        entry.memory_id = memory_id
        if entry.equal is not None:
            entry.supersedes = [entry.equal.memory_id]
            entry.equal.change(superseded_by=[memory_id])

    def draft(self, who: Caller, request: Request, kind: str) -> Entry:
        return Entry(
            partition=who.home,
            kind=kind,
            layer=request.get("layer") or ("l1_raw" if kind == "message" else "l2_fact"),
            content=request["content"],
            tags=list(request.get("tags", [])),
            frame=request.get("frame"),
            custom=request.get("metadata", {}),
            session_id=request.get("session_id"),
            position=request.get("session_position"),
            authority=self._authority(request),
            evidence=list(dict.fromkeys(request.get("evidence_ids", []))),
            raw=request.get("source_raw_memory_id"),
            supersedes=list(dict.fromkeys(request.get("supersedes", []))),
            reason=request.get("reason"),
        )

    def _authority(self, request: Request) -> Authority:
        """The lowest of its lineage."""
        own = request.get("source_authority", "informal")
        raw = request.get("source_raw_memory_id")
        return lowest([own] if raw is None else [own, self.entry(raw).authority])

    def store(self, entry: Entry) -> Added | Refusal:
        """Give an entry its place in its session, and keep it."""
        taken = [
            old.position
            for old in self.entries
            if (old.partition, old.session_id) == (entry.partition, entry.session_id)
            and entry.session_id is not None
            and old.position is not None
        ]
        if entry.position in taken:
            return Refusal(409, "position_taken")
        if entry.position is None and entry.kind == "message" and entry.session_id is not None:
            entry.position = max(taken, default=-1) + 1
        self.entries.append(entry)
        return Added([entry], False)

    def batch(self, who: Caller, items: list[Request], *, atomic: bool) -> list[Added | Refusal] | Refusal:
        """What a batch does: of an atomic one all or nothing, and the first refusal."""
        trial = type(self)()
        trial.entries = deepcopy(self.entries)
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
            (other.position, other.memory_id)
            for other in self.entries
            if (other.partition, other.session_id) == (entry.partition, entry.session_id)
            and other.position is not None
            and not other.hidden
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
        and old.status == "active"
        and (old.partition, old.layer, old.frame) == (new.partition, new.layer, new.frame)
        and content_key(old.content) == content_key(new.content)
    )
