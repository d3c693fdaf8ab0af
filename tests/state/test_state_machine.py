"""Random histories of writes, changes, restarts, kills, evictions and faults against a plain model.

After every step each caller sees exactly what the model says; whenever everything has drained, the ledger,
the graph, Chroma and the model are equal. `SOAK=1` runs for many minutes, over the fake and the real Chroma.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from models.scope import Caller
from stores.vdb import Vdb
from tests.state.changing import Changing, places
from tests.state.model import INVALID, Added, Known, Refusal, Request
from tests.state.requests import adds, callers, keys

SOAK = os.environ.get("SOAK") == "1"


class Machine(Changing):
    """The writes, and the end. What is looked at and what changes: see the bases."""

    def teardown(self) -> None:
        try:
            if hasattr(self, "brain"):
                self.drain()
                self.stop()
            self.runner.close()
        finally:
            shutil.rmtree(self.root)

    @rule(
        who=callers,
        request=adds,
        key=keys,
        evidence=st.lists(places, max_size=2, unique=True),
        raw=st.none() | places,
    )
    def add(
        self, who: Caller, request: Request, key: str | None, evidence: list[int], raw: int | None
    ) -> None:
        if self.model.entries:
            said = [entry for entry in self.model.entries if entry.layer == "l1_raw"]
            request = request | {"evidence_ids": [self.pick(place).memory_id for place in evidence]}
            if raw is not None and said:
                request |= {"source_raw_memory_id": said[raw % len(said)].memory_id}
        status, body = self.call(
            "brain_memory_add", who, **request, **({"idempotency_key": key} if key else {})
        )
        known = self.model.keys.get((who.home, "add", key or ""))
        if known is not None:
            stored, expected = known.outcome
            if INVALID in request.values():
                assert status == 422
            elif known.request != request:
                assert (status, body["code"]) == (409, "idempotency_key_reused")
            elif self.model.entry(stored[-1]).hidden:
                assert (status, body["code"]) == (410, "memory_forgotten")
            else:
                assert (status, body["memory_ids"], body["replayed"]) == (expected, stored, True)
            return
        outcome = self.model.add(who, request)
        self.settle(outcome, status, body)
        if key and isinstance(outcome, Added):
            ids = body["memory_ids"]
            self.model.keys[who.home, "add", key] = Known(request, (ids, status), str(ids))

    @rule(who=callers, items=st.lists(adds, min_size=1, max_size=6), atomic=st.booleans(), key=keys)
    def batch(self, who: Caller, items: list[Request], atomic: bool, key: str | None) -> None:
        given = {"items": items, "atomic": atomic}
        status, body = self.call(
            "brain_memory_add_batch", who, **given, **({"idempotency_key": key} if key else {})
        )
        known = self.model.keys.get((who.home, "batch", key or ""))
        if known is not None:
            if atomic and any(INVALID in item.values() for item in items):
                assert status == 422
            elif known.request != given:
                assert (status, body["code"]) == (409, "idempotency_key_reused")
            else:
                assert (status, body["replayed"]) == (207, True)
                assert [result.get("memory_ids") for result in body["results"]] == [
                    None if ids is None or self.model.entry(ids[-1]).hidden else ids for ids in known.outcome
                ]
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
            names = str([ids, [result.get("error") for result in body["results"]]])
            self.model.keys[who.home, "batch", key] = Known(given, ids, names)

    def settle(self, outcome: Added | Refusal, status: int, body: dict[str, Any]) -> None:
        """Compare an answer with what the model did, and take over the ids."""
        if isinstance(outcome, Refusal):
            assert (status, body["code"]) == (outcome.status, outcome.code), body
            return
        assert (status, body["deduplicated"]) == (200 if outcome.duplicate else 201, outcome.duplicate), body
        for entry, memory_id in zip(outcome.entries, body["memory_ids"], strict=True):
            assert entry.memory_id in ("", memory_id)
            if not entry.memory_id:
                self.model.named(entry, memory_id)
            entry.shown = {}


class RealChroma(Machine):
    """The same over the real Chroma, in a child process on the same directory."""

    deadline_ms = 5_000

    def make_vdb(self, directory: Path) -> Any:
        return Vdb(directory / "vdb")


quick = settings(
    max_examples=1_000 if SOAK else 10,
    stateful_step_count=60 if SOAK else 20,
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
