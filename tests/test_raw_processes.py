"""Raw messages through real processes: MCP over stdio by the official client, a kill in the middle of a
transcript, and a move to another data directory."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from mcp import Client, StdioServerParameters

from service.arguments import JSON_LINES
from service.operations import BY_NAME
from service.schemas import output_schema
from stores.lock import DataDirectoryLock, Owner
from tests.processes import BRAIN, environment
from tests.raw_sessions import lines
from tests.serving import JSON, eventually, server, succeeded
from tests.test_cli import Shell

FIXTURE = Path(__file__).parent / "fixtures" / "transcripts" / "claude-code.jsonl"
TOOLS = ("ingest_transcript", "add_raw_messages", "list_raw_sessions", "get_raw_messages", "search_raw")
LARGE_MB = 300


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_the_official_client_calls_every_tool_over_stdio(tmp_path: Path) -> None:
    command, *arguments = BRAIN
    options = ["mcp", "--data", str(tmp_path), "--toolsets", "observations"]
    process = StdioServerParameters(command=command, args=[*arguments, *options], env=environment())
    async with Client(process) as client:
        served = {tool.name: tool for tool in (await client.list_tools()).tools}

        async def ask(name: str, **given: Any) -> JSON:
            result = await client.call_tool(name, given)
            assert not result.is_error, result.structured_content
            answer = dict(result.structured_content or {})
            jsonschema.validate(answer, served[name].output_schema or {})
            assert served[name].output_schema == output_schema(BY_NAME[name])
            return answer

        text = FIXTURE.read_text(encoding="utf-8")
        assert (await ask("ingest_transcript", host="claude-code", content=text))["inserted"] == 6
        one = {"role": "user", "content": "By hand.", "created_at": 1}
        names = {"host": "my-app", "project": "/p", "session_id": "s"}
        assert (await ask("add_raw_messages", messages=[one], **names))["inserted"] == 1
        sessions = (await ask("list_raw_sessions", sample=1))["sessions"]
        assert [session["host"] for session in sessions] == ["my-app", "claude-code"]
        page = await ask("get_raw_messages", session_ref=sessions[1]["session_ref"])
        assert len(page["messages"]) == 6
        assert len((await ask("search_raw", query="tide table"))["messages"]) == 1
        assert set(TOOLS) <= set(served)
        refused = await client.call_tool("list_raw_sessions", {"latest": 0})
        assert refused.is_error and (refused.structured_content or {})["code"] == "invalid_argument"


def test_after_a_kill_in_a_transcript_sessions_show_all_of_it_or_nothing(tmp_path: Path) -> None:
    count = 2_000
    said = "A line that is long enough for the log to grow while it is written. " * 4
    body = lines(
        [
            {"type": "user", "sessionId": "s", "timestamp": 5 + n, "message": {"content": f"{n}. {said}"}}
            for n in range(count)
        ]
    ).encode()
    answers: list[JSON] = []

    def send(owner: Owner) -> None:
        with suppress(httpx.HTTPError):  # it was killed
            answers.append(_ingest(owner.url, body))

    with _killed_later(tmp_path) as process:
        lock = DataDirectoryLock(tmp_path)
        owner = eventually(lock.owner, within=60)
        sending = threading.Thread(target=send, args=(owner,))
        sending.start()
        log = tmp_path / "ledger.sqlite3-wal"
        eventually(lambda: answers or log.stat().st_size > 2_000_000, within=60)
        process.kill()
        sending.join()
    with server(tmp_path) as running:
        api = running.api.of("default")
        found = succeeded(api.get("/brain/raw/sessions"))["sessions"]
        assert [one["message_count"] for one in found] == ([count] if answers else [])
        assert not running.portal.call(running.brain.doctor.examine).findings
        there = succeeded(api.get("/brain/stats"))["total"]
        again = _ingest(running.owner.url, body)
        assert (again["inserted"], again["duplicates"]) == (count - there, there)
        [session] = succeeded(api.get("/brain/raw/sessions"))["sessions"]
        assert (session["message_count"], succeeded(api.get("/brain/stats"))["total"]) == (count, count)


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux's figures of a process")
def test_a_large_transcript_does_not_sit_in_memory(tmp_path: Path) -> None:
    output = {"type": "tool_result", "content": "x" * 1_000_000}
    tool = lines([{"type": "user", "sessionId": "s", "message": {"content": [output]}}]).encode()
    hello = {"type": "user", "sessionId": "s", "timestamp": 5, "message": {"content": "Hello."}}

    def body() -> Iterator[bytes]:
        yield lines([hello]).encode()
        for _ in range(LARGE_MB):
            yield tool

    with _killed_later(tmp_path) as process:
        owner = eventually(DataDirectoryLock(tmp_path).owner, within=60)
        before = _peak_mb(process.pid)
        answer = _ingest(owner.url, body())
        grown = _peak_mb(process.pid) - before
        process.kill()
    assert (answer["inserted"], answer["scanned_lines"]) == (1, LARGE_MB + 1)
    assert grown < LARGE_MB / 3


def _peak_mb(pid: int) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    [kilobytes] = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return int(kilobytes) // 1024


def _killed_later(data: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "tests.kill_server", str(data)]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)


def _ingest(url: str, body: bytes | Iterator[bytes]) -> JSON:
    path, headers = BY_NAME["ingest_transcript"].route.path, {"content-type": JSON_LINES}
    with httpx.Client(base_url=url, timeout=120, trust_env=False) as http:
        answer: JSON = http.post(path, params={"host": "claude-code"}, content=body, headers=headers).json()
    return answer


def test_messages_keep_their_place_in_another_data_directory(tmp_path: Path) -> None:
    body = FIXTURE.read_bytes()
    first, second, file = Shell(tmp_path / "one"), tmp_path / "two", tmp_path / "export.jsonl"
    with server(first.data) as running:
        _ingest(running.owner.url, body)
        one = {"role": "user", "content": "By hand.", "created_at": 1}
        names = {"host": "my-app", "project": "/p", "session_id": "s", "messages": [one]}
        succeeded(running.api.post("/brain/raw/messages", names))
        before = running.api.get("/brain/raw/sessions?sample=2").json()
    first.out("export", str(file))
    assert json.loads(Shell(second).out("import", str(file), "--json"))["added"] == 7
    with server(second) as running:
        assert running.api.get("/brain/raw/sessions?sample=2").json() == before
        assert _ingest(running.owner.url, body)["status"] == "duplicate_only"
        assert succeeded(running.api.post("/brain/raw/messages", names))["duplicates"] == 1
        assert running.api.get("/brain/raw/sessions?sample=2").json() == before
