"""What is refused before an operation is known, or of an import, is in the audit log; and however much of it
comes, the log stays small."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from models.errors import Forbidden, StoreUnavailable, Unauthenticated
from models.scope import Partition
from service.refusals import DOOR, NOBODY, OWN_AT_ONCE, Origin, Refusals
from service.transfer import IMPORT
from tests.keyed import Clock, Keyed, keyed_server
from tests.serving import JSON, Api, fresh, refused, server, succeeded
from tests.test_audit import link, log, verify_running

NOBODY_THERE = "018f3e5a-0000-7000-8000-000000000000"
MINUTE = 60_000


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[Keyed]:
    limits = {"requests_per_second": 1, "burst": 1_000}
    with keyed_server(tmp_path_factory.mktemp("refusals"), clock=clock, limits=limits) as running:
        running.create("first")
        yield running


def told(entries: list[JSON]) -> list[tuple[str, str | None, str | None, int]]:
    """Refusals: what, by which key, why, how many."""
    return [(e["action"], e["key_id"], e["refused"], e["count"]) for e in entries if e["refused"]]


def counted(api: Api, **filters: Any) -> dict[tuple[str | None, str | None], int]:
    """How many refusals at the door the log has, by key and code."""
    found: dict[tuple[str | None, str | None], int] = {}
    for entry in log(api, action=DOOR, limit=100, **filters):
        kind = entry["key_id"], entry["refused"]
        found[kind] = found.get(kind, 0) + entry["count"]
    return found


def of_product(keyed: Keyed, product: str, **fields: Any) -> tuple[Api, str]:
    made = keyed.create(product, **fields)
    return keyed.bearing(made["credential"]), made["key_id"]


def test_calls_without_a_valid_key_are_counted_for_whoever_owns_the_store(keyed: Keyed) -> None:
    before = counted(keyed.owner).get((None, "unauthenticated"), 0)
    real = keyed.create(fresh("product"))["credential"]
    strangers = [
        {},
        {"authorization": "Bearer brain_000000000000_nope"},
        {"authorization": f"Bearer {real[:-1]}"},
        {"authorization": "Basic YTpi"},
    ]
    for headers in strangers * 5:
        refused(keyed.anyone.get("/brain/stats", headers=headers), 401, "unauthenticated")
        refused(keyed.anyone.post("/mcp", {}, headers=headers), 401, "unauthenticated")
    [entry, *_] = log(keyed.owner, action=DOOR)
    assert (entry["key_id"], entry["agent_id"], entry["user_id"], entry["memory_id"]) == (None, "", "", None)
    assert entry["fields"] == [f"count={entry['count']}"]
    assert link(entry | {"product": ""}) == entry["hash"], "the chain covers how many they were"
    assert counted(keyed.owner)[None, "unauthenticated"] == before + 40
    [first] = [e for e in log(keyed.owner, action=DOOR) if e["seq"] == entry["seq"]]
    assert first["count"] == 40, "one entry for all of them"


def test_no_tenant_sees_what_was_refused_of_nobody_or_of_another(keyed: Keyed) -> None:
    mine, _ = of_product(keyed, fresh("product"), rights=["admin"])
    bound, _ = of_product(keyed, fresh("product"), rights=["admin"], agent="smith")
    other, other_id = of_product(keyed, fresh("product"), agent="smith")
    refused(keyed.anyone.get("/brain/stats"), 401, "unauthenticated")
    refused(other.get("/brain/stats", headers={"x-brain-agent": "jones"}), 403, "forbidden")
    assert counted(mine) == counted(bound) == {}
    assert (other_id, "forbidden") not in counted(keyed.owner), "the owner names the product that he reads"


def test_a_key_that_is_no_longer_in_force_is_named_to_its_product(keyed: Keyed, clock: Clock) -> None:
    product = fresh("product")
    auditor, _ = of_product(keyed, product, rights=["admin"])
    revoked, revoked_id = of_product(keyed, product)
    expired, expired_id = of_product(keyed, product, expires_in_ms=MINUTE)
    keyed.revoke(revoked_id)
    clock.now += 2 * MINUTE
    for api in (revoked, expired, expired):
        refused(api.get("/brain/stats"), 401, "unauthenticated")
    assert counted(auditor) == {(revoked_id, "unauthenticated"): 1, (expired_id, "unauthenticated"): 2}
    assert counted(auditor.of(user="ada")) == {}, "it is about no user"


def test_a_key_in_force_has_an_entry_for_each_refusal_at_the_door(keyed: Keyed) -> None:
    product = fresh("product")
    auditor, _ = of_product(keyed, product, rights=["admin"], agent="smith")
    bound, key_id = of_product(keyed, product, agent="smith")
    refused(bound.get("/brain/stats", headers={"x-brain-agent": "jones"}), 403, "forbidden")
    refused(bound.get("/brain/stats", headers={"x-brain-product": "other"}), 403, "forbidden")
    refused(bound.get("/metrics"), 403, "forbidden")
    refused(bound.get("/internal/keys"), 403, "forbidden")
    refused(bound.post("/brain/memory", b" " * 600_000), 413, "too_large")
    refused(bound.post("/brain/memory/search", b" " * 600_000), 413, "too_large")
    entries = log(auditor, refused=True)
    assert told(entries) == [
        ("brain_memory_search", key_id, "too_large", 1),
        ("brain_memory_add", key_id, "too_large", 1),
        *[(DOOR, key_id, "forbidden", 1)] * 4,
    ]
    assert all(entry["request_id"] for entry in entries)


def test_what_the_mcp_sdk_refuses_is_an_entry_too(keyed: Keyed) -> None:
    product = fresh("product")
    auditor, _ = of_product(keyed, product, rights=["admin"])
    api, key_id = of_product(keyed, product)
    for header in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
        accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        assert api.post("/mcp", {}, headers=accept | header).status_code in (403, 421)
    assert counted(auditor) == {(key_id, "forbidden"): 2}


def test_without_keys_a_foreign_page_is_counted(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            refused(running.api.get("/brain/stats", headers=headers), 403, "forbidden")
        assert told(log(running.api)) == [(DOOR, None, "forbidden", 2)]
        assert verify_running(running) == {}
        refused(running.api.get("/brain/stats", headers={"host": "evil.example"}), 403, "forbidden")
    with server(tmp_path) as running:  # what was counted last was written at the end
        assert told(log(running.api)) == [(DOOR, None, "forbidden", count) for count in (1, 2)]
        assert verify_running(running) == {}


def test_a_flood_becomes_few_entries_and_every_call_of_it_is_counted(tmp_path: Path) -> None:
    with keyed_server(tmp_path, clock=Clock()) as running:
        auditor = running.holder("acme", rights=["admin"])
        reader, key_id = of_product(running, "acme", rights=["read"])
        flood = 2 * OWN_AT_ONCE
        for number in range(flood):
            other = reader.of(agent=f"a{number}", user=f"u{number}")
            refused(other.request("DELETE", f"/brain/memory/{NOBODY_THERE}"), 403, "forbidden")
            refused(running.anyone.get("/brain/stats"), 401, "unauthenticated")
        with closing(sqlite3.connect(tmp_path / "ledger.sqlite3")) as ledger:
            [[written]] = ledger.execute("SELECT count(*) FROM events WHERE refused IS NOT NULL")
        assert written == OWN_AT_ONCE, "of its own, each with its agent and user"
        assert told(log(auditor)) == [("brain_memory_delete", key_id, "forbidden", flood - OWN_AT_ONCE)]
        assert counted(running.owner) == {(None, "unauthenticated"): flood}


def test_the_rate_limit_is_counted_by_key(tmp_path: Path) -> None:
    with keyed_server(tmp_path, clock=Clock(), limits={"requests_per_second": 1, "burst": 3}) as running:
        auditor = running.holder("acme", rights=["admin"])
        api, key_id = of_product(running, "acme")
        statuses = [api.get("/brain/stats").status_code for _ in range(8)]
        assert statuses == [200] * 3 + [429] * 5
        assert told(log(auditor)) == [(DOOR, key_id, "rate_limited", 5)]


def test_a_refused_memory_of_an_import_is_an_entry_in_its_scope(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        headers = {"authorization": f"Bearer {running.owner.token}"}
        memory_id = running.api.add("It is here.")["memory"]["memory_id"]
        state = {"custom": {}, "confidence": 0.7}
        line: JSON = dict.fromkeys(("product", "agent", "user"), "default")
        line |= {"memory_id": memory_id, "kind": "memory", "layer": "l2_fact", "content": "Another text."}
        line |= {"source_authority": "informal", "versions": [{"version": 1, "state": state}]}
        lines = [f"2 {json.dumps(line)}", "3 {"]
        for dry_run in (True, False):
            body = "\n".join([json.dumps({"dry_run": dry_run}), *lines]).encode()
            done = succeeded(running.api.request("POST", IMPORT, body, headers=headers))
            assert [one["code"] for one in done["errors"]] == ["conflict_state", "bad_json"]
        entries = log(running.api, refused=True)
        assert told(entries) == [("import", None, "conflict_state", 1)], "and none of a dry run"
        assert entries[0]["memory_id"] == memory_id
        assert verify_running(running) == {}


def test_what_cannot_be_written_is_kept_for_later_and_every_minute_it_is_tried() -> None:
    """The one thing that no door shows: the clock of the loop."""
    written: list[tuple[str | None, str, tuple[str, ...]]] = []
    broken = True

    class Ledger:
        def event(self, action: str, place: Partition, memory_id: str | None, **fields: Any) -> None:
            written.append((fields["key_id"], fields["refused"], fields["fields"]))

    async def write(change: Any) -> None:
        if broken:
            raise StoreUnavailable("Full.")
        change(Ledger())

    async def run() -> None:
        nonlocal broken
        refusals = Refusals(write, Clock())
        await refusals.record(Origin(NOBODY, None), DOOR, Unauthenticated("No."), "r")
        await refusals.record(Origin(Partition("p", "", ""), "k"), DOOR, Forbidden("No."), "r")
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            nonlocal broken
            waits.append(seconds)
            broken = len(waits) < 3
            if len(waits) == 5:
                raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await refusals.keep_writing(sleep)
        assert waits == [60] * 5

    asyncio.run(run())
    assert written == [
        (None, "unauthenticated", ("count=1",)), ("k", "forbidden", ("count=1",)),
    ]  # fmt: skip
