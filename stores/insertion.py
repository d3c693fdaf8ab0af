"""The rows of a new memory: its place in its session and among its kind, its words, vectors and links."""

from dataclasses import dataclass, replace

from sqlalchemy import and_, bindparam, func, select

from models.draft import Draft
from models.errors import MemoryForgotten, MemoryNotFound, PositionTaken, invalid
from models.memory import Memory
from stores.acts import Act, tell_others
from stores.changes import Change, Edge
from stores.inserts import insert_edges, insert_vectors, queue
from stores.rows import memory_values, tag_values, version_values
from stores.schema import memories, tags, tokens, versions
from stores.words import ANALYZER
from stores.writer import Transaction

# Built once: to build a statement costs more than to run it.
IN_PARTITION = and_(
    memories.c.product == bindparam("product"),
    memories.c.agent == bindparam("agent"),
    memories.c.user == bindparam("user"),
)
_IN_SESSION = IN_PARTITION & (memories.c.session_key == bindparam("session_key"))
_LAST_POSITION = select(func.max(memories.c.session_position)).where(_IN_SESSION)
_SEAT = select(memories.c.memory_id).where(_IN_SESSION, memories.c.session_position == bindparam("position"))
_LAST_NUMBER = select(func.max(memories.c.number)).where(
    memories.c.product == bindparam("product"),
    memories.c.agent == bindparam("agent"),
    memories.c.kind == bindparam("kind"),
)


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of one draft. `duplicate` when it was united with the memory of that id."""

    memory_id: str
    duplicate: bool
    indexed: bool


def check_lineage(act: Act, transaction: Transaction, memory: Memory) -> None:
    """Every id that the memory rests on must be readable by the caller."""
    named = {f"evidence_ids[{i}]": id for i, id in enumerate(memory.state.evidence_ids)}
    if memory.source_raw_memory_id is not None:
        named["source_raw_memory_id"] = memory.source_raw_memory_id
    for field, memory_id in named.items():
        try:
            found = act.find(transaction, memory_id)
        except (MemoryNotFound, MemoryForgotten):
            raise invalid(field, "names no memory in reach") from None
        if field == "source_raw_memory_id" and found.layer != "l1_raw":
            raise invalid(field, f"must name an l1_raw memory; this one is {found.layer}")


def insert_memory(act: Act, transaction: Transaction, draft: Draft) -> Stored:
    """Store a draft as a new memory, whatever else there is. Raises PositionTaken and, as every write of
    a memory comes through here or `_unite`, AuthorityNotAllowed."""
    act.caller.check_authority(draft.memory.source_authority)
    memory = seated(transaction, draft.memory)
    seq = act.event(transaction, memory.partition, memory.memory_id)
    memory = replace(memory, seq=seq, gmt_created=transaction.now, number=next_number(transaction, memory))
    id = memory.memory_id
    transaction.new_contents.add((*memory.partition, draft.content_key))
    transaction.insert(memories, [memory_values(memory, draft.content_key)])
    transaction.insert(versions, [version_values(memory, seq, transaction.now)])
    transaction.insert(tags, tag_values(memory))
    terms = "\n".join(draft.terms)
    transaction.insert(tokens, [{"memory_id": id, "analyzer": ANALYZER, "terms": terms}])
    links = lineage_edges(memory)
    insert_edges(transaction, links, seq)
    # The model may have been changed since they were made: then they are made anew, through the outbox.
    embedded = draft.embedded if transaction.counts(act.fingerprint) else None
    if embedded is not None and act.fingerprint is not None:
        insert_vectors(transaction, id, act.fingerprint, embedded)
    queue(transaction, memory, "embed" if embedded is None else "index", seq)
    vectors = None if embedded is None else embedded.vectors
    transaction.changes.append(Change(memory, draft.terms, vectors, links))
    tell_others(transaction, memory, links)
    return Stored(id, False, embedded is not None)


def seated(transaction: Transaction, memory: Memory) -> Memory:
    """The memory with its position in its session: the one asked for, or the next for a message. Raises
    PositionTaken."""
    if memory.session_key is None or (memory.session_position is None and memory.kind != "message"):
        return memory
    product, agent, user = memory.partition
    session = {"product": product, "agent": agent, "user": user, "session_key": memory.session_key}
    given = transaction.seats.setdefault((*memory.partition, memory.session_key), set())
    position = memory.session_position
    if position is None:
        last = transaction.connection.scalar(_LAST_POSITION, session)
        position = 1 + max([*given, -1 if last is None else last])
    elif position in given or transaction.connection.scalar(_SEAT, session | {"position": position}):
        raise PositionTaken(f"session_position {position} of this session is taken.")
    given.add(position)
    return replace(memory, session_position=position)


def next_number(transaction: Transaction, memory: Memory) -> int:
    """One that no memory of its kind in its scope has."""
    key = (*memory.partition.scope, memory.kind)
    last = transaction.last_numbers.get(key)
    if last is None:
        asked = dict(zip(("product", "agent", "kind"), key, strict=True))
        last = transaction.connection.scalar(_LAST_NUMBER, asked) or 0
    transaction.last_numbers[key] = last + 1
    return last + 1


def lineage_edges(memory: Memory) -> tuple[Edge, ...]:
    """The links that follow from what a memory was written with."""
    id, state = memory.memory_id, memory.state
    raw = memory.source_raw_memory_id
    return (
        *(Edge(id, "supersedes", old) for old in state.supersedes),
        *(() if raw is None else (Edge(id, "derived_from", raw),)),
        *(Edge(evidence, "evidence_for", id) for evidence in state.evidence_ids),
    )
