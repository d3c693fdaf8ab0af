"""How a memory stands among the others, derived from the ledger whenever what it depends on changes: who
agrees with it, and with whom it is in open conflict."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, case, or_, select

from models.authority import Authority, rank
from models.confidence import appraised
from models.memory import Memory
from models.sources import independent
from models.verdict import Rule, agrees, contradicts
from stores.acts import Act
from stores.dependents import flag_dependents
from stores.lineage import kin_of
from stores.rows import VARIABLES, memory_from, select_memories
from stores.schema import conflicts, edges, fact_keys, memories, versions
from stores.writer import Transaction

READABLE = ("active", "conflicted")  # what a side of a conflict must be for the conflict to count
MAX_HEARD = 32  # memories that assert the same, in the order of writing; those after them change nothing
MAX_NAMED = 64  # open conflicts that a memory names; all of them count


class Opponent(NamedTuple):
    """The other side of an open conflict."""

    conflict_id: str
    memory_id: str
    authority: Authority
    rule: Rule


_a, _b = conflicts.c.a_id, conflicts.c.b_id
_OTHER = case((_a == bindparam("id"), _b), else_=_a)
_OPEN = (
    select(
        conflicts.c.conflict_id,
        _OTHER.label("other"),
        memories.c.source_authority,
        conflicts.c.rule,
        versions.c.status,
    )
    .join(memories, memories.c.memory_id == _OTHER)
    .join(versions, (versions.c.memory_id == _OTHER) & versions.c.to_seq.is_(None))
    .where(or_(_a == bindparam("id"), _b == bindparam("id")), conflicts.c.resolved_at.is_(None))
    .order_by(conflicts.c.conflict_id)
)
_SHARED = (
    select(fact_keys.c.place)
    .where(
        fact_keys.c.product == bindparam("product"),
        fact_keys.c.agent == bindparam("agent"),
        fact_keys.c.user == bindparam("user"),
        fact_keys.c.key.in_(bindparam("keys", expanding=True)),
        fact_keys.c.memory_id != bindparam("id"),
    )
    .limit(1)
)
_PROVED = select(edges.c.to_id).where(
    edges.c.from_id == bindparam("id"), edges.c.type == "evidence_for", edges.c.to_seq.is_(None)
)


def alive(transaction: Transaction, ids: Iterable[str]) -> Iterator[Memory]:
    """Memories as this write sees them, whoever's they are; tombstones left out."""
    wanted = list(dict.fromkeys(ids))
    for start in range(0, len(wanted), VARIABLES):
        some = wanted[start : start + VARIABLES]
        query = select_memories().where(memories.c.memory_id.in_(some), versions.c.status != "purged")
        yield from [memory_from(row) for row in transaction.execute(query)]


def denied(transaction: Transaction, memory: Memory, *, history: bool = False) -> list[Memory]:
    """The others of the partition, active or conflicted, that give another answer to a question of which this
    memory gives the answer. With `history` also the superseded ones of which it may be the history."""
    if not memory.facts:  # to build a condition costs more than an add may take
        return []
    wanted: ColumnElement[bool] = versions.c.status.in_(READABLE)
    if history and memory.memory_at is not None:
        later = memories.c.memory_at > memory.memory_at
        wanted = or_(wanted, and_(versions.c.status == "superseded", later))
    other = [
        and_(
            fact_keys.c.key == fact.key,
            fact_keys.c.object_key != fact.object_key,
            *(() if fact.single_valued else (fact_keys.c.single_valued.is_(True),)),
        )
        for fact in memory.facts
    ]
    return [one for one in _with_facts(transaction, memory, other, wanted) if contradicts(memory, one)]


def agreeing(transaction: Transaction, memory: Memory) -> list[Memory]:
    """The others of the partition, active or conflicted, that assert a fact with this one; MAX_HEARD at the
    most."""
    if not memory.facts:
        return []
    same = [
        (fact_keys.c.key == fact.key) & (fact_keys.c.object_key == fact.object_key) for fact in memory.facts
    ]
    found = _with_facts(transaction, memory, same, versions.c.status.in_(READABLE), MAX_HEARD)
    return [one for one in found if agrees(memory, one)]


