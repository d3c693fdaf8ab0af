"""What is looked at in the state machine, step by step: what each caller reads, finds, lists and counts."""

from collections import Counter
from typing import Any

import orjson
from hypothesis.stateful import invariant, rule

from models.draft import content_key
from models.scope import Caller
from tests.equivalence import check
from tests.state.brains import call, caller, drained, model_ready
from tests.state.life import Life
from tests.state.model import Entry, Refusal

STATUSES = ["active", "superseded", "conflicted", "archived", "forgotten", "purged"]

FOLLOWING = {
    "confidence", "speculate", "version", "confidence_terms", "conflicts", "fallen", "review_due_at",
    "speculation_rule", "tier",
}  # fmt: skip


def owner(entry: Entry) -> Caller:
    """The user who has a memory, and no right but to read."""
    return Caller(entry.partition.scope, entry.partition.user, frozenset({"read"}), "r")


class Looking(Life):
    def call(self, name: str, who: Caller, **arguments: Any) -> tuple[int, dict[str, Any]]:
        return self.runner.run(call(self.brain, name, who, **arguments))

    def agree(self, outcome: Any, name: str, who: Caller, **arguments: Any) -> dict[str, Any] | None:
        """The answer to a call, None when it is refused as the model says."""
        status, body = self.call(name, who, **arguments)
        if isinstance(outcome, Refusal):
            assert (status, body.get("code")) == (outcome.status, outcome.code), body
            return None
        assert status in (200, 201), body
        return body

    def get(self, entry: Entry, *, cold: bool = False) -> tuple[int, dict[str, Any]]:
        async def get() -> tuple[int, dict[str, Any]]:
            if cold:
                self.brain.residents.evict_all()
            arguments = {"memory_id": entry.memory_id, "include": ["details"]}
            return await call(self.brain, "brain_memory_get", owner(entry), **arguments)

        return self.runner.run(get())

    def read(self, entry: Entry, *, cold: bool = False) -> str:
        """Read an entry by its id, compare it with the model, and tell the store that it came from."""
        status, body = self.get(entry, cold=cold)
        assert status == 200, body
        source, details = body.pop("source"), body["details"]
        del body["elapsed_ms"], body["request_id"]
        body["custom"] = verbatim(body["custom"])
        assert body["content"] == entry.content
        assert (body["user_id"], body["agent_id"]) == (entry.partition.user, entry.partition.agent)
        assert (body["layer"], body["tags"], body["status"]) == (entry.layer, entry.tags, entry.status)
        assert (body["custom"], body["source_authority"]) == (entry.custom, entry.authority)
        assert (body["supersedes"] or []) == entry.supersedes
        assert (body["superseded_by"] or []) == entry.superseded_by
        assert body["is_latest"] == (not entry.superseded_by)
        names = ("kind", "frame", "session_id", "session_position", "evidence_ids")
        assert [details[name] for name in names] == [
            entry.kind,
            entry.frame,
            entry.session_id,
            entry.position,
            entry.evidence,
        ]
        if details["tier"] != "interpretation":  # it follows what vouches for the memory
            assert (details["tier"] == "testimony") == bool(details["confidence_terms"]["sources"])
        for name in FOLLOWING & body.keys():  # from what becomes of others; see test_trust_machine.py
            del body[name]
        for name in FOLLOWING & details.keys():
            del details[name]
        entry.shown = entry.shown or body
        assert body == entry.shown
        return str(source)

    def find(self, entry: Entry) -> None:
        """Its own text finds it or an equal one, nothing of another text above it, nobody else's, and no
        older row of its chain."""
        who = owner(entry)
        status, body = self.call("brain_memory_search", who, query=entry.content[:2000], limit=100)
        assert status == 200
        hits = body["results"]
        active = {old.memory_id: old for old in self.model.active(who)}
        assert {hit["memory_id"] for hit in hits} <= active.keys()
        # Of equal texts one is shown.
        key = content_key(entry.content)
        equal = {id for id, old in active.items() if content_key(old.content) == key}
        # By words alone a long turn that follows it may stand above it: answers follow questions.
        shown = hits if body["degraded"] else hits[:1]
        assert len(equal & {hit["memory_id"] for hit in shown}) == 1

    @invariant()
    def what_is_new_can_be_read_and_is_found(self) -> None:
        for entry in self.model.entries:
            if not entry.shown and not entry.hidden:
                self.read(entry)
                if entry.status == "active":
                    self.find(entry)
            elif not entry.shown:
                self.is_nowhere(entry)
                entry.shown = {"hidden": True}

    def is_nowhere(self, entry: Entry) -> None:
        """What is forgotten or purged is in no answer, neither its id nor its text."""
        expected = (404, "memory_not_found") if entry.status == "purged" else (410, "memory_forgotten")
        status, body = self.get(entry)
        assert (status, body["code"]) == expected
        scope = caller(None, entry.partition.agent)
        words = entry.content[:2000] or "anything"
        _, found = self.call("brain_memory_search", scope, query=words, limit=100, statuses=STATUSES)
        assert entry.memory_id not in [hit["memory_id"] for hit in found["results"]]
        texts = {other.content for other in self.model.reachable(scope)}
        for id in {*entry.supersedes, *entry.superseded_by}:
            near = self.model.entry(id)
            if near.hidden:
                continue
            _, history = self.call("brain_memory_history", scope, memory_id=id)
            assert entry.content == "" or {v["content"] for v in history["versions"]} <= texts | {""}
            _, related = self.call("brain_memory_related", scope, memory_id=id, hops=3)
            assert entry.memory_id not in [node["memory_id"] for node in related["nodes"]]

    @invariant()
    def each_caller_lists_and_counts_what_the_model_says(self) -> None:
        if not hasattr(self, "brain"):
            return
        for agent in ("a", "b"):
            for user in (None, "u", "v"):
                who = caller(user, agent)
                expected = self.model.active(who)
                _, page = self.call("brain_memory_list", who, order="oldest", limit=100)
                assert [m["memory_id"] for m in page["memories"]] == [e.memory_id for e in expected][:100]
                assert page["total"] == len(expected)
                reachable = self.model.reachable(who)
                _, stats = self.call("brain_stats", who)
                assert stats["kinds"] == dict(Counter(entry.kind for entry in reachable))
                assert stats["layers"] == dict(Counter(entry.layer for entry in reachable))
                assert stats["statuses"] == dict(Counter(entry.status for entry in reachable))

    @rule()
    def strangers_see_nothing(self) -> None:
        for entry in self.model.entries[-3:]:
            for stranger in (caller(None, "c"), caller(entry.partition.user, entry.partition.agent, "other")):
                status, body = self.call("brain_memory_get", stranger, memory_id=entry.memory_id)
                assert (status, body["code"]) == (404, "memory_not_found")
                _, body = self.call("brain_memory_search", stranger, query=entry.content[:2000] or "x")
                assert body["results"] == []

    def came_up(self, loaded: bool) -> None:
        if loaded:
            self.drain()

    @rule()
    def drain(self) -> None:
        """Without faults everything comes together: ledger ≡ graph ≡ vdb ≡ model."""
        self.heal()
        self.load.set()

        async def settled() -> None:
            await model_ready(self.brain)
            await drained(self.brain)
            for shard in self.brain.shards.due():
                await self.brain.shards.refilled(shard)
            await drained(self.brain)
            assert self.brain.applier.parked() == []
            await check(self.brain)

        self.runner.run(settled())
        shown = [entry for entry in self.model.entries if not entry.hidden]
        for entry in shown:
            self.is_whole(entry)
            assert self.read(entry) == "graph"
        for entry in shown:
            assert self.read(entry, cold=True) == "vdb"
        for entry in self.model.entries:
            if entry.hidden:
                self.is_nowhere(entry)

    def is_whole(self, entry: Entry) -> None:
        """In memory it has its vectors, its neighbours and its links."""
        partition = self.runner.run(self.brain.residents.load(entry.partition))
        memory = partition.graph.memory(entry.memory_id)
        assert memory is not None
        assert partition.has_vectors(entry.memory_id)
        assert partition.graph.neighbours(memory) == self.model.neighbours(entry)
        hidden = {other.memory_id for other in self.model.entries if other.hidden}
        links = {
            (edge.from_id, edge.type, edge.to_id)
            for edge in partition.graph.edges(entry.memory_id)
            if edge.type not in ("next", "in_session") and not {edge.from_id, edge.to_id} & hidden
        }
        assert links == {
            link
            for link in self.model.edges()
            if entry.memory_id in (link[0], link[2]) and not {link[0], link[2]} & hidden
        }


def verbatim(custom: Any) -> Any:
    """The writer's metadata, which an answer carries as JSON text."""
    return orjson.loads(orjson.dumps(custom))
