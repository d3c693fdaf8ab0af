"""The writes that link two memories and part them again. A link is no field of a memory, so it makes no
version; but what is evidence for a memory stands in its state as well, and both are kept in step."""

from dataclasses import replace

from sqlalchemy import select

from models.authority import rank
from models.confidence import DRAWN
from models.errors import ConflictState, invalid
from models.memory import Memory
from stores.acts import Act, end_edges
from stores.appraisal import alive, settle
from stores.changes import Change, Edge
from stores.dependents import MAX_FLAGGED, dependents, fell, flag
from stores.inserts import insert_edges
from stores.schema import edges
from stores.writer import Transaction

MAX_EVIDENCE = 64  # as many as an add may name


def link(act: Act, transaction: Transaction, edge: Edge) -> bool:
    """Set a link. False when it was there. Raises MemoryNotFound, MemoryForgotten, InvalidArgument, and what
    `_check` raises."""
    source, target = _ends(act, transaction, edge)
    if _holds(transaction, edge):
        return False
    _check(act, source, target, edge)
    if edge.type == "evidence_for":
        evidence = tuple(dict.fromkeys((*target.state.evidence_ids, source.memory_id)))
        if len(evidence) > MAX_EVIDENCE:
            raise invalid("to_id", f"rests on {MAX_EVIDENCE} memories already")
        state = replace(target.state, evidence_ids=evidence)
        target = act.change(transaction, target, state, ("evidence_ids",), links=(edge,))
    else:
        seq = act.event(transaction, source.partition, source.memory_id, (edge.type,))
        insert_edges(transaction, (edge,), seq)
    for memory in _of_each_partition(target, source):
        transaction.changes.append(Change(memory, edges=(edge,)))
    _settle(act, transaction, source, target, edge)
    _flag(act, transaction, source, target, edge)
    return True


def unlink(act: Act, transaction: Transaction, edge: Edge) -> bool:
    """Take a link away. False when there was none. Raises MemoryNotFound, MemoryForgotten, or ConflictState
    for what a memory was derived from when it was written."""
    source, target = _ends(act, transaction, edge)
    if not _holds(transaction, edge):
        return False
    if edge.type == "evidence_for":
        act.caller.check_change(target.source_authority)
    if edge.type == "derived_from":
        act.caller.check_change(source.source_authority)
    if edge.type == "derived_from" and source.source_raw_memory_id == target.memory_id:
        raise ConflictState(f"Memory {source.memory_id} was written as derived from {target.memory_id}.")
    if edge.type == "evidence_for":
        left = tuple(id for id in target.state.evidence_ids if id != source.memory_id)
        state = replace(target.state, evidence_ids=left)
        target = act.change(transaction, target, state, ("evidence_ids",), unlinks=(edge,))
    else:
        seq = act.event(transaction, source.partition, source.memory_id, (edge.type,))
        end_edges(transaction, (edge,), seq)
    for memory in _of_each_partition(target, source):
        transaction.changes.append(Change(memory, unlinked=(edge,)))
    _settle(act, transaction, source, target, edge)
    return True


def _check(act: Act, source: Memory, target: Memory, edge: Edge) -> None:
    """What a memory rests on decides how far it is trusted. Raises AuthorityNotAllowed when that one is of an
    authority beyond the caller's, ConflictState when it would stand above what it is derived from."""
    if edge.type not in ("evidence_for", "derived_from"):
        return
    rests, on = (target, source) if edge.type == "evidence_for" else (source, target)
    act.caller.check_change(rests.source_authority)
    derived = edge.type == "derived_from" or rests.layer in DRAWN
    if derived and rank(on.source_authority) < rank(rests.source_authority):
        raise ConflictState(
            f"Memory {rests.memory_id} is {rests.source_authority}, what it would be derived from "
            f"{on.source_authority}: a derived memory has the lowest authority of its lineage. Write it anew."
        )


def _settle(act: Act, transaction: Transaction, source: Memory, target: Memory, edge: Edge) -> None:
    """Bring up to date whose corroboration the link is, and, where it says that two are of one lineage,
    whoever counted on what was drawn from the other: that does not bear it out."""
    if edge.type == "evidence_for":
        settle(act, transaction, [target])
    if edge.type == "derived_from":
        transaction.flush()
        settle(act, transaction, [source, *dependents(transaction.connection, [source], MAX_FLAGGED)])


def _flag(act: Act, transaction: Transaction, source: Memory, target: Memory, edge: Edge) -> None:
    """What rests on something that fell before is due for review at once, and what rests on that."""
    if edge.type not in ("evidence_for", "derived_from"):
        return
    rests, on = (target, source) if edge.type == "evidence_for" else (source, target)
    if fell(on):
        transaction.flush()
        above = dependents(transaction.connection, [rests], MAX_FLAGGED)
        fresh = alive(transaction, [rests.memory_id, *(memory.memory_id for memory in above)])
        flag(act, transaction, fresh, [on.memory_id])


def _ends(act: Act, transaction: Transaction, edge: Edge) -> tuple[Memory, Memory]:
    return act.find(transaction, edge.from_id), act.find(transaction, edge.to_id)


def _holds(transaction: Transaction, edge: Edge) -> bool:
    this = (edges.c.from_id == edge.from_id) & (edges.c.type == edge.type) & (edges.c.to_id == edge.to_id)
    query = select(edges.c.from_seq).where(this, edges.c.to_seq.is_(None))
    return transaction.execute(query).first() is not None


def _of_each_partition(*memories: Memory) -> list[Memory]:
    """One memory of each partition: the graph of each has to learn of the link, and once is enough."""
    return list({memory.partition: memory for memory in reversed(memories)}.values())