def _with_facts(
    transaction: Transaction,
    memory: Memory,
    facts: Sequence[ColumnElement[bool]],
    wanted: ColumnElement[bool],
    limit: int | None = None,
) -> list[Memory]:
    if not _shares(transaction, memory):
        return []
    product, agent, user = memory.partition
    having = select(fact_keys.c.memory_id).where(
        fact_keys.c.product == product,
        fact_keys.c.agent == agent,
        fact_keys.c.user == user,
        or_(*facts),
        fact_keys.c.memory_id != memory.memory_id,
    )
    query = select_memories().where(memories.c.memory_id.in_(having), wanted)
    return [memory_from(row) for row in transaction.execute(query.order_by(memories.c.seq).limit(limit))]


def _shares(transaction: Transaction, memory: Memory) -> bool:
    """Whether any other memory answers a question that this one answers. Mostly none does, and then what the
    write has collected need not be written out for it."""
    product, agent, user = memory.partition
    keys = {fact.key for fact in memory.facts}
    if any((*memory.partition, key) in transaction.new_contents for key in keys):
        return True
    asked = {"product": product, "agent": agent, "user": user, "keys": keys, "id": memory.memory_id}
    return transaction.connection.execute(_SHARED, asked).first() is not None


def appraise(transaction: Transaction, memory: Memory) -> Memory:
    """The memory with its standing as the ledger has it now. It may be one that is not stored yet."""
    saying = (*alive(transaction, memory.state.evidence_ids), *agreeing(transaction, memory))
    heard = {one.memory_id: one for one in saying if one.state.status == "active"}
    kin = kin_of(transaction.connection, memory, list(heard))
    # One that is not stored yet contradicts nobody.
    met = memory.seq and memory.state.status in READABLE
    against = opponents(transaction, memory) if met else []
    own = rank(memory.source_authority)
    ranks = [rank(one.authority) for one in against]
    standing = replace(
        memory.state.standing,
        agreements=independent(memory, heard.values(), kin, {one.memory_id for one in against}),
        conflicts=tuple(one.conflict_id for one in against[:MAX_NAMED]),
        contested=any(other >= own for other in ranks),
        outranked=any(other > own for other in ranks),
    )
    return replace(memory, state=appraised(memory, standing))


def reappraise(act: Act, transaction: Transaction, ids: Iterable[str]) -> None:
    """Bring the standing of stored memories up to date. What rests on the newly contested ones is flagged."""
    contested = []
    for memory in alive(transaction, ids):
        state = appraise(transaction, memory).state
        if state != memory.state:
            changed = act.change(transaction, memory, state, ("confidence",))
            if state.standing.contested and not memory.state.standing.contested:
                contested.append(changed)
    flag_dependents(act, transaction, contested)


def settle(
    act: Act, transaction: Transaction, moved: Sequence[Memory], fallen: Sequence[Memory] = ()
) -> None:
    """After memories changed what others see of them: bring up to date whoever counted on them or contradicts
    them, and flag what rests on those that have `fallen`."""
    near = [id for memory in moved for id in (memory.memory_id, *touching(transaction, memory))]
    reappraise(act, transaction, near)
    flag_dependents(act, transaction, fallen)


def touching(transaction: Transaction, memory: Memory) -> Iterator[str]:
    """The ids of those whose standing depends on a memory's."""
    yield from (row.other for row in transaction.execute(_OPEN, {"id": memory.memory_id}).all())
    yield from (other.memory_id for other in agreeing(transaction, memory))
    yield from transaction.execute(_PROVED, {"id": memory.memory_id}).scalars()


def opponents(transaction: Transaction, memory: Memory) -> list[Opponent]:
    """The other sides of its open conflicts that can be read, the oldest conflict first."""
    rows = transaction.execute(_OPEN, {"id": memory.memory_id}).all()
    return [Opponent(*tuple(row)[:4]) for row in rows if row.status in READABLE]


def beaten_in(transaction: Transaction, memory: Memory) -> str | None:
    """The open conflict that the memory has lost to a higher authority, if there is one."""
    own = rank(memory.source_authority)
    lost = (
        one.conflict_id
        for one in opponents(transaction, memory)
        if one.rule == "authority" and rank(one.authority) > own
    )
    return next(lost, None)
