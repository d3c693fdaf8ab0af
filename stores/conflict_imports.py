"""Takes in the conflicts that came with memories from another ledger, and lets the memories stand as what is
here has it, where the file had only a part."""

from collections.abc import Iterable

from sqlalchemy import Text, cast, or_, select, update

from models.memory import Memory
from models.standing import Standing
from models.transfer import Dispute
from stores.acts import Act, end_edges
from stores.appraisal import alive, reappraise
from stores.changes import Change, Edge
from stores.inserts import insert_edges
from stores.purge import slices
from stores.schema import conflicts, memories, versions
from stores.writer import Transaction


def take_disputes(act: Act, transaction: Transaction, disputes: Iterable[Dispute]) -> tuple[int, int]:
    """How many conflicts were set or closed as they were elsewhere, and how many were left out since a side
    is not here. One that is here already stays, but for being resolved."""
    done = left_out = 0
    for dispute in disputes:
        sides = {memory.memory_id: memory for memory in alive(transaction, (dispute.a_id, dispute.b_id))}
        if len(sides) < 2 or len({memory.partition for memory in sides.values()}) > 1:
            left_out += 1
        elif _take(act, transaction, dispute, sides[dispute.a_id]):
            done += 1
    return done, left_out


def _take(act: Act, transaction: Transaction, dispute: Dispute, one: Memory) -> bool:
    values = dispute.model_dump()
    between = Edge(dispute.a_id, "conflicts_with", dispute.b_id)
    this = conflicts.c.conflict_id == dispute.conflict_id
    known = transaction.execute(select(conflicts).where(this)).first()
    if known is not None:
        if known.resolved_at is not None or dispute.resolved_at is None:
            return False
        seq = act.event(transaction, one.partition, one.memory_id, ("conflicts",))
        transaction.execute(update(conflicts).where(this).values(values))
        end_edges(transaction, (between,), seq)
        transaction.changes.append(Change(one, unlinked=(between,)))
        return True
    if dispute.resolved_at is None and _open_between(transaction, dispute):
        return False
    seq = act.event(transaction, one.partition, one.memory_id, ("conflicts",))
    product, agent, user = one.partition
    transaction.insert(conflicts, [values | {"product": product, "agent": agent, "user": user, "seq": seq}])
    if dispute.resolved_at is None:
        insert_edges(transaction, (between,), seq)
        transaction.changes.append(Change(one, edges=(between,)))
    return True


def _open_between(transaction: Transaction, dispute: Dispute) -> bool:
    a, b = conflicts.c.a_id, conflicts.c.b_id
    one, other = dispute.a_id, dispute.b_id
    same = or_((a == one) & (b == other), (a == other) & (b == one))
    query = select(conflicts.c.conflict_id).where(same, conflicts.c.resolved_at.is_(None))
    return transaction.execute(query).first() is not None


def settle_imports(act: Act, transaction: Transaction) -> int:
    """Appraise anew whatever names an open conflict or a source that is not here: the file had only a part of
    them. Returns how many stand otherwise since."""
    standing = cast(versions.c.state, Text).contains('"standing"')
    current = versions.c.to_seq.is_(None) & (versions.c.status != "purged")
    rows = transaction.execute(select(versions.c.memory_id, versions.c.state).where(current, standing)).all()
    named = {row.memory_id: Standing.from_row(row.state["standing"]) for row in rows}
    still = conflicts.c.resolved_at.is_(None)
    known = set(transaction.execute(select(conflicts.c.conflict_id).where(still)).scalars())
    said = {id: [one.memory_id for one in found.agreements if one.memory_id] for id, found in named.items()}
    sources = {source for every in said.values() for source in every}
    for some in slices(sorted(sources)):
        here = select(memories.c.memory_id).where(memories.c.memory_id.in_(some))
        known |= set(transaction.execute(here).scalars())
    dangling = [id for id, found in named.items() if not known.issuperset((*found.conflicts, *said[id]))]
    reappraise(act, transaction, dangling)
    return len(dangling)
