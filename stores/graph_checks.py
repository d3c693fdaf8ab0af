"""Whether a partition in memory is what the ledger says, read in another way than the graph is built."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from sqlalchemy import Connection, or_, select

from models.layers import HIDDEN
from models.scope import Partition
from stores.findings import Finding
from stores.ledger_checks import stored_fingerprint
from stores.loading import load_partition
from stores.resident import ResidentPartition
from stores.schema import edges, memories, vectors, versions

CHECK = "graph"
_SEATED = ("next", "in_session")  # follow from the sessions; no rows of their own
_SHOWN: Any = versions.c.to_seq.is_(None) & versions.c.status.not_in(HIDDEN)
_MOVE = "report it: the ledger is whole, and loading it goes wrong"


class Node(NamedTuple):
    """A memory as a read or a walk would see it in memory."""

    version: int
    links: frozenset[tuple[str, str, str]]  # from, type, to; both ends shown, where they are memories
    around: tuple[str | None, str | None]  # its neighbours in its session
    has_vectors: bool


def partitions(connection: Connection) -> list[Partition]:
    """Every partition that has a memory."""
    query = select(memories.c.product, memories.c.agent, memories.c.user).distinct()
    return sorted(Partition(*tuple(row)) for row in connection.execute(query))


def describe(resident: ResidentPartition, outside: set[str]) -> dict[str, Node]:
    """All that is held in memory of a partition. `outside` are the memories of others that its links lead to
    and that are shown: a link to a hidden one may be held or not, since walks pass it by."""
    found: dict[str, Node] = {}
    own = set(resident.memory_ids())
    shown = own | outside
    for id in own:
        memory = resident.graph.memory(id)
        if memory is not None:
            links = frozenset(
                (edge.from_id, edge.type, edge.to_id)
                for edge in resident.graph.edges(id)
                if edge.type == "asserts"
                or (edge.type not in _SEATED and {edge.from_id, edge.to_id} <= shown)
            )
            around = resident.graph.neighbours(memory)
            found[id] = Node(memory.version, links, around, resident.has_vectors(id))
    return found


def check_partition(connection: Connection, partition: Partition) -> Iterator[Finding]:
    """Build it from the ledger, and compare it with the rows."""
    name = "/".join(partition)
    try:
        fingerprint = stored_fingerprint(connection)
        built = ResidentPartition(partition, load_partition(connection, partition, fingerprint))
        found = describe(built, neighbours(connection, partition))
        built.graph.clear()
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        yield Finding(CHECK, f"a partition can't be loaded: {type(error).__name__}", (name,))
        return
    wanted = from_rows(connection, partition)
    wrong = [id for id in sorted(found.keys() | wanted.keys()) if found.get(id) != wanted.get(id)]
    if wrong:
        yield Finding(CHECK, "memories are others in memory than in the ledger", tuple(wrong), move=_MOVE)


def neighbours(connection: Connection, partition: Partition) -> set[str]:
    """The memories at either end of the partition's links, of whatever partition, that are shown."""
    mine = select(memories.c.memory_id).where(_own(partition))
    found: set[str] = set()
    for here, there in ((edges.c.from_id, edges.c.to_id), (edges.c.to_id, edges.c.from_id)):
        query = select(there).join(versions, (versions.c.memory_id == there) & _SHOWN)
        found.update(connection.scalars(query.where(edges.c.to_seq.is_(None), here.in_(mine))))
    return found


def _own(partition: Partition) -> Any:
    return (
        (memories.c.product == partition.product)
        & (memories.c.agent == partition.agent)
        & (memories.c.user == partition.user)
    )


def from_rows(connection: Connection, partition: Partition) -> dict[str, Node]:
    """The same, from the rows."""
    fingerprint = stored_fingerprint(connection)
    own = _own(partition)
    of_memory = versions.c.memory_id == memories.c.memory_id
    rows = connection.execute(
        select(memories.c.memory_id, versions.c.version, memories.c.session_key, memories.c.session_position)
        .join(versions, of_memory)
        .where(own, _SHOWN)
        .order_by(memories.c.session_key, memories.c.session_position)
    ).all()
    ids = {row.memory_id for row in rows}
    shown = ids | neighbours(connection, partition)
    links: dict[str, set[tuple[str, str, str]]] = {id: set() for id in ids}
    mine = select(memories.c.memory_id).where(own)
    touching = or_(edges.c.from_id.in_(mine), edges.c.to_id.in_(mine))
    query = select(edges.c.from_id, edges.c.type, edges.c.to_id).where(edges.c.to_seq.is_(None), touching)
    for from_id, type, to_id in connection.execute(query):
        if from_id in shown and (type == "asserts" or to_id in shown):
            for id in {from_id, to_id} & ids:
                links[id].add((from_id, type, to_id))
    embedded = select(vectors.c.memory_id).where(vectors.c.fingerprint == fingerprint)
    with_vectors = set(connection.scalars(embedded.where(vectors.c.memory_id.in_(mine)).distinct()))
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    seated = [row for row in rows if row.session_key is not None and row.session_position is not None]
    for left, right in pairwise(seated):
        if left.session_key == right.session_key:
            before[right.memory_id], after[left.memory_id] = left.memory_id, right.memory_id
    return {
        row.memory_id: Node(
            row.version,
            frozenset(links[row.memory_id]),
            (before.get(row.memory_id), after.get(row.memory_id)),
            row.memory_id in with_vectors,
        )
        for row in rows
    }


def differing(live: dict[str, Node], fresh: dict[str, Node]) -> set[tuple[str, Node | None, Node | None]]:
    """What memory and the ledger don't agree about. Writes go on meanwhile: what is truly wrong is found so
    every time that one looks."""
    ids = live.keys() | fresh.keys()
    return {(id, live.get(id), fresh.get(id)) for id in ids if live.get(id) != fresh.get(id)}
