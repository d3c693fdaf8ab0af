"""The lines of an export: a header, a line for each memory with its whole history, and an end. What was
forgotten comes along, and stays forgotten; of what was purged there is the id only: a chain may name it, and
it must not come back. The format is versioned; what a reader does not know it refuses, rather than lose it.

    {"format":"brain-memory-export","version":1,"exported_at":…,"filters":{…}}
    {"memory_id":…,"product":…,…,"versions":[{"version":1,"at":…,"state":{…}}],"links":[…],"conflicts":[…]}
    {"memory_id":…,"product":…,…,"version":3,"gone":true}
    {"end":{"memories":…,"links":…,"gone":…}}
"""

import re
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, ValidationError

from models import verbatim
from models.authority import Authority
from models.errors import InvalidArgument, invalid
from models.keys import Name
from models.layers import Kind, Layer
from models.links import EdgeType
from models.memory import Memory, State
from models.provenance import Details, MemoryDetails, MessageDetails, ObservationDetails, SummaryDetails
from models.requests import Content, EpochMs, Label, MemoryId, Request, limit_metadata
from models.scope import Partition
from models.verdict import Rule

FORMAT, VERSION = "brain-memory-export", 1

# Two of the record's fields stand under names of their own; what is null or empty is left out.
_PLAIN = (
    "kind",
    "layer",
    "content",
    "source_authority",
    "gmt_created",
    "number",
    "memory_at",
    "actor",
    "project",
    "session_id",
    "session_key",
    "session_position",
    "origin_id",
    "source_raw_memory_id",
)
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_D = TypeVar("_D")


class Link(Request):
    """A link between two memories, carried by the later of them."""

    from_id: MemoryId
    type: EdgeType
    to_id: MemoryId
    weight: Annotated[float, Field(allow_inf_nan=False)] = 1.0


class Dispute(Request):
    """A conflict between two memories, open or resolved, carried by the later of them."""

    conflict_id: Annotated[str, Field(min_length=1, max_length=64)]
    a_id: MemoryId
    b_id: MemoryId
    rule: Rule
    reason: Annotated[str | None, Field(max_length=1024)] = None
    opened_at: EpochMs
    resolved_at: EpochMs | None = None
    adopted: MemoryId | None = None
    resolution: Annotated[str | None, Field(max_length=1024)] = None


class Seat(Request):
    """A position in a session, by the session's key."""

    session_key: Annotated[str, Field(min_length=1, max_length=4096)]
    session_position: Annotated[int, Field(ge=0, lt=2**63)]


class Stood(Request):
    """A state that a memory was in. `at` None: since its import."""

    version: Annotated[int, Field(ge=1)]
    at: EpochMs | None = None
    state: State


class MemoryLine(Request, Generic[_D]):
    """A line of one kind of memory."""

    memory_id: MemoryId
    product: Name
    agent: Name
    user: Name
    kind: Kind
    layer: Layer
    content: Content
    source_authority: Authority
    gmt_created: EpochMs | None = None
    number: Annotated[int | None, Field(ge=1, lt=2**63)] = None
    memory_at: EpochMs | None = None
    actor: Label | None = None
    project: Annotated[str, Field(max_length=1024)] = ""
    session_id: Label | None = None
    session_key: Annotated[str | None, Field(max_length=4096)] = None
    session_position: Annotated[int | None, Field(ge=0, lt=2**63)] = None
    origin_id: Label | None = None
    source_raw_memory_id: MemoryId | None = None
    details: _D | None = None
    versions: Annotated[list[Stood], Field(min_length=1)]
    links: Annotated[list[Link], Field(default_factory=list)]
    conflicts: Annotated[list[Dispute], Field(default_factory=list)]
    vacated: Annotated[list[Seat], Field(default_factory=list)]


class GoneLine(Request):
    """A line of what is no more than an id."""

    memory_id: MemoryId
    product: Name
    agent: Name
    user: Name
    kind: Kind
    layer: Layer
    source_authority: Authority
    gmt_created: EpochMs
    number: Annotated[int, Field(ge=1, lt=2**63)]
    version: Annotated[int, Field(ge=1, lt=2**31)]
    gone: Literal[True]


_LINES: dict[Any, type[MemoryLine[Any]]] = {
    "memory": MemoryLine[MemoryDetails],
    "message": MemoryLine[MessageDetails],
    "observation": MemoryLine[ObservationDetails],
    "session_summary": MemoryLine[SummaryDetails],
}


@dataclass(frozen=True, slots=True)
class Carried:
    """A memory with its history. `memory` is in the last of its states, its `seq` is 0, its `number` 0 when
    it has none; `history` are the states from version 1 on and since when each held, epoch ms; `vacated` are
    the places that it has left, which nobody else may have. Without a history it is gone."""

    memory: Memory
    written: int | None
    history: tuple[tuple[int | None, State], ...] = ()
    links: tuple[Link, ...] = ()
    conflicts: tuple[Dispute, ...] = ()
    vacated: tuple[Seat, ...] = ()

    def moved(self, product: str | None, agent: str | None, user: str | None) -> "Carried":
        """The same in another place, where one is named. A user that is named by the product's name is the
        default one, and stays it."""
        old = self.memory.partition
        default = old.user == old.product and user is None and product is not None
        there = Partition(
            product or old.product, agent or old.agent, user or (product if default else None) or old.user
        )
        return replace(self, memory=replace(self.memory, partition=there))


