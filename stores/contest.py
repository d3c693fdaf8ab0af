"""Where memories contradict each other: a new one against those that it replaces or whose facts it denies.
One rule (models/verdict.py) says what becomes of both; here it is done."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import bindparam, or_, select

from models.authority import rank
from models.confidence import start_of
from models.errors import LowerAuthority
from models.identity import uuid7
from models.memory import Memory, State, united
from models.sources import key_of
from models.verdict import CONFLICTS, REASONS, Rule, Ruling, agrees, judge_facts, strength
from stores.acts import Act
from stores.appraisal import MAX_HEARD, agreeing, alive, beaten_in, denied, opponents, reappraise, settle
from stores.changes import Change, Edge
from stores.dependents import flag_dependents
from stores.inserts import insert_edges
from stores.schema import conflicts
from stores.writer import Transaction

_a, _b = conflicts.c.a_id, conflicts.c.b_id
_one: Any = bindparam("one")
_other: Any = bindparam("other")
_OPEN_BETWEEN = select(conflicts.c.conflict_id).where(
    or_((_a == _one) & (_b == _other), (_a == _other) & (_b == _one)), conflicts.c.resolved_at.is_(None)
)


@dataclass(frozen=True, slots=True)
class Contest:
    """A memory, stored or not, and what the rule says of it against each of the others: those that the writer
    `named` to be replaced, and those whose facts it denies."""

    memory: Memory
    named: tuple[tuple[Memory, Ruling], ...]
    denied: tuple[tuple[Memory, Ruling], ...]
    agreeing: tuple[Memory, ...] = ()

    @classmethod
    def of(
        cls, transaction: Transaction, memory: Memory, named: Sequence[tuple[Memory, Ruling]] | None = None
    ) -> "Contest":
        """Finds those whose facts it denies. `named` None: the memory is stored and has its place already, so
        that it is not filed under what was superseded itself, which may be its own history."""
        known = {old.memory_id for old, _ in named or ()}
        others = denied(transaction, memory, history=named is not None)
        judged = tuple((old, judge_facts(memory, old)) for old in others if old.memory_id not in known)
        return cls(memory, tuple(named or ()), judged, tuple(agreeing(transaction, memory)))

    @property
    def against(self) -> tuple[tuple[Memory, Ruling], ...]:
        """The others that it meets; not those superseded already, of which it may be the history."""
        return self.named + tuple(one for one in self.denied if one[0].state.status != "superseded")

    @property
    def lost(self) -> bool:
        return any(ruling.verdict == "loses" for _, ruling in self.against)

    @property
    def replaced(self) -> tuple[Memory, ...]:
        """Whom it replaces. To be named is not enough when it has lost to somebody: then nobody wanted to
        have the others gone without it."""
        met = self.against if not self.lost else self.against[len(self.named) :]
        return tuple(old for old, ruling in met if ruling.verdict == "replaces")

    @property
    def newer(self) -> Memory | None:
        """Of which it is the history: the strongest, since a memory has one successor. One that is superseded
        itself only when it replaces nobody, so that no chain goes in a circle."""
        every = self.against if self.replaced else (*self.named, *self.denied)
        found = [old for old, ruling in every if ruling.verdict == "history"]
        return max(found, key=strength, default=None)

    def check(self, on_conflict: str) -> None:
        """Raises LowerAuthority when a conflict would be opened and the writer wants none."""
        if on_conflict != "error" or self.newer is not None:
            return
        for old, ruling in self.against:
            if ruling.verdict in CONFLICTS:
                raise LowerAuthority(
                    f"Memory {old.memory_id} ({old.source_authority}) contradicts it: {REASONS[ruling.rule]}."
                )

    def state(self) -> State:
        """The memory's own state after it."""
        state = self.memory.state
        replaced = tuple(old.memory_id for old in self.replaced)
        state = replace(state, supersedes=united(state.supersedes, replaced))
        if self.newer is not None:
            return replace(state, status="superseded", superseded_by=(self.newer.memory_id,))
        return replace(state, status="conflicted") if self.lost else state

    def carry_out(self, act: Act, transaction: Transaction, memory: Memory) -> tuple[str, ...]:
        """Do to the others what follows, once the memory is stored in its own state. Returns the ids of the
        conflicts that are open between them."""
        id = memory.memory_id
        moved, opened = [], []
        for old in self.replaced:
            state = replace(old.state, status="superseded", superseded_by=(id,))
            moved.append(act.change(transaction, old, state, ("status", "superseded_by")))
        if self.newer is not None:
            state = replace(self.newer.state, supersedes=united(self.newer.state.supersedes, (id,)))
            link = Edge(self.newer.memory_id, "supersedes", id)
            act.change(transaction, self.newer, state, ("supersedes",), links=(link,))
        else:
            for old, ruling in self.against:
                if ruling.verdict == "outranks" and old.state.status == "active":
                    lost = replace(old.state, status="conflicted")
                    moved.append(act.change(transaction, old, lost, ("status",)))
                if ruling.verdict in CONFLICTS:
                    opened.append(open_conflict(act, transaction, memory, old, ruling.rule, None))
        heard = len(self.agreeing) < MAX_HEARD  # else it comes too late to be heard
        told = [one.memory_id for one in self.agreeing if heard and self._is_news(one)]
        reappraise(act, transaction, [id, *told, *(old.memory_id for old, _ in self.against)])
        settle(act, transaction, moved)
        flag_dependents(act, transaction, moved, but=id)
        return tuple(opened)

    def _is_news(self, other: Memory) -> bool:
        """Whether it tells another that agrees with it anything that its source has not told it before."""
        key = key_of(self.memory)
        return key not in (None, key_of(other)) and not any(
            key_of(one) == key and start_of(one) >= start_of(self.memory) and agrees(other, one)
            for one in self.agreeing
            if one is not other and one.state.status == "active"
        )


