"""What must hold of the records themselves: each can be read, is the text that was written, and agrees with
the others about the chains and with the tables that were made from it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from sqlalchemy import Connection, select

from models.authority import Authority
from models.confidence import confidence_of
from models.draft import content_key
from models.layers import KINDS, LAYERS, STATUSES, Status
from models.links import EdgeType
from models.memory import Memory
from models.standing import Standing
from stores.changes import Edge
from stores.findings import Finding
from stores.rows import memory_from, select_memories
from stores.schema import edges, memories, tags, versions
from stores.topics import topic_values

_LINEAGE = ("supersedes", "derived_from", "evidence_for")


class Known(NamedTuple):
    """What the checks need of a record; not its text."""

    status: Status
    seq: int
    supersedes: tuple[str, ...]
    superseded_by: tuple[str, ...]
    evidence_ids: tuple[str, ...]
    raw: str | None
    tags: tuple[str, ...]
    authority: Authority
    facts: frozenset[tuple[str, str, bool]]  # key, object's key, single-valued
    entities: frozenset[str]
    topic: tuple[Any, ...] | None  # its row in `topics`
    standing: Standing
    sure: bool  # its confidence is what follows from its standing


@dataclass(frozen=True, slots=True)
class Records:
    """Every memory that can be read, by id, and the faults of the others and of their texts."""

    known: dict[str, Known] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)  # fault -> ids

    def alive(self, memory_id: str) -> bool:
        """Whether there is such a memory, hidden or not, that was not purged."""
        found = self.known.get(memory_id)
        return found is not None and found.status != "purged"


def read_records(connection: Connection) -> Records:
    """All of them, in one pass."""
    records = Records()
    query = select_memories().add_columns(versions.c.status, memories.c.content_key)
    for *row, status, key in connection.execute(query.order_by(memories.c.seq)):
        try:
            memory = memory_from(row)
            fault = _fault(memory, status, key)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            memory, fault = None, f"records can't be read: {type(error).__name__}"
        if fault is not None:
            records.faults.setdefault(fault, []).append(row[3])
        if memory is not None:
            records.known[memory.memory_id] = _known(memory)
    return records


def _fault(memory: Memory, status: str, key: str) -> str | None:
    if memory.kind not in KINDS or memory.layer not in LAYERS or memory.state.status not in STATUSES:
        return "records have a kind, layer or status that there is not"
    if memory.state.status != status:
        return "versions have another status than their state"
    if status != "purged" and content_key(memory.content) != key:
        return "texts are not those that were written: their digests differ"
    if status == "purged" and memory.content:
        return "texts are left of memories that were purged"
    return None


def _known(memory: Memory) -> Known:
    state = memory.state
    return Known(
        state.status,
        memory.seq,
        state.supersedes,
        state.superseded_by,
        state.evidence_ids,
        memory.source_raw_memory_id,
        state.tags,
        memory.source_authority,
        frozenset((fact.key, fact.object_key, fact.single_valued) for fact in memory.facts),
        frozenset(entity for fact in memory.facts for entity in fact.entities),
        next((tuple(row.values()) for row in topic_values(memory)), None),
        state.standing,
        # What no rule of trust has touched may be older than the formula.
        state.standing == Standing() or state.confidence == confidence_of(memory).value,
    )


def check_records(records: Records) -> Iterator[Finding]:
    """Every record can be read and says what was written."""
    for fault, ids in records.faults.items():
        yield Finding("records", fault, tuple(ids))


def check_chains(records: Records) -> Iterator[Finding]:
    """Both ends of a link of a chain say the same, nobody has two successors, a chain ends at one head and is
    no circle. What was purged is no more than a name at the end of a chain."""
    wrong: dict[str, list[str]] = {}
    for id, one in records.known.items():
        if one.status != "purged":
            for fault in _chain_faults(records, id, one):
                wrong.setdefault(fault, []).append(id)
    for fault, ids in wrong.items():
        yield Finding("chains", fault, tuple(ids))


def _chain_faults(records: Records, id: str, one: Known) -> Iterator[str]:
    newer = one.superseded_by
    if len(newer) > 1:
        yield "memories have two successors"
    if one.status == ("active" if newer else "superseded"):
        yield "memories have a status that their chain contradicts"
    if any(other not in records.known for other in (*newer, *one.supersedes)):
        yield "memories name a neighbour in their chain that is not there"
    elif any(records.alive(other) and id not in records.known[other].supersedes for other in newer) or any(
        id not in records.known[other].superseded_by for other in one.supersedes
    ):
        yield "memories name a neighbour in their chain that does not name them"
    passed = {id}
    while newer and newer[0] in records.known:
        if newer[0] in passed:
            yield "chains go in a circle"
            return
        passed.add(newer[0])
        newer = records.known[newer[0]].superseded_by


def check_links(connection: Connection, records: Records) -> Iterator[Finding]:
    """The links that follow from what was written are there, and none that contradicts it."""
    missing, extra = lineage(connection, records)
    for what, found in (
        ("links that the memories' states name are missing", missing),
        ("links are there that the memories' states do not name", extra),
    ):
        if found:
            names = tuple(f"{edge.from_id} {edge.type} {edge.to_id}" for edge in found)
            yield Finding("links", what, names, "links")


def lineage(connection: Connection, records: Records) -> tuple[list[Edge], list[Edge]]:
    """The links that are missing, and those that are too many."""
    wanted = {edge for id, one in records.known.items() if records.alive(id) for edge in _links(id, one)}
    wanted = {edge for edge in wanted if records.alive(edge.from_id) and records.alive(edge.to_id)}
    query = select(edges.c.from_id, edges.c.type, edges.c.to_id).where(
        edges.c.to_seq.is_(None), edges.c.type.in_(_LINEAGE)
    )
    there = {Edge(a, cast("EdgeType", type), b) for a, type, b in connection.execute(query)}
    # More may be derived than was at the time of writing.
    spare = (edge for edge in there - wanted if edge.type != "derived_from")
    extra = [edge for edge in spare if records.alive(edge.from_id) and records.alive(edge.to_id)]
    order: Any = lambda edge: (edge.from_id, edge.type, edge.to_id)  # noqa: E731
    return sorted(wanted - there, key=order), sorted(extra, key=order)


def _links(id: str, one: Known) -> Iterator[Edge]:
    yield from (Edge(id, "supersedes", old) for old in one.supersedes)
    yield from (Edge(evidence, "evidence_for", id) for evidence in one.evidence_ids)
    if one.raw is not None:
        yield Edge(id, "derived_from", one.raw)


def check_tags(connection: Connection, records: Records) -> Iterator[Finding]:
    """The tags that lists are filtered by are those of the memories."""
    current = (versions.c.memory_id == tags.c.memory_id) & (versions.c.version == tags.c.version)
    query = select(tags.c.memory_id, tags.c.tag).join(versions, current & versions.c.to_seq.is_(None))
    there: dict[str, set[str]] = {}
    for memory_id, tag in connection.execute(query):
        there.setdefault(memory_id, set()).add(tag)
    wrong = [
        id for id, one in records.known.items() if records.alive(id) and there.get(id, set()) != set(one.tags)
    ]
    if wrong:
        yield Finding("tags", "memories have other tags in lists than in their state", tuple(wrong), "tags")
