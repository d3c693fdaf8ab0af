"""A data directory that any released schema wrote opens with today's code and answers as it did then."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from stores import migrations
from tests.equivalence import check
from tests.serving import Api, Server, eventually, server

FIXTURES = Path(__file__).parent / "fixtures" / "schemas"
REVISIONS = sorted(path.stem for path in FIXTURES.glob("*.sql"))
SCRIPTS = sorted(
    path.stem[1:5]
    for path in (Path(migrations.__file__).parent / "versions").glob("v[0-9][0-9][0-9][0-9]_*.py")
)
# Came with 0007: no code that ran ever stopped at one of them.
TOGETHER = {"0004", "0005", "0006"}
# Of the call, of the store that answered, and by the clock.
CHANGING = {"elapsed_ms", "request_id", "source", "speculate", "http_status"}


def opened(directory: Path, revision: str) -> None:
    """The ledger as that schema left it. Chroma's files are not kept: they are filled from the ledger."""
    ledger = sqlite3.connect(directory / "ledger.sqlite3")
    ledger.executescript((FIXTURES / f"{revision}.sql").read_text(encoding="utf-8"))
    ledger.close()


def same(then: Any, now: Any) -> None:
    """What was answered then is answered now; there may be more."""
    if isinstance(then, dict):
        assert isinstance(now, dict)
        for name in then.keys() - CHANGING:
            assert name in now, name
            same(then[name], now[name])
    elif isinstance(then, list):
        assert isinstance(now, list) and len(then) == len(now)
        for one, other in zip(then, now, strict=True):
            same(one, other)
    else:
        assert (then, type(then)) == (now, type(now))


def caller(running: Server, known: dict[str, Any]) -> Api:
    """With the key that was made then, where keys were known."""
    credential = known.get("credential")
    if credential:
        running.api.http.headers["authorization"] = f"Bearer {credential}"
    return running.api.of("fixture")


def test_every_schema_has_a_fixture() -> None:
    wanted = set(SCRIPTS) - TOGETHER
    assert set(REVISIONS) == wanted, "docs/faults.md says how to make the one that is missing"


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_directory_of_an_earlier_schema_answers_as_it_did(tmp_path: Path, revision: str) -> None:
    opened(tmp_path, revision)
    known = json.loads((FIXTURES / f"{revision}.json").read_text(encoding="utf-8"))
    with server(tmp_path) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        if known.get("credential"):
            refused = httpx.get(f"{running.owner.url}/brain/stats", trust_env=False, timeout=60)
            assert refused.status_code == 401, "the keys are in force"
        api = caller(running, known)
        for memory_id, then in known["memories"].items():
            now = api.get(f"/brain/memory/{memory_id}")
            assert now.status_code == then["http_status"], now.text
            if now.status_code == 200:
                same(then, now.json())
        for memory_id, versions in known["histories"].items():
            same(versions, api.get(f"/brain/memory/{memory_id}/history").json().get("versions"))
        for query, memory_id in known["searches"].items():
            [hit] = api.search(query, limit=1)["results"]
            assert hit["memory_id"] == memory_id and "vector" in hit["matched_by"]
        assert api.list()["total"] == known["total"]
        # It takes writes, and Chroma holds what the ledger does.
        new = api.of("fixture", "ada").add("Written by today's code.")["memory"]
        eventually(lambda: not running.brain.shards.due())
        running.settle()
        running.portal.call(check, running.brain)
    with server(tmp_path) as running:
        api = caller(running, known)
        assert api.memory(new["memory_id"])["content"] == new["content"]
        assert api.list()["total"] == known["total"] + 1


def test_words_of_an_earlier_analyzer_are_written_anew_when_their_partition_is_loaded(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        ids = [
            running.api.add(text)["memory"]["memory_id"]
            for text in ("Herr Öztürk hat den Schlüssel.", "The kettle is blue.", "Forgotten soon.")
        ]
        running.api.request("DELETE", f"/brain/memory/{ids[2]}")
        running.settle()
    ledger = sqlite3.connect(tmp_path / "ledger.sqlite3", isolation_level=None)
    ledger.execute("UPDATE tokens SET analyzer = 'words-1', terms = 'kettl'")
    with server(tmp_path) as running:
        for query, id in (("Oeztuerk", ids[0]), ("kettle", ids[1])):
            [hit] = running.api.search(query, limit=1)["results"]
            assert hit["memory_id"] == id and "words" in hit["matched_by"]
        running.portal.call(running.brain.write, lambda transaction: None)  # behind what the load has queued
        written = dict(ledger.execute("SELECT memory_id, terms FROM tokens WHERE analyzer != 'words-1'"))
        assert written.keys() == set(ids[:2]) and "^osturk" in written[ids[0]].split("\n")
        # What comes back later brings its words of today.
        running.api.post(f"/brain/memory/{ids[2]}/restore", {})
        [hit] = running.api.search("forgotten", limit=1)["results"]
        assert hit["memory_id"] == ids[2] and "words" in hit["matched_by"]
    ledger.close()
