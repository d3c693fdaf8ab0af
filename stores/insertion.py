"""The rows of a new memory: its place in its session and among its kind, its words, vectors and links."""

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import and_, bindparam, func, select

from models.authority import lowest
from models.confidence import DRAWN, appraised
from models.draft import Draft
from models.errors import MemoryForgotten, MemoryNotFound, PositionTaken, invalid
from models.memory import Memory
from models.scope import Partition
from stores.acts import Act, tell_others
from stores.appraisal import appraise
from stores.changes import Change, Edge
from stores.dependents import fell, flagged
from stores.history_schema import LAST_VACATED, VACATED
from stores.inserts import insert_edges, insert_vectors, queue
from stores.observations_schema import topics
from stores.raw_places import in_raw_session, place_plain
from stores.rows import memory_values, tag_values, version_values
from stores.schema import fact_keys, memories, tags, tokens, versions
from stores.topics import topic_values
from stores.words import ANALYZER
from stores.writer import Transaction

MAX_POSITION = 2**63 - 1

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
    """What became of one draft. `duplicate` when it was united with the memory of that id. The ids of what it
    replaced, and of the conflicts that it opened."""

    memory_id: str
    duplicate: bool
    indexed: bool
    superseded: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def grounded(act: Act, transaction: Transaction, draft: Draft) -> Draft:
    """The draft with what follows from what it rests on: its authority is the lowest of what it was derived
    from, and it is flagged when some of that has fallen already. Raises AuthorityNotAllowed for what the
    caller may not claim, InvalidArgument for what is not in reach."""
    memory = draft.memory
    act.caller.check_authority(memory.source_authority)
    evidence = [
        _named(act, transaction, f"evidence_ids[{i}]", id) for i, id in enumerate(memory.state.evidence_ids)
    ]
    lineage = list(evidence) if memory.layer in DRAWN else []
    if memory.source_raw_memory_id is not None:
        raw = _named(act, transaction, "source_raw_memory_id", memory.source_raw_memory_id)
        if raw.layer != "l1_raw":
            raise invalid("source_raw_memory_id", f"must name an l1_raw memory; this one is {raw.layer}")
        lineage.append(raw)
    if not (evidence or lineage or memory.facts):
        return draft
    authority = lowest([memory.source_authority, *(one.source_authority for one in lineage)])
    fallen = [one.memory_id for one in (*evidence, *lineage) if fell(one)]
    state = flagged(memory.state, fallen, transaction.now) if fallen else memory.state
    memory = replace(memory, source_authority=authority, state=state)
    return replace(draft, memory=appraise(transaction, memory))


def _named(act: Act, transaction: Transaction, field: str, memory_id: str) -> Memory:
    try:
        return act.find(transaction, memory_id)
    except (MemoryNotFound, MemoryForgotten):
        raise invalid(field, "names no memory in reach") from None


def insert_memory(act: Act, transaction: Transaction, draft: Draft, *, free: bool = False) -> Stored:
    """Store a draft as a new memory, whatever else there is. `free`: nobody ever had its position. Raises
    PositionTaken and, as every write of a memory comes through here or `_unite`, AuthorityNotAllowed."""
    act.caller.check_authority(draft.memory.source_authority)
    memory = draft.memory if free else seated(transaction, draft.memory)
    written = {"content": memory.content}  # and nothing else: the audit compares it with the memory
    seq = act.event(transaction, memory.partition, memory.memory_id, changed=written)
    memory = replace(
        memory,
        seq=seq,
        gmt_created=transaction.now,
        number=next_number(transaction, memory),
        state=appraised(memory, memory.state.standing),
    )
    id = memory.memory_id
    transaction.new_contents.add((*memory.partition, draft.content_key))
    transaction.insert(memories, [memory_values(memory, draft.content_key)])
    transaction.insert(versions, [version_values(memory, seq, transaction.now)])
    transaction.insert(tags, tag_values(memory))
    terms = "\n".join(draft.terms)
    transaction.insert(tokens, [{"memory_id": id, "analyzer": ANALYZER, "terms": terms}])
    transaction.insert(fact_keys, fact_values(memory))
    transaction.new_contents.update((*memory.partition, fact.key) for fact in memory.facts)
    if memory.kind == "message" and not in_raw_session(memory):
        place_plain(transaction, memory)
    transaction.insert(topics, topic_values(memory))
    links = lineage_edges(memory) + assertion_edges(memory)
    insert_edges(transaction, links, seq)
    # The model may have been changed since they were made: then they are made anew, through the outbox.
    embedded = draft.embedded if transaction.counts(act.fingerprint) else None
    if embedded is not None and act.fingerprint is not None:
        insert_vectors(transaction, id, act.fingerprint, embedded)
    queue(transaction, memory, "embed" if embedded is None else "index", seq)
    vectors = None if embedded is None else embedded.vectors
    transaction.changes.append(Change(memory, draft.terms, vectors, links))
    tell_others(transaction, memory, lineage_edges(memory))
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
        ends = [transaction.connection.scalar(last, session) for last in (_LAST_POSITION, LAST_VACATED)]
        position = 1 + max([*given, -1, *(end for end in ends if end is not None)])
        if position > MAX_POSITION:
            raise PositionTaken(
                f"The last position of this session, {MAX_POSITION}, is taken: nothing can be appended. "
                "Give a free session_position, or use another session."
            )
    elif position in given or is_taken(transaction, memory.partition, memory.session_key, position):
        raise PositionTaken(f"session_position {position} of this session is taken.")
    given.add(position)
    return replace(memory, session_position=position)


def is_taken(transaction: Transaction, partition: Partition, session_key: str, position: int) -> bool:
    """Whether somebody has this position in a session, or had it before it was moved elsewhere."""
    product, agent, user = partition
    place: dict[str, Any] = {"product": product, "agent": agent, "user": user}
    place |= {"session_key": session_key, "position": position}
    return any(transaction.connection.scalar(query, place) is not None for query in (_SEAT, VACATED))


def next_number(transaction: Transaction, memory: Memory) -> int:
    """One that no memory of its kind in its scope has."""
    key = (*memory.partition.scope, memory.kind)
    last = transaction.last_numbers.get(key)
    if last is None:
        asked = dict(zip(("product", "agent", "kind"), key, strict=True))
        last = transaction.connection.scalar(_LAST_NUMBER, asked) or 0
    transaction.last_numbers[key] = last + 1
    return last + 1


def fact_values(memory: Memory) -> list[dict[str, Any]]:
    """The rows by which the rules find what a memory asserts."""
    product, agent, user = memory.partition
    return [
        {
            "memory_id": memory.memory_id,
            "place": place,
            "product": product,
            "agent": agent,
            "user": user,
            "key": fact.key,
            "object_key": fact.object_key,
            "single_valued": fact.single_valued,
        }
        for place, fact in enumerate(memory.facts)
    ]


def assertion_edges(memory: Memory) -> tuple[Edge, ...]:
    """The links to whatever the memory's facts are about: nodes that are no memories, like a session's."""
    entities = dict.fromkeys(entity for fact in memory.facts for entity in fact.entities)
    return tuple(Edge(memory.memory_id, "asserts", entity) for entity in entities)


def lineage_edges(memory: Memory) -> tuple[Edge, ...]:
    """The links that follow from what a memory was written with."""
    id, state = memory.memory_id, memory.state
    raw = memory.source_raw_memory_id
    return (
        *(Edge(id, "supersedes", old) for old in state.supersedes),
        *(() if raw is None else (Edge(id, "derived_from", raw),)),
        *(Edge(evidence, "evidence_for", id) for evidence in state.evidence_ids),
    )
