"""`brain ingest` as real processes, with an owner of the data directory and without one, and watching."""

import asyncio
import gzip
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.cli_ingest import Ingestion
from service.ingest_files import Root, Summary, Unusable, roots_of
from tests.processes import serving_process
from tests.raw_sessions import lines
from tests.serving import JSON, Server, server
from tests.test_cli import Shell

FIXTURES = Path(__file__).parent / "fixtures" / "transcripts"


def said(*texts: str, session: str = "s") -> str:
    return lines(
        [
            {"type": "user", "sessionId": session, "timestamp": 5 + number, "message": {"content": text}}
            for number, text in enumerate(texts)
        ]
    )


def settled(path: Path, text: str) -> Path:
    """A file that nobody has written to for an hour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    hour_ago = time.time() - 3_600
    os.utime(path, (hour_ago, hour_ago))
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """With a work tree, and transcripts where agents keep them."""
    claude = tmp_path / ".claude" / "projects" / "-work-tree"
    inside = tmp_path / "tree" / "deep"
    (tmp_path / "tree" / ".git").mkdir(parents=True)
    inside.mkdir()
    record = {"type": "user", "sessionId": "one", "timestamp": 1, "message": {"content": "Hello from one."}}
    settled(claude / "one.jsonl", lines([record | {"cwd": str(inside)}]))
    settled(claude / "two.jsonl", said("Hello from two.", session="two"))
    settled(claude / "two" / "subagents" / "agent-x.jsonl", said("A part of two.", session="two"))
    codex = (FIXTURES / "codex-cli.jsonl").read_text(encoding="utf-8")
    settled(tmp_path / ".codex" / "sessions" / "2026" / "01" / "03" / "rollout-1.jsonl", codex)
    return tmp_path


def sessions(url: str, **params: Any) -> list[JSON]:
    answer = httpx.get(f"{url}/brain/raw/sessions", params=params, trust_env=False, timeout=60)
    found: list[JSON] = answer.json()["sessions"]
    return found


def test_the_folders_of_the_agents_are_taken_in_once(home: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path / "data")
    done = shell.json("ingest", HOME=str(home))
    assert (done["files"], done["ingested_messages"], done["failed_files"]) == (3, 4, 0)
    assert shell.free
    with serving_process(shell.data) as owner:
        found = {one["session_id"]: one for one in sessions(owner.url)}
        assert set(found) == {"one", "two", "019b-harbour-0001"}
        assert found["one"]["project"] == str(home / "tree")
        assert found["two"]["project"] == "-work-tree"
        assert {one["source_root"] for one in found.values()} == {"local"}
        text = shell.out("ingest", HOME=str(home))
        assert text.strip() == "3 files: 0 new messages; 3 files as they were."


def test_a_file_is_read_on_where_it_stopped_unless_it_begins_otherwise(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "data")
    file = settled(tmp_path / "t.jsonl", said("One.", "Two."))
    arguments = ("ingest", str(file), "--host", "claude-code", "--root", "work", "--project", "/p")
    assert shell.json(*arguments)["scanned_lines"] == 2
    settled(file, said("One.", "Two.", "Three."))
    grown = shell.json(*arguments)
    assert (grown["scanned_lines"], grown["ingested_messages"]) == (1, 1)
    settled(file, said("Another one.", "Two.", "Three."))
    done = shell.run(*arguments, "--json")
    assert done.returncode == 1 and "conflict: message 0" in json.loads(done.stdout)["errors"][0]["error"]


def test_a_file_that_was_renamed_is_the_transcript_that_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "root"
    with server(tmp_path / "data") as running:

        def ingested() -> Summary:
            root = Root("claude-code", "work", folder)
            run = Ingestion([root], "/p", lambda: door(running))
            asyncio.run(run.once())
            return run.summary

        old = settled(folder / "old.jsonl", said("One.", "Two."))
        settled(folder / "agent-a.jsonl", said("A part of it."))
        assert ingested().ingested_messages == 3
        old.rename(folder / "new.jsonl")
        renamed = ingested()
        assert (renamed.ingested_messages, renamed.unchanged_files) == (0, 2)
        settled(folder / "new.jsonl", said("One.", "Two.", "Three."))
        grown = ingested()
        assert (grown.ingested_messages, grown.scanned_lines) == (1, 1)
        settled(folder / "other.jsonl", said("One.", "Another."))
        assert ingested().ingested_messages == 2  # it begins otherwise: a transcript of its own
        assert [one["message_count"] for one in sessions(running.owner.url)] == [6]


def test_a_byte_order_mark_is_no_text_and_a_compressed_file_is_named_so(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "data")
    marked = settled(tmp_path / "marked.jsonl", "\ufeff" + said("One."))
    packed = tmp_path / "packed.jsonl"
    packed.write_bytes(gzip.compress(said("Two.").encode()))
    os.utime(packed, (1, 1))
    os.mkfifo(tmp_path / "pipe.jsonl")
    files = [f"claude-code:w={file}" for file in (marked, packed)]
    out = shell.fails(1, "packed.jsonl: line 1: it is compressed; unpack the file first", "ingest", *files)
    assert "1 new messages" in out
    shell.fails(2, "there is no such file or folder", "ingest", f"claude-code:w={tmp_path / 'pipe.jsonl'}")


def test_a_dry_run_and_a_wrong_root_start_nothing(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "data")
    file = settled(tmp_path / "t.jsonl", said("One.", "Two."))
    done = shell.json("ingest", f"claude-code:work={file}", "--dry-run")
    assert (done["ingested_messages"], done["files"]) == (2, 1)
    missing = str(tmp_path / "missing")
    shell.fails(2, "there is no such file", "ingest", f"claude-code:a={file}", f"claude-code:b={missing}")
    assert not (shell.data / "ledger.sqlite3").exists()


def test_one_file_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "data")
    settled(tmp_path / "root" / "a.jsonl", said("One.") + "{\n")
    settled(tmp_path / "root" / "b.jsonl", said("Two.", session="t"))
    out = shell.fails(
        1, "a.jsonl: line 2: it is not JSON", "ingest", str(tmp_path / "root"), "--host", "claude-code"
    )
    assert "1 new messages" in out and "1 files failed" in out


def test_nobody_at_the_address_is_an_exit_code_of_its_own(tmp_path: Path) -> None:
    file = settled(tmp_path / "t.jsonl", said("One."))
    shell = Shell(tmp_path / "data")
    shell.fails(3, "cut off", "ingest", f"claude-code:w={file}", "--url", "http://127.0.0.1:9")


def test_a_server_is_called_by_its_address_with_a_key(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "data")
    made = shell.json("keys", "create", "--product", "plant", "--agent", "coder", "--rights", "read,write")
    file = settled(tmp_path / "t.jsonl", said("One.", "Two."))
    with serving_process(shell.data) as owner:
        key = {"BRAIN_API_KEY": made["credential"], "BRAIN_URL": owner.url}
        done = shell.json("ingest", f"claude-code:w={file}", **key)
        assert (done["ingested_messages"], done["duplicate_messages"]) == (2, 0)


class Stop(Exception):
    """Ends a watch."""


def test_a_watched_folder_is_taken_in_as_it_grows(tmp_path: Path) -> None:
    folder = tmp_path / "live"
    file = settled(folder / "s.jsonl", said("One."))
    now = time.time()
    rounds: list[tuple[int, int]] = []

    def write(text: str, age: float) -> None:
        file.write_text(text, encoding="utf-8")
        os.utime(file, (now - age, now - age))

    cut = said("One.", "Two.") + '{"type": "us'
    whole = said("One.", "Two.", "Three.")
    steps = iter([lambda: write(cut, 30), lambda: None, lambda: write(whole, 5), lambda: None])

    async def sleep(_: float) -> None:
        try:
            next(steps)()
        except StopIteration:
            raise Stop from None

    def report(done: Summary) -> None:
        rounds.append((done.ingested_messages, done.partial_files))

    with server(tmp_path / "data", clock=lambda: round(now * 1000)) as running:
        run = Ingestion(
            [Root("claude-code", "live", folder)],
            "/p",
            lambda: door(running),
            now=lambda: now,
            sleep=sleep,
        )
        with pytest.raises(Stop):
            asyncio.run(run.watch(report))
        assert rounds == [(1, 0), (1, 1), (1, 0)]
        assert [one["message_count"] for one in sessions(running.owner.url)] == [3]


@asynccontextmanager
async def door(running: Server) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {running.owner.token}"}
    url = running.owner.url
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=60) as http:
        yield http


def test_a_root_is_a_path_with_its_host_and_label(tmp_path: Path) -> None:
    folder = tmp_path / ".claude" / "projects" / "x"
    folder.mkdir(parents=True)
    both = tmp_path / ".codex" / "sessions" / ".claude" / "projects"
    both.mkdir(parents=True)
    assert roots_of([str(folder)], None, "mine", tmp_path) == [Root("claude-code", "mine", folder)]
    assert roots_of([f"codex-cli:a b={both}"], None, None, tmp_path) == [Root("codex-cli", "a b", both)]
    assert [root.host for root in roots_of([], None, None, tmp_path)] == ["claude-code", "codex-cli"]
    assert roots_of([], None, None, tmp_path / "empty") == []
    for paths, host, label in (
        ([str(both)], None, None),
        ([str(folder)], "emacs", None),
        ([str(folder)], "cursor", None),
        ([str(folder)], None, "cursor-outcome"),
        ([], "claude-code", None),
    ):
        with pytest.raises(Unusable):
            roots_of(paths, host, label, tmp_path)
