"""Takes memories in that were written elsewhere: their ids, histories and links stay, their events are of
today. What this ledger has already is never written over, and what it has forgotten or purged never comes
back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from sqlalchemy import Connection, select

from models.authority import rank
from models.errors import BrainError, ConflictState, LowerAuthority
from models.memory import Memory
from models.transfer import Carried, Link
from stores.acts import Act
from stores.changes import Change, Edge
from stores.compression import renumbered
from stores.conflict_imports import take_disputes
from stores.insertion import assertion_edges, fact_values, lineage_edges, next_number, seated
from stores.inserts import insert_edges, queue
from stores.observations_schema import topics
from stores.purge import slices
from stores.raw_adoption import adopt
from stores.raw_places import recount
from stores.rows import memory_from, memory_values, select_memories, tag_values, version_values
from stores.schema import edges, fact_keys, memories, tags, tokens, versions
from stores.seats import MOVABLE, move, vacate
from stores.topics import topic_values
from stores.words import ANALYZER
from stores.writer import Transaction

Fate = Literal["added", "updated", "present", "differs", "hidden", "gone"]
FATES: tuple[Fate, ...] = get_args(Fate)


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A memory that is to be taken in, with its words."""

    carried: Carried
    terms: tuple[str, ...]
    content_key: str


@dataclass(slots=True)
class Taken:
    """What became of a batch: a fate or a refusal for each arrival, in order, and of the links and conflicts
    that they carried how many were set, and how many lead to what is not here."""

    fates: list[Fate | BrainError]
    links: int = 0
    links_left_out: int = 0
    conflicts: int = 0
    conflicts_left_out: int = 0


def take_in(act: Act, transaction: Transaction, arrivals: Sequence[Arrival]) -> Taken:
    """Store a batch.

        added      it was not here
        updated    it was, and the file knows what happened to it since
        present    it is here as it is in the file
        differs    the same text, with a history of its own here, which stays
        hidden     it was forgotten or purged here, and stays so
        gone       it was purged where the file was written; its id is kept, so that it can't come back

    A memory whose id is here with another text, or which would break what must hold, is refused: with
    ConflictState, LowerAuthority or PositionTaken. The others go on."""
    batch = _Batch(act, transaction, arrivals)
    taken = Taken([])
    for arrival in arrivals:
        try:
            taken.fates.append(batch.store(arrival))
        except BrainError as refusal:
            taken.fates.append(refusal)
    for arrival, fate in zip(arrivals, taken.fates, strict=True):
        if fate in ("added", "updated", "present"):
            for link in arrival.carried.links:
                made = batch.link(Edge(link.from_id, link.type, link.to_id, link.weight))
                taken.links += made is True
                taken.links_left_out += made is None
            for edge in lineage_edges(arrival.carried.memory):  # a file made by hand may not name them
                taken.links += batch.link(edge) is True
            done, left_out = take_disputes(act, transaction, arrival.carried.conflicts)
            taken.conflicts += done
            taken.conflicts_left_out += left_out
    recount(transaction, batch.sessions)
    return taken


