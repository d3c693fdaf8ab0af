"""What must hold of facts, conflicts and standings: each is in the tables what the records say of it, and a
memory stands among the others as the open conflicts have it."""

from collections.abc import Iterator

from sqlalchemy import Connection, select

from models.authority import rank
from stores.appraisal import MAX_NAMED, READABLE
from stores.findings import Finding
from stores.record_checks import Known, Records
from stores.schema import conflicts, edges, fact_keys


def check_facts(connection: Connection, records: Records) -> Iterator[Finding]:
    """What the rules and the graph know of the memories' facts is what these assert."""
    wrong = unlike_facts(connection, records)
    if wrong:
        what = "memories assert other facts than the rules or the graph know of"
        yield Finding("facts", what, tuple(wrong), "facts")


def unlike_facts(connection: Connection, records: Records) -> list[str]:
    """The ids of the memories whose rows of facts, or links to what these are about, are others."""
    keys: dict[str, set[tuple[str, str, bool]]] = {}
    query = select(fact_keys.c.memory_id, fact_keys.c.key, fact_keys.c.object_key, fact_keys.c.single_valued)
    for id, key, object_key, single in connection.execute(query):
        keys.setdefault(id, set()).add((key, object_key, single))
    entities: dict[str, set[str]] = {}
    links = select(edges.c.from_id, edges.c.to_id).where(edges.c.type == "asserts", edges.c.to_seq.is_(None))
    for id, entity in connection.execute(links):
        entities.setdefault(id, set()).add(entity)
    return [
        id
        for id, one in records.known.items()
        if records.alive(id)
        and not (one.facts == keys.get(id, set()) and one.entities == entities.get(id, set()))
    ]


def check_standings(connection: Connection, records: Records) -> Iterator[Finding]:
    """Memories name the conflicts that are open, and their confidence follows; each open conflict is a link,
    and nothing else is one."""
    wrong = unlike_standings(connection, records)
    if wrong:
        what = "memories stand otherwise than their open conflicts and sources have it"
        yield Finding("standings", what, tuple(wrong), "standings")
    missing, extra = unlike_links(connection)
    if missing or extra:
        names = tuple(f"{a} conflicts_with {b}" for a, b in sorted(missing | extra))
        yield Finding(
            "conflicts", "links between memories are not those of the open conflicts", names, "conflicts"
        )


def unlike_standings(connection: Connection, records: Records) -> list[str]:
    """The ids of those whose standing is not what follows from the open conflicts, or whose confidence does
    not follow from it."""
    against: dict[str, list[tuple[str, Known]]] = {}
    query = select(conflicts.c.conflict_id, conflicts.c.a_id, conflicts.c.b_id)
    for conflict_id, a, b in connection.execute(query.where(conflicts.c.resolved_at.is_(None))):
        for id, other in ((a, b), (b, a)):
            one, opponent = records.known.get(id), records.known.get(other)
            if one is None or opponent is None:
                continue
            if one.status in READABLE and opponent.status in READABLE:
                against.setdefault(id, []).append((conflict_id, opponent))
    return [
        id
        for id, one in records.known.items()
        if records.alive(id) and not (one.sure and _stands(one, sorted(against.get(id, []))))
    ]


def _stands(one: Known, against: list[tuple[str, Known]]) -> bool:
    own, standing = rank(one.authority), one.standing
    ranks = [rank(other.authority) for _, other in against]
    return (standing.conflicts, standing.contested, standing.outranked) == (
        tuple(conflict_id for conflict_id, _ in against[:MAX_NAMED]),
        any(other >= own for other in ranks),
        any(other > own for other in ranks),
    )


def unlike_links(connection: Connection) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The ends of the links of open conflicts that are missing, and of those that are too many."""
    rows = select(conflicts.c.a_id, conflicts.c.b_id).where(conflicts.c.resolved_at.is_(None))
    links = select(edges.c.from_id, edges.c.to_id).where(
        edges.c.type == "conflicts_with", edges.c.to_seq.is_(None)
    )
    wanted = {(row[0], row[1]) for row in connection.execute(rows)}
    there = {(row[0], row[1]) for row in connection.execute(links)}
    return wanted - there, there - wanted