def confront(act: Act, transaction: Transaction, memory: Memory) -> tuple[str, ...]:
    """Judge a stored, active memory against those whose facts it denies, since it was brought back or holds
    at other times now. Returns the ids of the conflicts that are open then."""
    contest = Contest.of(transaction, memory)
    state = contest.state()
    links = tuple(Edge(memory.memory_id, "supersedes", old.memory_id) for old in contest.replaced)
    changed = memory
    if state != memory.state:
        fields = ("status", "supersedes", "superseded_by")
        changed = act.change(transaction, memory, state, fields, links=links)
    opened = contest.carry_out(act, transaction, changed)
    if changed.state.status != memory.state.status:
        settle(act, transaction, [changed], [changed])
    return opened


def rejoin(act: Act, transaction: Transaction, memory_id: str) -> None:
    """What a memory that is active again finds: it has lost to a higher authority before, others have lost
    to it, or it meets those whose facts it denies."""
    reappraise(act, transaction, [memory_id])
    [memory] = alive(transaction, [memory_id])
    if memory.state.status != "active":  # another one that came back has replaced it already
        return
    if beaten_in(transaction, memory) is not None:
        act.change(transaction, memory, replace(memory.state, status="conflicted"), ("status",))
        return
    own = rank(memory.source_authority)
    against = opponents(transaction, memory)
    beaten = [one.memory_id for one in against if one.rule == "authority" and rank(one.authority) < own]
    for other in alive(transaction, beaten):
        if other.state.status == "active":
            lost = replace(other.state, status="conflicted")
            flag_dependents(act, transaction, [act.change(transaction, other, lost, ("status",))])
    confront(act, transaction, memory)


def open_conflict(
    act: Act, transaction: Transaction, one: Memory, other: Memory, rule: Rule, reason: str | None
) -> str:
    """Record that two memories of a partition contradict each other. Returns the conflict's id: that of the
    one which is open between them already, if there is one."""
    pair = {"one": one.memory_id, "other": other.memory_id}
    known: str | None = transaction.scalar(_OPEN_BETWEEN, pair)
    if known is not None:
        return known
    seq = act.event(transaction, one.partition, one.memory_id, ("conflicts",))
    conflict_id = uuid7(transaction.now)
    product, agent, user = one.partition
    row = {
        "conflict_id": conflict_id,
        "product": product,
        "agent": agent,
        "user": user,
        "a_id": one.memory_id,
        "b_id": other.memory_id,
        "rule": rule,
        "reason": reason,
        "seq": seq,
        "opened_at": transaction.now,
        "resolved_at": None,
        "adopted": None,
        "resolution": None,
    }
    transaction.insert(conflicts, [row])
    edge = Edge(one.memory_id, "conflicts_with", other.memory_id)
    insert_edges(transaction, (edge,), seq)
    transaction.changes.append(Change(one, edges=(edge,)))
    return conflict_id
