"""Random histories of writes of mixed authority and time, facts, feedback, conflicts and deletes. What must
hold of trust is checked after every step from the ledger's rows alone: docs/decisions/0003-trust.md."""

import os
import shutil
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from sqlalchemy import select

from models.authority import rank
from models.confidence import confidence_of
from models.memory import Memory
from models.scope import Caller, Scope
from models.sources import independent
from models.verdict import agrees, contradicts
from service.callers import ALL_RIGHTS
from stores.appraisal import READABLE
from stores.schema import conflicts, edges, memories
from tests.equivalence import check
from tests.state.brains import call, drained, model_ready
from tests.state.life import Life

SOAK = os.environ.get("SOAK") == "1"
AUTHORITIES = ("policy", "team", "informal")
DEPENDS = ("derived_from", "evidence_for")
BACK = {"brain_memory_restore", "brain_memory_delete", "brain_conflict_resolve", "brain_memory_feedback"}

authorities = st.sampled_from(AUTHORITIES)
places = st.integers(0, 9)
times = st.none() | st.integers(1, 4)
facts = st.lists(
    st.builds(
        lambda subject, object, single: {
            "subject": subject,
            "predicate": "is",
            "object": object,
            "single_valued": single,
        },
        st.sampled_from(["a", "a", "b"]),
        st.sampled_from(["x", "y", "z"]),
        st.sampled_from([True, True, False]),
    ),
    max_size=2,
    unique_by=lambda fact: fact["subject"],
)
memory_fields = st.fixed_dictionaries(
    {"facts": facts, "source_authority": authorities},
    optional={
        "memory_at": st.integers(1, 4),
        "frame": st.just("f"),
        "layer": st.sampled_from(["l1_raw", "l3_summary"]),
        "valid_from": st.integers(1, 2),
        "valid_until": st.integers(3, 4),
        "actor": st.sampled_from(["Ann", "Bob"]),
        "confidence": st.sampled_from([0.1, 0.75]),
        "on_conflict": st.just("error"),
    },
)
changes = st.sampled_from(
    [
        {"content": "said otherwise"},
        {"frame": "f"},
        {"frame": None},
        {"valid_from": None, "valid_until": None},
        {"valid_from": 3, "valid_until": None},
        {"confidence": 0.3},
        {"tags": ["t"]},
    ]
)


