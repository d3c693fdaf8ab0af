"""The write of an add: what is judged and stored inside one savepoint of the ledger. In order:
idempotency, lineage, duplicates, positions, then the rows."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import bindparam, select

from models.authority import rank
from models.confidence import DRAWN
from models.draft import Draft
from models.errors import (
    BrainError,
    Duplicate,
    invalid,
)
from models.memory import Memory, united
from models.priority import unhurried
from stores.acts import Act
from stores.amendment import supersede
from stores.appraisal import settle
from stores.changes import Edge
from stores.dependents import flagged
from stores.idempotency import Once
from stores.insertion import IN_PARTITION, Stored, grounded
from stores.links import MAX_EVIDENCE
from stores.rows import memory_from, select_memories
from stores.schema import memories, vectors
from stores.writer import Transaction

MAX_TAGS = 64

# Built once. Unordered, so that SQLite takes the index of the contents rather than walk a partition in order.
_WITH_CONTENT = select_memories().where(IN_PARTITION, memories.c.content_key == bindparam("content_key"))


@dataclass(frozen=True, slots=True, eq=False)
class Addition:
    """Stores drafts. All of them, or none: the caller's savepoint ends with the first refusal. Their vectors
    are of the act's fingerprint."""

    act: Act

    def store(self, transaction: Transaction, draft: Draft) -> Stored:
        """Store one draft. Raises InvalidArgument, AuthorityNotAllowed, Duplicate, PositionTaken, and what
        `supersede` raises."""
        draft = grounded(self.act, transaction, draft)
        if draft.memory.state.supersedes:
            return supersede(self.act, transaction, draft)
        if draft.on_duplicate != "keep" and draft.memory.kind == "memory":
            equal = _equal_memory(transaction, draft)
            if equal is not None and draft.on_duplicate == "error":
                raise Duplicate(f"An equal active memory exists: {equal.memory_id}.")
            if equal is not None and rank(draft.memory.source_authority) > rank(equal.source_authority):
                return supersede(self.act, transaction, _raised(draft, equal))
            if equal is not None and self._may_unite(equal, draft):
                return self._unite(transaction, equal, draft)
            # The equal one stays as it is, and this one beside it.
        return supersede(self.act, transaction, draft)

    def _may_unite(self, equal: Memory, draft: Draft) -> bool:
        """Not when the equal one is of an authority beyond the caller's, or would rest on a lower one than
        its own by what the draft was drawn from."""
        new = draft.memory
        lowers = (
            new.layer in DRAWN
            and rank(new.source_authority) < rank(equal.source_authority)
            and not set(new.state.evidence_ids) <= set(equal.state.evidence_ids)
        )
        return self.act.caller.may_change(equal.source_authority) and not lowers

    def _unite(self, transaction: Transaction, equal: Memory, draft: Draft) -> Stored:
        """Give the tags and evidence of the draft to the equal memory that exists."""
        mine, theirs = equal.state, draft.memory.state
        state = replace(
            mine,
            tags=united(mine.tags, theirs.tags),
            evidence_ids=united(mine.evidence_ids, theirs.evidence_ids),
        )
        if len(state.tags) > MAX_TAGS:
            raise invalid("tags", f"with those of the equal memory {equal.memory_id} over {MAX_TAGS}")
        added = tuple(id for id in state.evidence_ids if id not in mine.evidence_ids)
        links = tuple(Edge(id, "evidence_for", equal.memory_id) for id in added)
        fallen = [id for id in theirs.standing.fallen if id in added]
        if fallen:
            state = flagged(state, fallen, transaction.now)
        changed = self.act.change(transaction, equal, state, ("tags", "evidence_ids"), links)
        if added:
            settle(self.act, transaction, [changed])
        indexed = _has_vectors(transaction, equal.memory_id, self.act.fingerprint)
        return Stored(equal.memory_id, True, indexed)


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
    superseded: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    replayed: bool = False

    def kept(self) -> dict[str, Any]:
        """What an idempotency row keeps of it: no text."""
        return {
            "memory_ids": list(self.memory_ids),
            "deduplicated": self.deduplicated,
            "indexed": self.indexed,
            "superseded": list(self.superseded),
            "conflicts": list(self.conflicts),
        }

    @classmethod
    def from_kept(cls, kept: dict[str, Any], *, replayed: bool) -> "Outcome":
        """The inverse of `kept`."""
        ids, superseded = tuple(kept["memory_ids"]), tuple(kept["superseded"])
        conflicts = tuple(kept.get("conflicts", ()))  # there were none in what an older version kept
        return cls(ids, kept["deduplicated"], kept["indexed"], superseded, conflicts, replayed)


