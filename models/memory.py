"""The one record. Whatever is remembered is a `Memory`: the fields that are fixed when it is written,
and a `State` of those that later acts may change, which is versioned in the ledger."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from models.authority import Authority
from models.facts import Fact
from models.folding import frame_key
from models.layers import HIDDEN, Kind, Layer, Status
from models.provenance import Details, MemoryDetails, Provenance, details_from, frozen
from models.scope import Partition
from models.standing import Standing


@dataclass(frozen=True, slots=True)
class State:
    """The changeable part of a memory. Each stored change makes a new version. Times: epoch ms, UTC."""

    status: Status = "active"
    status_reason: str | None = None
    tags: tuple[str, ...] = ()
    custom: str = "{}"  # the writer's metadata as JSON text, verbatim
    supersedes: tuple[str, ...] = ()  # direct neighbours in the chain, not the whole chain
    superseded_by: tuple[str, ...] = ()
    evidence_ids: tuple[str, ...] = ()
    valid_from: int | None = None
    valid_until: int | None = None
    confidence: float = 0.0
    stated_confidence: float | None = None
    frame: str | None = None
    provenance: Provenance = Provenance()
    standing: Standing = Standing()

    @property
    def frame_key(self) -> str | None:
        """Equal for two spellings of one frame, `Team-A` and `team-a`; None for no frame."""
        return None if self.frame is None else frame_key(self.frame)

    def as_row(self) -> dict[str, Any]:
        """A JSON-ready dict of what differs from the defaults, so that a row stays short."""
        row = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}
        for name in ("provenance", "standing"):
            if name in row:
                row[name] = row[name].as_row()
        return row

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "State":
        """The inverse of `as_row`."""
        values = frozen(row)
        if "provenance" in values:
            values["provenance"] = Provenance.from_row(values["provenance"])
        if "standing" in values:
            values["standing"] = Standing.from_row(values["standing"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Memory:
    """One remembered thing. `number` is its int64 id among its kind in its scope (observations view);
    `seq` is the ledger's event sequence at which it was written and orders everything.
    `session_key` names its session for positions and neighbours, unique among hosts and roots."""

    memory_id: str
    partition: Partition
    kind: Kind
    layer: Layer
    content: str
    source_authority: Authority
    gmt_created: int = 0  # this and the next two: 0 until the ledger gives the memory its place
    seq: int = 0
    number: int = 0
    memory_at: int | None = None
    actor: str | None = None
    project: str = ""
    session_id: str | None = None
    session_key: str | None = None
    session_position: int | None = None
    origin_id: str | None = None
    source_raw_memory_id: str | None = None
    details: Details | None = None
    version: int = 1
    state: State = State()

    @property
    def hidden(self) -> bool:
        """Whether its text may be shown to nobody (forgotten or purged)."""
        return self.state.status in HIDDEN

    @property
    def is_latest(self) -> bool:
        return not self.state.superseded_by

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What it asserts in so many words; only a curated memory does."""
        return self.details.facts if isinstance(self.details, MemoryDetails) else ()

    def with_state(self, version: int, state: State) -> "Memory":
        return replace(self, version=version, state=state)

    def as_row(self) -> dict[str, Any]:
        """The whole record as a JSON-ready dict: what the vector store keeps under `record`."""
        row = {f.name: getattr(self, f.name) for f in fields(self)}
        row["partition"] = list(self.partition)
        row["state"] = self.state.as_row()
        row["details"] = None if self.details is None else asdict(self.details)
        return {name: value for name, value in row.items() if value is not None}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Memory":
        """The inverse of `as_row`."""
        values = dict(row)
        values["partition"] = Partition(*row["partition"])
        values["state"] = State.from_row(row["state"])
        values["details"] = details_from(row["kind"], row.get("details"))
        return cls(**values)


def united(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Both, each once, in their order: ids or tags of a state."""
    return tuple(dict.fromkeys((*first, *second)))
