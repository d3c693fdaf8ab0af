"""The write of an add: what is judged and stored inside one savepoint of the ledger. In order:
idempotency, lineage, duplicates, positions, then the rows."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import and_, bindparam, func, select

from models.draft import Draft, content_key
from models.errors import (
    BrainError,
    Duplicate,
    MemoryForgotten,
    MemoryNotFound,
    PositionTaken,
    invalid,
)
from models.memory import Memory
from stores.acts import Act
from stores.changes import Change, Edge
from stores.idempotency import Once
from stores.inserts import insert_edges, insert_vectors, queue
from stores.rows import memory_from, memory_values, select_memories, tag_values, version_values
from stores.schema import memories, tags, tokens, vectors, versions
from stores.words import ANALYZER
from stores.writer import Transaction

MAX_TAGS = 64

# Built once: to build a statement costs more than to run it. Unordered, so that SQLite takes the index of
# the contents rather than walk a whole partition in order.
_IN_PARTITION = and_(
    memories.c.product == bindparam("product"),
    memories.c.agent == bindparam("agent"),
    memories.c.user == bindparam("user"),
)
_WITH_CONTENT = select_memories().where(_IN_PARTITION, memories.c.content_key == bindparam("content_key"))
_IN_SESSION = _IN_PARTITION & (memories.c.session_key == bindparam("session_key"))
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


@dataclass(frozen=True, slots=True, eq=False)
class Addition:
    """Stores drafts. All of them, or none: the caller's savepoint ends with the first refusal. Their vectors
    are of the act's fingerprint."""

    act: Act

    def store(self, transaction: Transaction, draft: Draft) -> Stored:
        """Store one draft. Raises InvalidArgument, Duplicate or PositionTaken."""
        self._check_lineage(transaction, draft.memory)
        if draft.on_duplicate != "keep" and draft.memory.kind == "memory":
            equal = _equal_memory(transaction, draft.memory)
            if equal is not None:
                return self._unite(transaction, equal, draft)
        return self.insert(transaction, draft)

    def _check_lineage(self, transaction: Transaction, memory: Memory) -> None:
        """Every id that the memory rests on must be readable by the caller."""
        named = {f"evidence_ids[{i}]": id for i, id in enumerate(memory.state.evidence_ids)}
        if memory.source_raw_memory_id is not None:
            named["source_raw_memory_id"] = memory.source_raw_memory_id
        for field, memory_id in named.items():
            try:
                found = self.act.find(transaction, memory_id)
            except (MemoryNotFound, MemoryForgotten):
                raise invalid(field, "names no memory in reach") from None
            if field == "source_raw_memory_id" and found.layer != "l1_raw":
                raise invalid(field, f"must name an l1_raw memory; this one is {found.layer}")

    def _unite(self, transaction: Transaction, equal: Memory, draft: Draft) -> Stored:
        """Give the tags and evidence of the draft to the equal memory that exists."""
        if draft.on_duplicate == "error":
            raise Duplicate(f"An equal active memory exists: {equal.memory_id}.")
        mine, theirs = equal.state, draft.memory.state
        state = replace(
            mine,
            tags=_union(mine.tags, theirs.tags),
            evidence_ids=_union(mine.evidence_ids, theirs.evidence_ids),
        )
        if len(state.tags) > MAX_TAGS:
            raise invalid("tags", f"with those of the equal memory {equal.memory_id} over {MAX_TAGS}")
        added = tuple(id for id in state.evidence_ids if id not in mine.evidence_ids)
        links = tuple(Edge(id, "evidence_for", equal.memory_id) for id in added)
        self.act.change(transaction, equal, state, ("tags", "evidence_ids"), links)
        indexed = _has_vectors(transaction, equal.memory_id, self.act.fingerprint)
        return Stored(equal.memory_id, True, indexed)

    def insert(self, transaction: Transaction, draft: Draft) -> Stored:
        """Store a draft as a new memory, whatever else there is. Raises PositionTaken."""
        memory = _seated(transaction, draft.memory)
        seq = self.act.event(transaction, memory.partition, memory.memory_id)
        memory = replace(
            memory, seq=seq, gmt_created=transaction.now, number=_next_number(transaction, memory)
        )
        id = memory.memory_id
        transaction.new_contents.add((*memory.partition, content_key(memory.content)))
        transaction.insert(memories, [memory_values(memory, content_key(memory.content))])
        transaction.insert(versions, [version_values(memory, seq, transaction.now)])
        transaction.insert(tags, tag_values(memory))
        terms = "\n".join(draft.terms)
        transaction.insert(tokens, [{"memory_id": id, "analyzer": ANALYZER, "terms": terms}])
        links = _lineage_edges(memory)
        insert_edges(transaction, links, seq)
        if draft.vectors is not None and self.act.fingerprint is not None:
            insert_vectors(transaction, id, self.act.fingerprint, draft.vectors)
        queue(transaction, memory, "embed" if draft.vectors is None else "index", seq)
        transaction.changes.append(Change(memory, draft.terms, draft.vectors, links))
        return Stored(id, False, draft.vectors is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """What one add brings: a memory, or the messages of a conversation."""

    drafts: tuple[Draft, ...]
    once: Once | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an item."""

    memory_ids: tuple[str, ...]
    deduplicated: bool
    indexed: bool
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """An item that was not stored, and why."""

    error: BrainError


def store_item(addition: Addition, transaction: Transaction, item: Item) -> Outcome:
    """Store an item, once however often it comes. Raises what `Addition.store` and `Once` raise."""
    if item.once is not None:
        before = item.once.recall(transaction, addition.act.caller)
        if before is not None:
            return Outcome(tuple(before["memory_ids"]), before["deduplicated"], before["indexed"], True)
    stored = [addition.store(transaction, draft) for draft in item.drafts]
    outcome = Outcome(
        tuple(one.memory_id for one in stored),
        all(one.duplicate for one in stored),
        all(one.indexed for one in stored),
    )
    if item.once is not None:
        kept = {
            "memory_ids": outcome.memory_ids,
            "deduplicated": outcome.deduplicated,
            "indexed": outcome.indexed,
        }
        item.once.keep(transaction, addition.act.caller, kept)
    return outcome


def store_each(
    addition: Addition, transaction: Transaction, items: Sequence[Item | Refused]
) -> list[Outcome | Refused]:
    """Store items that answer for themselves. One memory is judged before anything of it is written, so
    that only an item of several needs a savepoint."""
    results: list[Outcome | Refused] = []
    for item in items:
        if isinstance(item, Refused):
            results.append(item)
            continue
        try:
            with _undone_when_refused(transaction) if len(item.drafts) > 1 else nullcontext():
                results.append(store_item(addition, transaction, item))
        except BrainError as error:
            results.append(Refused(error))
    return results


@contextmanager
def _undone_when_refused(transaction: Transaction) -> Iterator[None]:
    transaction.flush()
    changes = len(transaction.changes)
    try:
        with transaction.connection.begin_nested():
            yield
            transaction.flush()
    except BrainError:
        transaction.pending.clear()
        transaction.seats.clear()  # what was seated before is in the database by now
        del transaction.changes[changes:]
        raise


def _equal_memory(transaction: Transaction, memory: Memory) -> Memory | None:
    """The active memory that a new one would be a duplicate of."""
    product, agent, user = memory.partition
    asked = {"product": product, "agent": agent, "user": user, "content_key": content_key(memory.content)}
    key = (*memory.partition, asked["content_key"])
    if key in transaction.new_contents:
        transaction.flush()  # an equal one came earlier in this write
    found = [memory_from(row) for row in transaction.connection.execute(_WITH_CONTENT, asked)]
    return next((old for old in sorted(found, key=lambda m: m.seq) if _is_duplicate(old, memory)), None)


def _is_duplicate(old: Memory, new: Memory) -> bool:
    def place(memory: Memory) -> tuple[Any, ...]:
        state = memory.state
        return memory.kind, memory.layer, state.frame, state.valid_from, state.valid_until

    return old.state.status == "active" and place(old) == place(new)


def _seated(transaction: Transaction, memory: Memory) -> Memory:
    """The memory with its position in its session: the one asked for, or the next for a message."""
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


def _next_number(transaction: Transaction, memory: Memory) -> int:
    key = (*memory.partition.scope, memory.kind)
    last = transaction.last_numbers.get(key)
    if last is None:
        asked = dict(zip(("product", "agent", "kind"), key, strict=True))
        last = transaction.connection.scalar(_LAST_NUMBER, asked) or 0
    transaction.last_numbers[key] = last + 1
    return last + 1


def _lineage_edges(memory: Memory) -> tuple[Edge, ...]:
    id, state = memory.memory_id, memory.state
    raw = memory.source_raw_memory_id
    return (
        *(Edge(id, "supersedes", old) for old in state.supersedes),
        *(() if raw is None else (Edge(id, "derived_from", raw),)),
        *(Edge(evidence, "evidence_for", id) for evidence in state.evidence_ids),
    )


def _has_vectors(transaction: Transaction, memory_id: str, fingerprint: str | None) -> bool:
    query = select(vectors.c.chunk).where(
        vectors.c.memory_id == memory_id, vectors.c.fingerprint == fingerprint
    )
    return transaction.execute(query.limit(1)).first() is not None


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