@dataclass(frozen=True, slots=True)
class Refused:
    """An item that was not stored, and why."""

    error: BrainError


def store_item(addition: Addition, transaction: Transaction, item: Item) -> Outcome:
    """Store an item, once however often it comes. Raises what `Addition.store` and `Once` raise."""

    def store() -> dict[str, Any]:
        stored = [addition.store(transaction, draft) for draft in unhurried(item.drafts)]
        return Outcome(
            tuple(one.memory_id for one in stored),
            all(one.duplicate for one in stored),
            all(one.indexed for one in stored),
            tuple(id for one in stored for id in one.superseded),
            tuple(id for one in stored for id in one.conflicts),
        ).kept()

    if item.once is None:
        return Outcome.from_kept(store(), replayed=False)
    kept, replayed = item.once.run(transaction, addition.act.caller, store)
    return Outcome.from_kept(kept, replayed=replayed)


def store_each(
    addition: Addition, transaction: Transaction, items: Sequence[Item | Refused]
) -> list[Outcome | Refused]:
    """Store items that answer for themselves. One memory is judged before anything of it is written, so
    that only an item of several needs a savepoint."""
    results: list[Outcome | Refused] = []
    for item in unhurried(items):
        if isinstance(item, Refused):
            results.append(item)
            continue
        try:
            with transaction.savepoint() if len(item.drafts) > 1 else nullcontext():
                results.append(store_item(addition, transaction, item))
        except BrainError as error:
            results.append(Refused(error))
    return results


def _equal_memory(transaction: Transaction, draft: Draft) -> Memory | None:
    """The active memory that a new one would be a duplicate of."""
    memory = draft.memory
    product, agent, user = memory.partition
    asked = {"product": product, "agent": agent, "user": user, "content_key": draft.content_key}
    key = (*memory.partition, draft.content_key)
    if key in transaction.new_contents:
        transaction.flush()  # an equal one came earlier in this write
    found = [memory_from(row) for row in transaction.connection.execute(_WITH_CONTENT, asked)]
    return next((old for old in sorted(found, key=lambda m: m.seq) if _is_duplicate(old, memory)), None)


def _is_duplicate(old: Memory, new: Memory) -> bool:
    def place(memory: Memory) -> tuple[Any, ...]:
        state = memory.state
        return memory.kind, memory.layer, state.frame_key, state.valid_from, state.valid_until

    if not set(new.facts) <= set(old.facts):  # they would be lost
        return False
    return old.state.status == "active" and place(old) == place(new)


def _raised(draft: Draft, equal: Memory) -> Draft:
    """The draft as the successor of an equal memory of a lower authority, with its tags and evidence."""
    mine, theirs = draft.memory.state, equal.state
    drawn = draft.memory.layer in DRAWN  # then what the lower one was drawn from would lower this one too
    evidence = mine.evidence_ids if drawn else united(mine.evidence_ids, theirs.evidence_ids)
    state = replace(
        mine,
        supersedes=(equal.memory_id,),
        tags=united(mine.tags, theirs.tags)[:MAX_TAGS],
        evidence_ids=evidence[:MAX_EVIDENCE],
    )
    return replace(draft, memory=replace(draft.memory, state=state))


def _has_vectors(transaction: Transaction, memory_id: str, fingerprint: str | None) -> bool:
    query = select(vectors.c.chunk).where(
        vectors.c.memory_id == memory_id, vectors.c.fingerprint == fingerprint
    )
    return transaction.execute(query.limit(1)).first() is not None
