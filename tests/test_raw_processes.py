"""Raw messages through real processes: MCP over stdio by the official client, a kill in the middle of a
transcript, and a move to another data directory."""

import json
import subprocess
import threading
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


def test_a_kill_in_the_middle_of_a_transcript_leaves_all_of_it_or_nothing(tmp_path: Path) -> None:
    count = 3_000
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
        eventually(lambda: answers or log.stat().st_size > 3_000_000, within=60)
        process.kill()
        sending.join()
    with server(tmp_path) as running:
        api = running.api.of("default")
        found = succeeded(api.get("/brain/raw/sessions"))["sessions"]
        assert [one["message_count"] for one in found] == ([count] if answers else [])
        assert succeeded(api.get("/brain/stats"))["total"] == (count if answers else 0)


def _killed_later(data: Path) -> "subprocess.Popen[bytes]":
    command = [*BRAIN, "serve", "--data", str(data), "--port", "0"]
    return subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)


def _ingest(url: str, body: bytes) -> JSON:
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