class _Batch:
    """What a batch needs to know of the ledger, read at once, and kept in step with what it writes."""

    def __init__(self, act: Act, transaction: Transaction, arrivals: Sequence[Arrival]):
        self._act = act
        self._transaction = transaction
        self.sessions: set[int] = set()  # of raw messages that were added
        transaction.flush()
        named = {arrival.carried.memory.memory_id: None for arrival in arrivals}
        links: list[Link | Edge] = [link for arrival in arrivals for link in arrival.carried.links]
        links += [edge for arrival in arrivals for edge in lineage_edges(arrival.carried.memory)]
        named |= dict.fromkeys(id for link in links for id in (link.from_id, link.to_id))
        self._known = {memory.memory_id: memory for memory in _stored(transaction.connection, [*named])}
        self._linked = set(_ever_linked(transaction.connection, {link.from_id for link in links}))
        self._numbers = _numbers(transaction.connection, [arrival.carried.memory for arrival in arrivals])

    def store(self, arrival: Arrival) -> Fate:
        memory = arrival.carried.memory
        known = self._known.get(memory.memory_id)
        if known is None and memory.state.status == "purged":
            self._bury(memory)
            return "gone"
        if known is None:
            self._add(arrival)
            return "added"
        if known.hidden:
            return "hidden"
        if memory.state.status == "purged":
            return "differs"
        if (known.partition, known.kind, known.layer, known.content) != (
            memory.partition,
            memory.kind,
            memory.layer,
            memory.content,
        ):
            what = "another text" if known.partition == memory.partition else "another place"
            raise ConflictState(f"Memory {memory.memory_id} is here already, with {what}.")
        return self._bring_up(known, arrival.carried)

    def link(self, edge: Edge) -> bool | None:
        """Set a link. False when it was here once, even if it ended since; None when it can't be set."""
        if (edge.from_id, edge.type, edge.to_id) in self._linked:
            return False
        start, end = self._known.get(edge.from_id), self._known.get(edge.to_id)
        if start is None or end is None or not _agree(edge, start, end):
            return None
        seq = self._act.event(self._transaction, start.partition, start.memory_id, (edge.type,))
        insert_edges(self._transaction, (edge,), seq)
        self._linked.add((edge.from_id, edge.type, edge.to_id))
        self._transaction.changes.append(Change(start, edges=(edge,)))
        if end.partition != start.partition:
            self._transaction.changes.append(Change(end, edges=(edge,)))
        return True

    def _add(self, arrival: Arrival) -> None:
        transaction, carried = self._transaction, arrival.carried
        replaced = self._replaceable(carried.memory)
        memory = seated(transaction, carried.memory)
        memory = replace(memory, number=self._number(memory), gmt_created=carried.written or transaction.now)
        memory = renumbered(memory, carried.links, self._known)
        id = memory.memory_id
        written = {"content": memory.content}
        seqs = [
            self._act.event(transaction, memory.partition, id, changed=None if later else written)
            for later in range(len(carried.history))
        ]
        memory = replace(memory, seq=seqs[0])
        transaction.new_contents.add((*memory.partition, arrival.content_key))
        transaction.insert(memories, [memory_values(memory, arrival.content_key)])
        ends = [*seqs[1:], None]
        for version, (at, state) in enumerate(carried.history, 1):
            stood = memory.with_state(version, state)
            row = version_values(stood, seqs[version - 1], transaction.now if at is None else at)
            transaction.insert(versions, [row | {"to_seq": ends[version - 1]}])
            transaction.insert(tags, tag_values(stood))
        terms = "\n".join(arrival.terms)
        transaction.insert(tokens, [{"memory_id": id, "analyzer": ANALYZER, "terms": terms}])
        transaction.insert(topics, topic_values(memory))
        transaction.insert(fact_keys, fact_values(memory))
        asserted = assertion_edges(memory)
        insert_edges(transaction, asserted, seqs[0])
        self._known[id] = memory
        vacate(transaction, memory, carried.vacated)
        if memory.kind == "message" and (session := adopt(transaction, memory)) is not None:
            self.sessions.add(session)
        if memory.hidden:  # what restores it has it embedded
            transaction.changes.append(Change(memory))
        else:
            queue(transaction, memory, "embed", seqs[-1])
            transaction.changes.append(Change(memory, arrival.terms, None, asserted))
        for old in replaced:
            state = replace(old.state, status="superseded", superseded_by=(id,))
            changed = self._act.change(transaction, old, state, ("status", "superseded_by"))
            self._known[old.memory_id] = changed

    def _bury(self, memory: Memory) -> None:
        seq = self._act.event(self._transaction, memory.partition, memory.memory_id)
        memory = replace(memory, seq=seq, number=self._number(memory))
        self._transaction.insert(memories, [memory_values(memory, "")])
        self._transaction.insert(versions, [version_values(memory, seq, self._transaction.now)])
        self._known[memory.memory_id] = memory

    def _replaceable(self, new: Memory) -> list[Memory]:
        """Those that it supersedes and that don't say so yet: they were not part of what wrote it."""
        found: list[Memory] = []
        for id in new.state.supersedes:
            old = self._known.get(id)
            if old is None or old.hidden or new.memory_id in old.state.superseded_by:
                continue
            if old.partition != new.partition or old.state.status != "active" or old.state.superseded_by:
                raise ConflictState(f"It supersedes {id}, which went its own way here.")
            if rank(new.source_authority) < rank(old.source_authority):
                raise LowerAuthority(f"It supersedes {id}, which has a higher authority here.")
            found.append(old)
        return found

    def _bring_up(self, known: Memory, carried: Carried) -> Fate:
        """Let what happened to it elsewhere happen here, if it had stood as it stands here."""
        history = carried.history
        if known.version > len(history) or history[known.version - 1][1] != known.state:
            return "differs"
        if known.version == len(history):
            return "present"
        known = self._moved(known, carried)
        for _, state in history[known.version :]:
            known = self._act.change(self._transaction, known, state, ("state",))
        self._known[known.memory_id] = known
        return "updated"

    def _moved(self, known: Memory, carried: Carried) -> Memory:
        """From where and when it was said anew to be. Raises PositionTaken."""
        columns = {name: getattr(carried.memory, name) for name in MOVABLE}
        moved = replace(known, **columns)
        move(self._transaction, known, moved)
        vacate(self._transaction, moved, carried.vacated)
        return moved

    def _number(self, memory: Memory) -> int:
        """The one that it had, unless another has it here."""
        key = (*memory.partition.scope, memory.kind)
        taken = self._numbers.setdefault(key, set())
        number = memory.number
        if not number or number in taken:
            number = next_number(self._transaction, memory)
        else:
            highest = next_number(self._transaction, memory) - 1
            self._transaction.last_numbers[key] = max(highest, number)
        taken.add(number)
        return number


