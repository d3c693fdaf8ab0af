"""Transcripts that come in several writes: others need not wait for all of it, no session shows a part of it,
and what breaks off is made whole by a repeat."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from models.raw_sessions import SessionName
from models.scope import Caller, Scope
from service.arguments import JSON_LINES
from service.operations import BY_NAME
from service.raw_ingest import PART, _brought, _prepared
from stores.acts import Act
from stores.raw_archive import Brought, Source, bring
from tests.raw_sessions import Door, door, lines
from tests.serving import JSON, Server, eventually, server, succeeded

ROUTE = BY_NAME["ingest_transcript"].route.path


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("parts"), doctor={"interval_s": 0}) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@pytest.fixture
def caller(running: Server) -> Door:
    return door(running, by_mcp=False)


def said(count: int, **other: str) -> list[JSON]:
    """Messages of session `s`, some with other texts, by `n<ordinal>`."""
    return [
        {
            "type": "user",
            "sessionId": "s",
            "timestamp": 5 + n,
            "message": {"content": other.get(f"n{n}", f"Entry {n}, code PT-{n}.")},
        }
        for n in range(count)
    ]


def ingest(caller: Door, records: list[JSON], **arguments: Any) -> JSON:
    body, headers = lines(records).encode(), {"content-type": JSON_LINES}
    return succeeded(
        caller.api.post(ROUTE, body, params={"host": "claude-code"} | arguments, headers=headers)
    )


def test_others_write_between_the_parts_and_no_list_shows_half_of_it(caller: Door) -> None:
    count = 4 * PART
    answers: list[JSON] = []
    client = threading.Thread(target=lambda: answers.append(ingest(caller, said(count))))
    client.start()
    lists: set[tuple[int, ...]] = set()
    while client.is_alive():
        caller.api.add(f"Meanwhile {len(lists)}.", on_duplicate="keep")
        lists.add(tuple(session["message_count"] for session in caller.sessions()))
    client.join()
    assert answers[0]["inserted"] == count
    assert lists <= {(), (count,)} and caller.sessions()[0]["message_count"] == count
    log = caller.running.brain.ledger
    with log.snapshot() as connection:
        rows = connection.exec_driver_sql(
            "SELECT action, seq FROM events WHERE agent = ? ORDER BY seq", (caller.agent,)
        ).all()
    actions = [row[0] for row in rows]
    first, last = actions.index("ingest_transcript"), len(actions) - actions[::-1].index("ingest_transcript")
    assert set(actions[first:last]) == {"ingest_transcript", "brain_memory_add"}


def test_a_contradiction_in_a_late_part_stores_nothing_of_the_early_ones(caller: Door) -> None:
    start = 2 * PART
    records = said(start + 50)
    kept = ingest(caller, records[start:], first_line=start, session_id="s")
    assert kept["inserted"] == 50
    records[start + 20] = said(start + 50, **{f"n{start + 20}": "Another text."})[start + 20]
    failed = ingest(caller, records)
    assert (failed["status"], failed["inserted"]) == ("failed", 0)
    assert f"message {start + 20}" in failed["error"]
    assert succeeded(caller.api.get("/brain/stats"))["total"] == 50
    listing = caller.listing()
    assert (listing["count"], listing["excluded_legacy_rows"]) == (0, 50)


def test_what_broke_off_is_in_no_session_until_a_repeat_makes_it_whole(caller: Door) -> None:
    whole = ingest(caller, said(3))
    before = caller.sessions()
    _break_off(caller, said(40)[3:])
    assert caller.sessions() == before
    page = caller.ask("get_raw_messages", session_ref=whole["session_ref"], limit=2)
    assert (page["total"], page["content_hash"]) == (3, before[0]["content_hash"])
    assert not caller.ask("search_raw", query="PT-39")["messages"]
    assert caller.api.search("PT-39", limit=1)["results"][0]["content"] == "Entry 39, code PT-39."
    assert caller.running.portal.call(caller.running.brain.doctor.examine).findings == []
    done = ingest(caller, said(40))
    assert (done["inserted"], done["duplicates"], done["status"]) == (0, 40, "duplicate_only")
    assert caller.sessions()[0]["message_count"] == 40
    cursor = page["next_cursor"]
    rest = caller.ask("get_raw_messages", session_ref=whole["session_ref"], limit=2, cursor=cursor)
    assert (rest["total"], len(rest["messages"]), rest["content_hash"]) == (3, 1, page["content_hash"])
    assert len(caller.ask("search_raw", query="PT-39")["messages"]) == 1


def test_what_broke_off_and_is_contradicted_is_counted_among_the_excluded(caller: Door) -> None:
    _break_off(caller, said(10))
    failed = ingest(caller, said(10, n4="Another text."))
    assert failed["status"] == "failed"
    assert caller.listing()["excluded_legacy_rows"] == 10
    assert len(caller.ask("search_raw", query="PT-9")["messages"]) == 1


def test_what_was_forgotten_stays_hidden_when_the_rest_comes(caller: Door) -> None:
    _break_off(caller, said(10))
    [hit] = caller.api.search("PT-7", limit=1)["results"]
    succeeded(caller.api.request("DELETE", f"/brain/memory/{hit['memory_id']}"))
    ingest(caller, said(12))
    assert caller.sessions()[0]["message_count"] == 11
    assert not caller.ask("search_raw", query="PT-7")["messages"]


def test_clients_that_bring_one_long_transcript_at_once_store_it_once(caller: Door) -> None:
    sizes = (2 * PART + 100, 3 * PART, 2 * PART + 100)
    with ThreadPoolExecutor(len(sizes)) as clients:
        answers = list(clients.map(lambda size: ingest(caller, said(size)), sizes))
    assert sum(answer["inserted"] for answer in answers) == max(sizes)
    assert sum(answer["duplicates"] for answer in answers) == sum(sizes) - max(sizes)
    assert [session["message_count"] for session in caller.sessions()] == [max(sizes)]
    assert caller.running.portal.call(caller.running.brain.doctor.examine).findings == []


def _break_off(caller: Door, records: list[JSON]) -> None:
    """Write a part that is not the last, and no more."""
    brain = caller.running.brain
    home = Caller(Scope("default", caller.agent), None, frozenset({"write"}), "broken off")
    source = Source(SessionName("claude-code", "local", "", "s"), transcript_id="s")
    part = [_one(caller, record) for record in records]
    write = partial(bring, Act(home, "ingest_transcript", None), source=source, brought=part, last=False)
    caller.running.portal.call(brain.write, write)


def _one(caller: Door, record: JSON) -> Brought:
    text, at = record["message"]["content"], record["timestamp"]
    prepared = _prepared(at - 5, "user", text, at * 1000, None, meta=False)
    return _brought(caller.running.brain, prepared)
