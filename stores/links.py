"""The writes that link two memories and part them again. A link is no field of a memory, so it makes no
version; but what is evidence for a memory stands in its state as well, and both are kept in step."""

from dataclasses import replace

from sqlalchemy import select

from models.errors import ConflictState, invalid
from models.memory import Memory
from stores.acts import Act, end_edges
from stores.changes import Change, Edge
from stores.inserts import insert_edges
from stores.schema import edges
from stores.writer import Transaction

MAX_EVIDENCE = 64  # as many as an add may name


def link(act: Act, transaction: Transaction, edge: Edge) -> bool:
    """Set a link. False when it was there. Raises MemoryNotFound, MemoryForgotten or InvalidArgument."""
    source, target = _ends(act, transaction, edge)
    if _holds(transaction, edge):
        return False
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
    return True


def unlink(act: Act, transaction: Transaction, edge: Edge) -> bool:
    """Take a link away. False when there was none. Raises MemoryNotFound, MemoryForgotten, or ConflictState
    for what a memory was derived from when it was written."""
    source, target = _ends(act, transaction, edge)
    if not _holds(transaction, edge):
        return False
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
    return True


def _ends(act: Act, transaction: Transaction, edge: Edge) -> tuple[Memory, Memory]:
    return act.find(transaction, edge.from_id), act.find(transaction, edge.to_id)


def _holds(transaction: Transaction, edge: Edge) -> bool:
    this = (edges.c.from_id == edge.from_id) & (edges.c.type == edge.type) & (edges.c.to_id == edge.to_id)
    query = select(edges.c.from_seq).where(this, edges.c.to_seq.is_(None))
    return transaction.execute(query).first() is not None


def _of_each_partition(*memories: Memory) -> list[Memory]:
    """One memory of each partition: the graph of each has to learn of the link, and once is enough."""
    return list({memory.partition: memory for memory in reversed(memories)}.values())
