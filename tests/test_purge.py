"""Purge over HTTP: the text is in no file once the receipt says so, and nothing else is lost."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Api, Server, eventually, refused, server, succeeded

JSON = dict[str, Any]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server of our own: every file of its directory is searched."""
    with server(tmp_path_factory.mktemp("purge")) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@pytest.fixture
def api(running: Server, request: pytest.FixtureRequest) -> Api:
    return running.api.of(f"purge-{hash(request.node.name) % 10**9}")


def purge(api: Api, **target: Any) -> JSON:
    return succeeded(api.post("/brain/purge", target))


def add(api: Api, content: str, **fields: Any) -> str:
    memory_id: str = api.add(content, **fields)["memory"]["memory_id"]
    return memory_id


def files_with(running: Server, text: str) -> list[str]:
    root = running.brain.settings.data_directory
    files = [path for path in root.rglob("*") if path.is_file()]
    return [str(path.relative_to(root)) for path in files if text.encode() in _bytes(path)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # Chroma's journal comes and goes
        return b""


CLEAN = {"ledger": "done", "wal": "done", "vdb": "done"}


def test_a_purged_text_is_in_no_file_once_the_receipt_is_complete(running: Server, api: Api) -> None:
    body = {"tags": ["canarytag"], "metadata": {"note": "canarymeta"}, "actor": "Canaryactor"}
    memory_id = add(api, "The canaryword sings.", idempotency_key="canarykey-1", **body)
    other = add(api, "Another bird stays.")
    succeeded(api.request("PATCH", f"/brain/memory/{memory_id}", {"tags": ["canarytwo"]}))
    running.settle()
    for text in ("canaryword", "canarymeta", "canarytag"):
        assert files_with(running, text), "the search would find it"
    receipt = purge(api, memory_id=memory_id, wait=True)
    assert receipt["done"] == CLEAN and receipt["purged"] == [memory_id] and receipt["count"] == 1
    for text in ("canaryword", "canarymeta", "canarytag", "canarytwo", "Canaryactor"):
        assert files_with(running, text) == [], text
    refused(api.get(f"/brain/memory/{memory_id}"), 404, "memory_not_found")
    refused(api.post(f"/brain/memory/{memory_id}/restore", {}), 404, "memory_not_found")
    running.evict(api)
    assert api.memory(other)["source"] == "vdb", "the other memories were filled into the new shard"


def test_the_best_hit_after_a_purge_is_the_next_one(api: Api) -> None:
    a, *_ = [add(api, f"Deploy note {name}: use the blue pipeline.") for name in ("A", "B", "C")]
    purge(api, memory_id=a)
    answer = succeeded(api.post("/brain/memory/search", {"query": "Deploy note A blue pipeline", "limit": 1}))
    assert answer["results"][0]["content"][12] in "BC"


def test_a_dry_run_says_what_would_go_and_changes_nothing(api: Api) -> None:
    ids = [add(api, f"Row {n}.", session_id="s") for n in range(3)]
    receipt = purge(api, session_id="s", dry_run=True)
    assert (receipt["purged"], receipt["count"], receipt["dry_run"]) == (ids, 3, True)
    assert api.memory(ids[0])["content"] == "Row 0."


def test_a_sessions_and_a_users_memories_go_together_and_no_others(api: Api) -> None:
    bob, eve = api.of(user="bob"), api.of(user="eve")
    kept = [add(bob, "Bob, s1.", session_id="s1"), add(eve, "Eve, s2.", session_id="s2")]
    gone = [add(bob, "Bob, s2.", session_id="s2")]
    assert purge(bob, session_id="s2")["purged"] == gone
    assert purge(api, user_id="eve")["purged"] == kept[1:]
    assert bob.memory(kept[0])["content"] == "Bob, s1."
    refused(api.post("/brain/purge", {"user_id": "eve", "session_id": "s"}), 422, "invalid_argument", "body")
    refused(bob.post("/brain/purge", {"user_id": "eve"}), 422, "invalid_argument", "user_id")


def test_everything_of_an_agent_goes_only_by_its_name(running: Server, api: Api) -> None:
    add(api, "Mine.")
    other = api.of(f"{api.agent}-other")
    theirs = add(other, "Theirs.")
    refused(api.post("/brain/purge", {"all": True}), 422, "invalid_argument", "body")
    refused(api.post("/brain/purge", {"all": True, "confirm": "yes"}), 422, "invalid_argument", "confirm")
    assert purge(api, all=True, confirm=api.agent)["count"] == 1
    assert succeeded(api.get("/brain/memory"))["total"] == 0
    assert other.memory(theirs)["content"] == "Theirs."


def test_a_purge_closes_the_chain_over_the_gap(api: Api) -> None:
    ids = [add(api, "Step 1.")]
    for n in (2, 3):
        body = {"content": f"Step {n}.", "supersedes": ids[-1:]}
        ids.append(api.post("/brain/memory/supersede", body).json()["memory"]["memory_id"])
    purge(api, memory_id=ids[1])
    first, last = api.memory(ids[0]), api.memory(ids[2])
    assert (first["superseded_by"], last["supersedes"]) == ([ids[2]], [ids[0]])
    assert first["status"] == "superseded" and last["status"] == "active"
    purge(api, memory_id=ids[2])
    assert api.memory(ids[0])["status"] == "superseded", "a purge makes nothing current by itself"


def test_what_rests_on_a_purged_memory_is_named_or_goes_too(api: Api) -> None:
    raw = add(api, "Raw words.", layer="l1_raw")
    fact = add(api, "A fact.", source_raw_memory_id=raw)
    guess = add(api, "A guess.", evidence_ids=[fact])
    receipt = purge(api, memory_id=raw)
    assert receipt["review"] == [fact, guess] and receipt["purged"] == [raw]
    for memory_id in (fact, guess):
        got = api.memory(memory_id, include="details")
        assert got["details"]["fallen"] == [raw] and got["speculate"] is not None
    again = purge(api, memory_id=fact, cascade=True)
    assert again["purged"] == [fact, guess] and again["review"] == []


def test_a_repeat_of_a_purged_add_writes_anew(api: Api) -> None:
    memory_id = add(api, "Once.", idempotency_key="k")
    purge(api, memory_id=memory_id)
    assert add(api, "Once.", idempotency_key="k") != memory_id


def test_purge_of_nothing_is_an_error_for_an_id_and_a_zero_for_a_set(api: Api) -> None:
    missing = {"memory_id": "018f0000-0000-7000-8000-000000000000"}
    refused(api.post("/brain/purge", missing), 404, "memory_not_found")
    assert purge(api, session_id="nobody")["count"] == 0


def test_a_vector_store_that_was_thrown_away_or_broken_is_filled_anew(tmp_path: Path) -> None:
    def harm_gone(shard: Path) -> None:
        shutil.rmtree(shard)

    def harm_broken(shard: Path) -> None:
        for file in shard.rglob("*"):
            if file.is_file():
                file.write_bytes(b"not a database")

    memory_id = ""
    for harm in (None, harm_gone, harm_broken):
        if harm is not None:
            [shard] = [path for path in (tmp_path / "vdb").iterdir() if path.is_dir()]
            harm(shard)
        with server(tmp_path) as running:
            eventually(lambda: running.brain.meaning.fingerprint() is not None)
            memory_id = memory_id or add(running.api, "Still here.")
            succeeded(running.api.request("PATCH", f"/brain/memory/{memory_id}", {"tags": [str(harm)]}))
            running.settle()
            eventually(lambda: not running.brain.shards.due())
            running.evict(running.api)
            assert running.api.memory(memory_id)["source"] == "vdb"
            assert succeeded(running.api.get("/readyz"))["status"] == "ready"
