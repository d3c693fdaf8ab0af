"""Random histories of writes, restarts, kills, evictions and faults against a plain model.

After every step each caller sees exactly what the model says; whenever everything has drained, the ledger,
the graph, Chroma and the model are equal. `SOAK=1` runs for many minutes, over the fake and the real Chroma.
"""

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from models.draft import content_key
from models.scope import Caller
from stores.vdb import Vdb
from tests.equivalence import check
from tests.state.brains import call, caller, drained, model_ready
from tests.state.life import Life
from tests.state.model import INVALID, Added, Entry, Refusal, Request
from tests.state.requests import adds, callers, keys

SOAK = os.environ.get("SOAK") == "1"


class Machine(Life):
    """What is written and looked at while that happens."""

    def teardown(self) -> None:
        if hasattr(self, "brain"):
            self.drain()
            self.stop()
        self.runner.close()
        shutil.rmtree(self.root)

    # Writing

    @rule(who=callers, request=adds, key=keys)
    def add(self, who: Caller, request: Request, key: str | None) -> None:
        status, body = self.call(
            "brain_memory_add", who, **request, **({"idempotency_key": key} if key else {})
        )
        known = self.model.keys.get((who.home, "add", key or ""))
        if known is not None:
            before, (stored, expected) = known
            if INVALID in request.values():
                assert status == 422
            elif before != request:
                assert (status, body["code"]) == (409, "idempotency_key_reused")
            else:
                assert (status, body["memory_ids"], body["replayed"]) == (expected, stored, True)
            return
        outcome = self.model.add(who, request)
        self.settle(outcome, status, body)
        if key and isinstance(outcome, Added):
            self.model.keys[who.home, "add", key] = (request, (body["memory_ids"], status))

    @rule(who=callers, items=st.lists(adds, min_size=1, max_size=6), atomic=st.booleans(), key=keys)
    def batch(self, who: Caller, items: list[Request], atomic: bool, key: str | None) -> None:
        given = {"items": items, "atomic": atomic}
        status, body = self.call(
            "brain_memory_add_batch", who, **given, **({"idempotency_key": key} if key else {})
        )
        known = self.model.keys.get((who.home, "batch", key or ""))
        if known is not None:
            before, ids = known
            if atomic and any(INVALID in item.values() for item in items):
                assert status == 422
            elif before != given:
                assert (status, body["code"]) == (409, "idempotency_key_reused")
            else:
                assert (status, body["replayed"]) == (207, True)
                assert [result.get("memory_ids") for result in body["results"]] == ids
            return
        outcomes = self.model.batch(who, items, atomic=atomic)
        if isinstance(outcomes, Refusal):
            assert (status, body["code"]) == (outcomes.status, outcomes.code)
            return
        assert (status, len(body["results"])) == (207, len(items))
        for outcome, result in zip(outcomes, body["results"], strict=True):
            self.settle(outcome, result["status"], result.get("error", result))
        if key:
            ids = [result.get("memory_ids") for result in body["results"]]
            self.model.keys[who.home, "batch", key] = (given, ids)

    def settle(self, outcome: Added | Refusal, status: int, body: dict[str, Any]) -> None:
        """Compare an answer with what the model did, and take over the ids."""
        if isinstance(outcome, Refusal):
            assert (status, body["code"]) == (outcome.status, outcome.code), body
            return
        assert (status, body["deduplicated"]) == (200 if outcome.duplicate else 201, outcome.duplicate), body
        for entry, memory_id in zip(outcome.entries, body["memory_ids"], strict=True):
            assert entry.memory_id in ("", memory_id)
            entry.memory_id, entry.shown = memory_id, {}

    # Looking

    def call(self, name: str, who: Caller, **arguments: Any) -> tuple[int, dict[str, Any]]:
        return self.runner.run(call(self.brain, name, who, **arguments))

    def read(self, entry: Entry, *, cold: bool = False) -> str:
        """Read an entry by its id, compare it with the model, and tell the store that it came from."""

        async def get() -> tuple[int, dict[str, Any]]:
            if cold:
                self.brain.residents.evict_all()
            return await call(
                self.brain, "brain_memory_get", who, memory_id=entry.memory_id, include=["details"]
            )

        who = Caller(entry.partition.scope, entry.partition.user, frozenset({"read"}), "r")
        status, body = self.runner.run(get())
        assert status == 200, body
        source, details = body.pop("source"), body["details"]
        del body["elapsed_ms"], body["request_id"]
        body["custom"] = verbatim(body["custom"])
        assert body["content"] == entry.content
        assert (body["user_id"], body["agent_id"]) == (entry.partition.user, entry.partition.agent)
        assert (body["layer"], body["tags"], body["status"]) == (entry.layer, entry.tags, "active")
        assert body["custom"] == entry.custom
        names = ("kind", "version", "frame", "session_id", "session_position")
        assert [details[name] for name in names] == [
            entry.kind,
            entry.version,
            entry.frame,
            entry.session_id,
            entry.position,
        ]
        entry.shown = entry.shown or body
        assert body == entry.shown
        return str(source)

    @invariant()
    def what_is_new_can_be_read_and_is_found(self) -> None:
        for entry in self.model.entries:
            if not entry.shown:
                self.read(entry)
                self.find(entry)

    def find(self, entry: Entry) -> None:
        """Its own text finds it, nothing of another text above it, and nobody else's."""
        who = Caller(entry.partition.scope, entry.partition.user, frozenset({"read"}), "r")
        status, body = self.call("brain_memory_search", who, query=entry.content[:2000], limit=100)
        assert status == 200
        hits = body["results"]
        assert {(hit["user_id"], hit["agent_id"]) for hit in hits} == {
            (entry.partition.user, entry.partition.agent)
        }
        equal = [
            old.memory_id
            for old in self.model.visible(who)
            if content_key(old.content) == content_key(entry.content)
        ]
        if len(equal) <= 100:
            best = [hit["memory_id"] for hit in hits[: len(equal)]]
            assert sorted(best) == sorted(equal)

    @invariant()
    def each_caller_lists_and_counts_what_the_model_says(self) -> None:
        if not hasattr(self, "brain"):
            return
        for agent in ("a", "b"):
            for user in (None, "u", "v"):
                who = caller(user, agent)
                expected = self.model.visible(who)
                _, page = self.call("brain_memory_list", who, order="oldest", limit=100)
                assert [m["memory_id"] for m in page["memories"]] == [e.memory_id for e in expected][:100]
                assert page["total"] == len(expected)
                _, stats = self.call("brain_stats", who)
                assert stats["kinds"] == dict(Counter(entry.kind for entry in expected))
                assert stats["layers"] == dict(Counter(entry.layer for entry in expected))

    @rule()
    def strangers_see_nothing(self) -> None:
        for entry in self.model.entries[-3:]:
            for stranger in (caller(None, "c"), caller(entry.partition.user, entry.partition.agent, "other")):
                status, body = self.call("brain_memory_get", stranger, memory_id=entry.memory_id)
                assert (status, body["code"]) == (404, "memory_not_found")
                _, body = self.call("brain_memory_search", stranger, query=entry.content[:2000])
                assert body["results"] == []

    @rule()
    @precondition(lambda self: self.model.entries)
    def drain(self) -> None:
        """Without faults everything comes together: ledger ≡ graph ≡ vdb ≡ model."""
        self.heal()
        self.load.set()

        async def settled() -> None:
            await model_ready(self.brain)
            await drained(self.brain)
            assert self.brain.applier.parked() == []
            await check(self.brain)

        self.runner.run(settled())
        for entry in self.model.entries:
            partition = self.runner.run(self.brain.residents.load(entry.partition))
            memory = partition.graph.memory(entry.memory_id)
            assert memory is not None
            assert partition.graph.neighbours(memory) == self.model.neighbours(entry)
            assert self.read(entry) == "graph"
        for entry in self.model.entries:
            assert self.read(entry, cold=True) == "vdb"
        for entry in self.model.entries[-5:]:
            self.find(entry)


class RealChroma(Machine):
    """The same over the real Chroma, in a child process on the same directory."""

    deadline_ms = 5_000

    def make_vdb(self, directory: Path) -> Any:
        return Vdb(directory / "vdb")


def verbatim(custom: Any) -> Any:
    """The writer's metadata, which an answer carries as JSON text."""
    return orjson.loads(orjson.dumps(custom))


quick = settings(
    max_examples=1_000 if SOAK else 45,
    stateful_step_count=60 if SOAK else 25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestStateMachine = Machine.TestCase
TestStateMachine.settings = quick
TestRealChroma = RealChroma.TestCase
TestRealChroma.settings = settings(
    quick, max_examples=40 if SOAK else 4, stateful_step_count=60 if SOAK else 15
)