def header(at: int, filters: dict[str, Any]) -> dict[str, Any]:
    """The first line. `at` is epoch ms."""
    return {"format": FORMAT, "version": VERSION, "exported_at": at, "filters": filters}


def line_of(carried: Carried) -> dict[str, Any]:
    """A memory as a JSON-ready dict, always in the same order."""
    memory = carried.memory
    row: dict[str, Any] = {"memory_id": memory.memory_id, **memory.partition._asdict()}
    if not carried.history:
        names = ("kind", "layer", "source_authority", "gmt_created", "number", "version")
        return row | {name: getattr(memory, name) for name in names} | {"gone": True}
    row |= {name: value for name in _PLAIN if (value := getattr(memory, name)) not in (None, "")}
    if memory.details is not None:
        row["details"] = asdict(memory.details)
    row["versions"] = [
        {"version": version, "at": at, "state": _state_row(state)}
        for version, (at, state) in enumerate(carried.history, 1)
    ]
    if carried.links:
        row["links"] = [link.model_dump() for link in carried.links]
    if carried.conflicts:
        row["conflicts"] = [one.model_dump(exclude_none=True) for one in carried.conflicts]
    if carried.vacated:
        row["vacated"] = [seat.model_dump() for seat in carried.vacated]
    return row


def carried_from(line: bytes) -> Carried:
    """The inverse of `line_of`, of a line as JSON text. Raises BadJson or InvalidArgument."""
    row = verbatim.parse(line)
    if not isinstance(row, dict):
        raise invalid("line", "must be a JSON object")
    customs = _take_customs(row)
    verbatim.check(row)
    kind = row.get("kind")
    if not isinstance(kind, str) or kind not in _LINES:
        raise invalid("kind", f"must be one of {', '.join(_LINES)}")
    # As text once more: only there a list is a tuple and an object a record, and nothing else is.
    text = verbatim.dump(row)
    try:
        if "gone" in row:
            return _gone(GoneLine.model_validate_json(text, strict=True))
        return _carried(_LINES[kind].model_validate_json(text, strict=True), customs)
    except ValidationError as error:
        raise _first(error) from None


def _gone(line: GoneLine) -> Carried:
    memory = Memory(
        memory_id=_checked_id(line.memory_id),
        partition=Partition(line.product, line.agent, line.user),
        kind=line.kind,
        layer=line.layer,
        content="",
        source_authority=line.source_authority,
        gmt_created=line.gmt_created,
        seq=0,
        number=line.number,
        version=line.version,
        state=State(status="purged"),
    )
    return Carried(memory, line.gmt_created)


def _carried(line: MemoryLine[Any], customs: dict[int, str]) -> Carried:
    if [one.version for one in line.versions] != [*range(1, len(line.versions) + 1)]:
        raise invalid("versions", "must be numbered from 1 without gaps")
    for index, one in enumerate(line.versions):
        if one.state.status == "purged":
            raise invalid(f"versions[{index}].state.status", "what was purged can't be imported")
    history = tuple(
        (one.at, replace(one.state, custom=customs.get(index, "{}")))
        for index, one in enumerate(line.versions)
    )
    plain = {name: getattr(line, name) for name in _PLAIN if name not in ("gmt_created", "number")}
    details: Details | None = line.details
    memory = Memory(
        memory_id=_checked_id(line.memory_id),
        partition=Partition(line.product, line.agent, line.user),
        gmt_created=line.gmt_created or 0,
        seq=0,
        number=line.number or 0,
        details=details,
        version=len(history),
        state=history[-1][1],
        **plain,
    )
    links, conflicts, vacated = tuple(line.links), tuple(line.conflicts), tuple(line.vacated)
    return Carried(memory, line.gmt_created, history, links, conflicts, vacated)


def _checked_id(memory_id: str) -> str:
    if not _ID.fullmatch(memory_id):
        raise invalid("memory_id", "must be a UUID of version 7 in small letters")
    return memory_id


def _state_row(state: State) -> dict[str, Any]:
    row = state.as_row()
    if "custom" in row:
        row["custom"] = verbatim.parse(state.custom.encode())
    if "standing" in row:  # whose parts have names here, and none in the ledger
        named = asdict(state.standing)
        row["standing"] = {name: named[name] for name in row["standing"]}
    return row


def _take_customs(row: dict[str, Any]) -> dict[int, str]:
    """The writer's own metadata as JSON text, by the index of its version; taken out of the line, whose rules
    about depth are not for it."""
    versions = row.get("versions")
    found: dict[int, str] = {}
    for index, one in enumerate(versions if isinstance(versions, list) else ()):
        state = one.get("state") if isinstance(one, dict) else None
        if isinstance(state, dict) and "custom" in state:
            custom, path = state.pop("custom"), f"versions[{index}].state.custom"
            if not isinstance(custom, dict):
                raise invalid(path, "must be a JSON object")
            verbatim.check(custom, path, 1)
            try:
                found[index] = verbatim.dump(limit_metadata(custom))
            except ValueError as error:
                raise invalid(path, str(error)) from None
    return found


def _first(error: ValidationError) -> InvalidArgument:
    found = error.errors(include_url=False, include_input=False)[0]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"]).lstrip(".")
    message = found["msg"].removeprefix("Value error, ")
    return invalid(field[:200] or "line", message[:1].lower() + message[1:])
