"""The doctor and the tables behind the observations view: it finds what was changed there by hand, and
writes it again from the records."""

import sqlite3
from collections.abc import Iterator

import pytest

from tests.raw_sessions import Door, door
from tests.serving import JSON, Server, eventually, server, succeeded


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("views"), doctor={"interval_s": 0}) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@pytest.fixture(scope="module")
def filled(running: Server) -> Door:
    """A little of everything that stands in these tables."""
    caller = door(running, by_mcp=False)
    caller.transcript(
        "s1", "t1", ("user", "First.", 10), ("assistant", "Second.", 20), ("user", "Third.", 30)
    )
    caller.add("s2", ("user", "By its text.", 40), ("user", "Forgotten soon.", 41))
    caller.add("s3", ("user", "Nobody says where.", 50), host=None)
    caller.add("s3", ("user", "Somebody says.", 51))
    caller.add("s4", ("user", "Purged soon.", 60))
    caller.api.add(messages=[{"role": "user", "content": "A turn of the brain view."}], session_id="s")
    [hit, *_] = caller.api.search("Forgotten soon.", limit=1)["results"]
    succeeded(caller.api.request("DELETE", f"/brain/memory/{hit['memory_id']}"))
    [hit, *_] = caller.api.search("Purged soon.", limit=1)["results"]
    succeeded(caller.api.post("/brain/purge", {"memory_id": hit["memory_id"], "wait": True}))
    for text in ("Deploy on Fridays.", "Deploy on Mondays."):
        caller.api.post("/brain/memories", {"text": text, "project": "/repo", "topic_key": "deploy"})
    segment = {"covered_from_event_id": 1, "covered_to_event_id": 2, "topic_key": "deploy"}
    succeeded(
        caller.api.post("/brain/session-summaries", {"request": "One part", "project": "/repo"} | segment)
    )
    caller.running.settle()
    return caller


def seen(caller: Door) -> list[JSON]:
    """What the views show of it."""
    listing = caller.listing(sample=5)
    page = caller.page("s1")
    found = caller.ask("search_raw", query="turn")
    detail = succeeded(caller.api.post("/brain/observations/get", {"ids": [1]}))["details"][0]
    del page["elapsed_ms"], page["request_id"], found["elapsed_ms"], found["request_id"]
    return [listing, page, found, detail]


def test_what_is_whole_gives_no_finding(filled: Door) -> None:
    assert examine(filled)["findings"] == []


SHOWN = "UPDATE raw_messages SET shown = NOT shown WHERE epoch IN (20, 41)"
DAMAGES = [
    ("messages", SHOWN),
    ("messages", "UPDATE raw_messages SET epoch = 99 WHERE epoch = 20"),
    ("messages", "UPDATE raw_messages SET role = 'assistant' WHERE epoch = 10"),
    ("messages", "UPDATE raw_messages SET number = number + 1000 WHERE epoch = 30"),
    ("messages", "UPDATE raw_messages SET content_hash = 'sha256:content-v1:0' WHERE epoch = 40"),
    ("messages", "DELETE FROM raw_messages WHERE epoch IN (20, 40)"),
    ("messages", "DELETE FROM raw_messages WHERE session_row IS NULL"),
    ("sessions", "UPDATE raw_sessions SET message_count = 7 WHERE session_id = 's1'"),
    ("sessions", "UPDATE raw_sessions SET user_count = 0, assistant_count = 3 WHERE session_id = 's1'"),
    ("sessions", "UPDATE raw_sessions SET first_epoch = 1 WHERE session_id = 's1'"),
    ("sessions", "UPDATE raw_sessions SET last_epoch = NULL WHERE session_id = 's2'"),
    ("sessions", "UPDATE raw_sessions SET content_hash = 'sha256:0' WHERE session_id = 's1'"),
    ("sessions", "UPDATE raw_sessions SET excluded = 1 WHERE session_id = 's1'"),
    ("sessions", "UPDATE raw_sessions SET excluded = 0 WHERE session_id = 's3' AND host <> ''"),
    ("topics", "UPDATE topics SET topic_key = 'other'"),
    ("topics", "UPDATE topics SET covered_from = NULL"),
    ("topics", "DELETE FROM topics"),
    ("topics", "INSERT INTO topics SELECT memory_id, product, agent, user, project, 'k', NULL, 3 "
     "FROM memories WHERE kind = 'message' LIMIT 1"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "statement"), DAMAGES)
def test_what_the_records_say_is_written_again(filled: Door, check: str, statement: str) -> None:
    before = seen(filled)
    path = filled.running.brain.settings.data_directory / "ledger.sqlite3"
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    assert connection.execute(statement).rowcount > 0
    connection.close()
    found = examine(filled)
    assert found["checks"][check] == 1
    assert all(one["repairable"] for one in found["findings"])
    report = filled.running.portal.call(filled.running.brain.doctor.repair).document()
    assert report["findings"] == [] and check in {one["check"] for one in report["repaired"]}
    assert seen(filled) == before


def examine(caller: Door) -> JSON:
    found: JSON = caller.running.portal.call(caller.running.brain.doctor.examine).document()
    return found