def act(name: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


ceilings = st.sampled_from(["policy", "policy", "team", "informal"])
adding = act(
    "add",
    ceiling=ceilings,
    fields=memory_fields,
    evidence=st.lists(places, max_size=1),
    raw=st.none() | st.none() | places,
    text=st.integers(0, 30),
)
verdicts = st.sampled_from(["confirmed", "useful", "outdated", "wrong"])
acts = st.one_of(
    *[adding] * 8,
    act("supersede", ceiling=ceilings, fields=memory_fields, olds=st.lists(places, min_size=1, max_size=2)),
    act("update", ceiling=ceilings, place=places, change=changes, asserted=facts),
    act("feedback", ceiling=ceilings, place=places, verdict=verdicts),
    *[act("resolve", ceiling=ceilings, place=places, side=st.sampled_from([None, 0, 1]))] * 2,
    act(
        "delete",
        ceiling=ceilings,
        place=places,
        mode=st.sampled_from(["forget", "archive"]),
        revive=st.booleans(),
    ),
    act("restore", ceiling=ceilings, place=places),
    act(
        "link",
        ceiling=ceilings,
        ends=st.tuples(places, places),
        type=st.sampled_from(DEPENDS),
        away=st.booleans(),
    ),
    act("live_on", how=st.sampled_from(["restart", "kill", "evict"])),
    act("drain"),
    act("purge", place=places, cascade=st.booleans(), really=st.sampled_from([False, False, True])),
)


class Machine(Life):
    # What `Life` does at random is done here between the acts, so that there are many of these.
    restart = kill = evict = chroma = embedder = model_loads = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.adopted: set[tuple[str, str]] = set()  # head and lost side, whatever their authorities
        self.seen: dict[str, Memory] = {}
        self.links: set[tuple[str, str, str]] = set()
        self.step: tuple[str, Caller, dict[str, Any], int] | None = None

    def teardown(self) -> None:
        try:
            if hasattr(self, "brain"):
                self.drain()
                self.stop()
            self.runner.close()
        finally:
            shutil.rmtree(self.root)

    def ask(self, name: str, ceiling: str, **arguments: Any) -> dict[str, Any] | None:
        """The answer, None for a refusal, which changes nothing."""
        who: Any = Caller(Scope("p", "a"), None, ALL_RIGHTS, "r", f"key-{ceiling}", ceiling)  # type: ignore[arg-type]
        self.clock.ms += 1
        status, body = self.runner.run(call(self.brain, name, who, **arguments))
        assert status < 500, body
        self.step = (name, who, arguments, status)
        return body if status < 300 else None

    def pick(self, place: int) -> str:
        return self.ids[-1 - place % len(self.ids)]

    def added(self, body: dict[str, Any] | None) -> None:
        if body is not None and body["memory"]["memory_id"] not in self.ids:
            self.ids.append(body["memory"]["memory_id"])

    # What is done

    @rule(acts=st.lists(acts, min_size=8, max_size=30))
    def do(self, acts: list[tuple[str, dict[str, Any]]]) -> None:
        """Several acts, since what matters comes of how they meet; each is checked by itself."""
        for name, arguments in acts:
            if self.ids or name == "add":
                getattr(self, name)(**arguments)
                self.everything_holds()

    def live_on(self, how: str) -> None:
        """What is stored is all there is."""
        if how == "restart":
            Life.restart(self, loaded=True)
        elif how == "kill":
            Life.kill(self, loaded=True)
        else:
            Life.evict(self)

    def add(
        self, ceiling: str, fields: dict[str, Any], evidence: list[int], raw: int | None, text: int
    ) -> None:
        if self.ids:
            fields = fields | {"evidence_ids": [self.pick(place) for place in evidence]}
        said = [id for id, memory in self.seen.items() if memory.layer == "l1_raw" and not memory.hidden]
        if raw is not None and said:
            fields |= {"source_raw_memory_id": said[raw % len(said)]}
        self.added(self.ask("brain_memory_add", ceiling, content=f"text {text}", **fields))

    def supersede(self, ceiling: str, fields: dict[str, Any], olds: list[int]) -> None:
        named = [self.pick(place) for place in olds]
        self.added(self.ask("brain_memory_supersede", ceiling, content="new", supersedes=named, **fields))

    def update(
        self, ceiling: str, place: int, change: dict[str, Any], asserted: list[dict[str, Any]]
    ) -> None:
        if "content" in change:
            change = change | {"facts": asserted}
        self.added(self.ask("brain_memory_update", ceiling, memory_id=self.pick(place), **change))

    def feedback(self, ceiling: str, place: int, verdict: str) -> None:
        self.ask("brain_memory_feedback", ceiling, memory_id=self.pick(place), verdict=verdict)

    def resolve(self, ceiling: str, place: int, side: int | None) -> None:
        found = self.ask("brain_conflicts", ceiling, limit=100)
        assert found is not None
        if found["conflicts"]:
            conflict = found["conflicts"][place % len(found["conflicts"])]
            sides = [one["memory_id"] for one in conflict["sides"]]
            adopted = None if side is None else sides[side]
            done = self.ask(
                "brain_conflict_resolve", ceiling, conflict_id=conflict["conflict_id"], adopted=adopted
            )
            if done is not None and adopted is not None:
                [lost] = [id for id in sides if id != adopted]
                self.adopted.add((adopted, lost))

    def delete(self, ceiling: str, place: int, mode: str, revive: bool) -> None:
        self.ask("brain_memory_delete", ceiling, memory_id=self.pick(place), mode=mode, revive=revive)

    def restore(self, ceiling: str, place: int) -> None:
        away = [id for id, memory in self.seen.items() if memory.state.status not in ("active", "superseded")]
        memory_id = away[place % len(away)] if away else self.pick(place)
        self.ask("brain_memory_restore", ceiling, memory_id=memory_id)

    def link(self, ceiling: str, ends: tuple[int, int], type: str, away: bool) -> None:
        one, other = map(self.pick, ends)
        if one != other:
            name = "brain_memory_unlink" if away else "brain_memory_link"
            self.ask(name, ceiling, from_id=one, type=type, to_id=other)

    def purge(self, place: int, cascade: bool, really: bool) -> None:
        self.ask("brain_purge", "policy", memory_id=self.pick(place), cascade=cascade, dry_run=not really)

    def drain(self) -> None:
        """Ledger, graph and Chroma are one."""
        self.heal()
        self.load.set()

        async def settled() -> None:
            await model_ready(self.brain)
            await drained(self.brain)
            for shard in self.brain.shards.due():
                await self.brain.shards.refilled(shard)
            await drained(self.brain)
            await check(self.brain)

        self.runner.run(settled())

    # What must hold

    @invariant()
    def everything_holds(self) -> None:
        if not hasattr(self, "brain"):
            return
        with self.brain.ledger.snapshot() as connection:
            ids = list(connection.scalars(select(memories.c.memory_id)))
            open_rows = connection.execute(select(conflicts).where(conflicts.c.resolved_at.is_(None))).all()
            closed = connection.execute(select(conflicts).where(conflicts.c.resolved_at.is_not(None))).all()
            held = connection.execute(
                select(edges.c.from_id, edges.c.type, edges.c.to_id).where(edges.c.to_seq.is_(None))
            ).all()
        now = self.brain.ledger.find_all(ids)
        links = {tuple(row) for row in held}
        assert len(links) == len(held), "a link holds once"
        before, step = self.seen, self.step
        self.check_steps(before, now, step)
        self.check_chains(before, now)
        self.check_conflicts(now, open_rows, closed, links)
        self.check_confidence(now, links)
        self.check_flags(before, now, links, step)
        self.seen, self.links, self.step = now, links, None

    def check_steps(self, before: dict[str, Memory], now: dict[str, Memory], step: Any) -> None:
        """A refusal changes nothing, nobody reaches above its own authority, and nothing is current again
        unless it was asked for."""
        if step is None or step[3] >= 400:
            assert before == now
            return
        name, who, _, _ = step
        for id, old in before.items():
            new = now[id]
            if rank(old.source_authority) > rank(who.ceiling):
                kept = [
                    (one.content, one.source_authority, s.status, s.superseded_by, s.tags, s.frame,
                     s.valid_from, s.valid_until, s.stated_confidence, s.evidence_ids)
                    for one in (old, new)
                    for s in (one.state,)
                ]  # fmt: skip
                assert kept[0] == kept[1], step
            if (old.state.status, new.state.status)[1] == "active" != old.state.status:
                assert name in BACK, step

    def check_chains(self, before: dict[str, Memory], now: dict[str, Memory]) -> None:
        """No lower authority stands above a higher one, but where somebody decided so. A purge joins what was
        on both sides. (`tests.equivalence` checks the shape of the chains.)"""
        for id, new in now.items():
            if new.state.status == "purged" and id in before and before[id].state.status != "purged":
                old = before[id].state
                self.adopted |= {
                    (top, low) for top, lost in self.adopted if lost == id for low in old.supersedes
                }
                self.adopted |= {
                    (top, low) for head, low in self.adopted if head == id for top in old.superseded_by
                }
        for id, memory in now.items():
            assert len(memory.state.superseded_by) <= 1
            for newer in memory.state.superseded_by:
                above = now[newer]
                assert above.state.status == "purged" or (
                    rank(above.source_authority) >= rank(memory.source_authority)
                    or (newer, id) in self.adopted
                )
            passed = {id}
            while memory.state.superseded_by:
                memory = now[memory.state.superseded_by[0]]
                assert memory.memory_id not in passed, "a chain goes in a circle"
                passed.add(memory.memory_id)

    def check_conflicts(
        self, now: dict[str, Memory], open_rows: Any, closed: Any, links: set[tuple[str, ...]]
    ) -> None:
        """Rows, standings and links say the same; who denies whom is either settled or an open conflict; who
        has lost to a higher authority is conflicted."""
        pairs = Counter(frozenset((row.a_id, row.b_id)) for row in open_rows)
        assert not pairs or max(pairs.values()) == 1
        assert {(a, b) for a, type, b in links if type == "conflicts_with"} == {
            (row.a_id, row.b_id) for row in open_rows
        }
        for id, memory in now.items():
            against = {
                row.conflict_id: now[row.b_id if row.a_id == id else row.a_id]
                for row in open_rows
                if id in (row.a_id, row.b_id)
            }
            counted = {key: one for key, one in against.items() if one.state.status in READABLE}
            if memory.state.status not in READABLE:
                counted = {}
                if memory.state.status == "purged":
                    assert not against
            standing = memory.state.standing
            ranks = [rank(one.source_authority) for one in counted.values()]
            own = rank(memory.source_authority)
            assert standing.conflicts == tuple(sorted(counted))
            assert standing.contested == any(other >= own for other in ranks)
            assert standing.outranked == any(other > own for other in ranks)
            lost = [
                row
                for row in open_rows
                if row.conflict_id in counted
                and row.rule == "authority"
                and rank(counted[row.conflict_id].source_authority) > own
            ]
            assert not (lost and memory.state.status == "active")
        settled = {frozenset((row.a_id, row.b_id)) for row in closed} | set(pairs)
        active = [memory for memory in now.values() if memory.state.status == "active"]
        for index, one in enumerate(active):
            for other in active[index + 1 :]:
                if contradicts(one, other):
                    assert frozenset((one.memory_id, other.memory_id)) in settled

    def check_confidence(self, now: dict[str, Memory], links: set[tuple[str, ...]]) -> None:
        """By the formula, from the sources that there are."""
        active = [memory for memory in now.values() if memory.state.status == "active"]
        for id, memory in now.items():
            if memory.state.status == "purged":
                continue
            assert memory.state.confidence == confidence_of(memory).value
            if memory.state.status in READABLE:
                saying = [
                    one
                    for one in active
                    if one.memory_id in memory.state.evidence_ids
                    or (one.memory_id != id and agrees(memory, one))
                ]
                origins = _origins(links, id)
                kin = {one.memory_id for one in saying if origins & _origins(links, one.memory_id)}
                met = [{a, b} for a, type, b in links if type == "conflicts_with" and id in (a, b)]
                against = set().union(*met)
                counted = independent(memory, saying, kin, against)
                assert memory.state.standing.agreements == counted
            elif memory.source_raw_memory_id in now:
                raw = now[memory.source_raw_memory_id]
                assert raw.state.status == "purged" or (
                    rank(raw.source_authority) >= rank(memory.source_authority)
                )

    def check_flags(
        self, before: dict[str, Memory], now: dict[str, Memory], links: set[tuple[str, ...]], step: Any
    ) -> None:
        """What rests on something that falls is flagged, and stays so until somebody has confirmed it."""
        confirmed = None
        if step is not None and step[0] == "brain_memory_feedback" and step[2]["verdict"] == "confirmed":
            confirmed = step[2]["memory_id"]
        for id, old in before.items():
            new = now[id]
            if new.state.status != "purged" and id != confirmed:
                assert set(old.state.standing.fallen) <= set(new.state.standing.fallen)
        fell = [id for id, old in before.items() if _stands(old) and not _stands(now[id])]
        every = {*self.links, *links}
        for id in fell:
            for above in _resting_on(every, id):
                memory = now[above]
                knows = id in memory.state.supersedes or step is None or step[2].get("memory_id") == above
                assert knows or memory.state.status == "purged" or memory.state.standing.fallen, (id, above)


def _stands(memory: Memory) -> bool:
    return memory.state.status == "active" and not memory.state.standing.contested


def _origins(links: set[tuple[str, ...]], id: str) -> set[str]:
    """What it was derived from, directly or not, and itself."""
    found, front = {id}, {id}
    while front:
        front = {b for a, type, b in links if type == "derived_from" and a in front} - found
        found |= front
    return found


def _resting_on(links: set[tuple[str, ...]], id: str) -> set[str]:
    """Directly or not."""
    found: set[str] = set()
    front = {id}
    while front:
        front = {a for a, type, b in links if type == "derived_from" and b in front} | {
            b for a, type, b in links if type == "evidence_for" and a in front
        }
        front -= found
        found |= front
    return found - {id}


TestTrust = Machine.TestCase
TestTrust.settings = settings(
    max_examples=1_000 if SOAK else 10,
    stateful_step_count=10 if SOAK else 4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
