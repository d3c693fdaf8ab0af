"""Random histories of writes, restarts, kills, evictions and faults against a plain model.

After every step each caller sees exactly what the model says; whenever everything has drained, the ledger,
the graph, Chroma and the model are equal. `SOAK=1` runs for many minutes, over the fake and the real Chroma.
"""

import asyncio
import os
import shutil
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.draft import content_key
from models.scope import Caller
from service.brain import Brain
from stores.vdb import Vdb
from tests.equivalence import check
from tests.state.brains import (
    Clock,
    Shards,
    SwitchEncoder,
    SwitchVdb,
    call,
    caller,
    crash_image,
    drained,
    make_brain,
    model_ready,
)
from tests.state.model import INVALID, Added, Entry, Model, Refusal, Request

SOAK = os.environ.get("SOAK") == "1"
LONG = " ".join(f"word{number}" for number in range(260))  # of several chunks
TEXTS = [
    "amber fox",
    "AMBER \u200b Fox",
    "birch",
    "cobalt ember",
    "delta-42 gate",
    "北京天气",
    "ünïcode 🧠",
    LONG,
]

callers = st.builds(caller, st.sampled_from([None, "u", "v"]), st.sampled_from(["a", "b"]))
texts = st.sampled_from(TEXTS)
tags = st.lists(st.sampled_from(["red", "green", "blue"]), max_size=2, unique=True)
sessions = st.sampled_from(["s", "t"])
keys = st.none() | st.sampled_from(["k1", "k2", "k3"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Request]:
    return st.fixed_dictionaries({"content": texts}, optional=fields)


memories = some(
    layer=st.sampled_from(["l0_basic_info", "l2_fact", "l7_intention", INVALID]),
    tags=tags,
    metadata=st.dictionaries(
        st.sampled_from(["a", "b"]), st.integers() | st.text(max_size=5), max_size=2
    ).filter(lambda value: all(not isinstance(v, int) or abs(v) < 2**63 for v in value.values())),
    frame=st.sampled_from(["team", "private"]),
    on_duplicate=st.sampled_from(["merge", "keep", "error"]),
    source_authority=st.sampled_from(["policy", "team"]),
)
seated = st.builds(
    lambda request, session, position: {**request, "session_id": session, "session_position": position},
    some(kind=st.sampled_from(["memory", "message"]), on_duplicate=st.sampled_from(["merge", "keep"])),
    sessions,
    st.integers(0, 6),
)
messages = st.builds(
    lambda request, session: {**request, "kind": "message", "session_id": session},
    some(actor=st.sampled_from(["Melanie", "Tom"])),
    sessions,
)
conversations = st.builds(
    lambda turns, session: {
        "messages": [{"role": "user", "content": turn} for turn in turns],
        "session_id": session,
    },
    st.lists(texts, min_size=1, max_size=4),
    sessions,
)
adds = memories | seated | messages | conversations


class Machine(RuleBasedStateMachine):
    """A brain over the in-memory Chroma, whose rows outlive a restart as a directory would."""

    deadline_ms = 20  # what a cold read waits for a Chroma that hangs; the fake answers at once or never

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = Path(tempfile.mkdtemp(prefix="brain-state-"))
        self.lives = 0
        self.model = Model()
        self.clock = Clock()
        self.shards: Shards = {}
        self.fresh = 0  # entries before this one were read in full before

    # The brain's life

    @initialize(loaded=st.booleans())
    def begin(self, loaded: bool) -> None:
        self.start(self.root / "0", loaded=loaded)

    def make_vdb(self, directory: Path) -> Any:
        return SwitchVdb(self.shards)

    def start(self, directory: Path, *, loaded: bool) -> None:
        self.directory = directory
        self.encoder, self.load = SwitchEncoder(), threading.Event()
        encoder, load = self.encoder, self.load
        if loaded:
            load.set()

        def loading() -> SwitchEncoder:
            load.wait(60)
            return encoder

        async def start() -> Brain:
            self.vdb = self.make_vdb(directory)
            brain = make_brain(
                directory,
                vdb=self.vdb,
                load=loading,
                clock=self.clock,
                read_deadline_ms=self.deadline_ms,
            )
            await brain.start()
            if loaded:
                await model_ready(brain)
            return brain

        self.brain = self.runner.run(start())

    def stop(self) -> None:
        self.load.set()
        self.heal()
        self.runner.run(self.brain.close())

    def heal(self) -> None:
        self.encoder.fail = False
        if isinstance(self.vdb, SwitchVdb):
            self.vdb.fail = False
            self.vdb.hangs(False)

    def teardown(self) -> None:
        if hasattr(self, "brain"):
            self.drain()
            self.stop()
        self.runner.close()
        shutil.rmtree(self.root)

    @rule(loaded=st.booleans())
    def restart(self, loaded: bool) -> None:
        self.stop()
        self.start(self.directory, loaded=loaded)

    @rule(loaded=st.booleans())
    def kill(self, loaded: bool) -> None:
        """Go on from what was on disk, in the ledger and in Chroma, at one moment of a brain that ran on."""
        self.lives += 1
        image = self.root / str(self.lives)
        shards = self.vdb.shards if isinstance(self.vdb, SwitchVdb) else {}
        self.runner.run(crash_image(self.brain, image))
        self.stop()
        self.shards = shards
        self.start(image, loaded=loaded)

    @rule()
    def evict(self) -> None:
        self.runner.run(self.all_out())

    async def all_out(self) -> None:
        self.brain.residents.evict_all()

    # Faults

    @rule(how=st.sampled_from(["fail", "hang", "well"]))
    def chroma(self, how: str) -> None:
        if isinstance(self.vdb, SwitchVdb):
            self.vdb.fail = how == "fail"
            self.vdb.hangs(how == "hang")

    @rule(fail=st.booleans())
    def embedder(self, fail: bool) -> None:
        self.encoder.fail = fail

    @rule()
    def model_loads(self) -> None:
        self.load.set()

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
    max_examples=1_000 if SOAK else 25,
    stateful_step_count=60 if SOAK else 25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestStateMachine = Machine.TestCase
TestStateMachine.settings = quick
TestRealChroma = RealChroma.TestCase
TestRealChroma.settings = settings(
    quick, max_examples=40 if SOAK else 3, stateful_step_count=60 if SOAK else 15
)