def _stored(connection: Connection, ids: Sequence[str]) -> Iterable[Memory]:
    for some in slices(ids):
        for row in connection.execute(select_memories().where(memories.c.memory_id.in_(some))):
            yield memory_from(row)


def _ever_linked(connection: Connection, ids: Iterable[str]) -> Iterable[tuple[str, str, str]]:
    for some in slices(sorted(ids)):
        columns = (edges.c.from_id, edges.c.type, edges.c.to_id)
        for row in connection.execute(select(*columns).where(edges.c.from_id.in_(some))):
            yield tuple(row)


def _numbers(connection: Connection, arriving: Sequence[Memory]) -> dict[Any, set[int]]:
    """Which of the numbers that they had are taken, by product, agent and kind."""
    asked: dict[Any, set[int]] = {}
    for memory in arriving:
        asked.setdefault((*memory.partition.scope, memory.kind), set()).add(memory.number)
    found: dict[Any, set[int]] = {}
    for key, numbers in asked.items():
        product, agent, kind = key
        for some in slices(sorted(numbers)):
            query = select(memories.c.number).where(
                memories.c.product == product,
                memories.c.agent == agent,
                memories.c.kind == kind,
                memories.c.number.in_(some),
            )
            found.setdefault(key, set()).update(connection.scalars(query))
    return found


def _agree(link: Edge, start: Memory, end: Memory) -> bool:
    """Whether both are of one scope, there is still something to link, and their states say the same where
    they say it too."""
    if start.partition.scope != end.partition.scope or "purged" in (start.state.status, end.state.status):
        return False
    if link.type in ("conflicts_with", "asserts"):  # follow from the conflicts and the facts
        return False
    if link.type == "supersedes":
        return link.to_id in start.state.supersedes
    if link.type == "evidence_for":
        return link.from_id in end.state.evidence_ids
    return True
