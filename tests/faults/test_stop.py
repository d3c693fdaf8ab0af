"""SIGTERM under load: what was begun is finished, what was acknowledged is there, and the process ends with 0
in time. A second process on the directory meanwhile is turned away and harms nothing."""

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.faults.processes import Victim, victim
from tests.processes import BRAIN, environment
from tests.serving import eventually

CLIENTS = 6
SHUTDOWN_S = 5  # server.shutdown_s here
GRACE_S = 60  # what closing everything may take beyond it, on a machine that does other things too


def write_until_stopped(
    server: Victim, name: str, acknowledged: dict[str, str], stopping: threading.Event
) -> int:
    """Add until the door is closed. How many requests got no answer after the stop had begun."""
    with httpx.Client(base_url=server.api.http.base_url, timeout=GRACE_S, trust_env=False) as http:
        for number in range(100_000):
            items = [{"content": f"{name} writes line {number}.{n}"} for n in range(3)]
            try:
                answer = http.post("/brain/memory/batch", json={"items": items, "atomic": True})
            except httpx.TransportError:
                assert stopping.is_set(), "a connection broke before anybody asked the server to stop"
                return 1
            if answer.status_code == 503:
                assert stopping.is_set(), answer.text
                return 0
            assert answer.status_code in (200, 201, 207), answer.text
            for item, result in zip(items, answer.json()["results"], strict=True):
                acknowledged[result["memory_ids"][0]] = item["content"]
    raise AssertionError("nobody stopped the server")


def test_a_stop_under_load_finishes_what_was_begun(tmp_path: Path) -> None:
    data = tmp_path / "data"
    acknowledged: dict[str, str] = {}
    stopping = threading.Event()
    with victim(data, f"server__shutdown_s={SHUTDOWN_S}") as server, ThreadPoolExecutor(CLIENTS) as pool:
        server.ready()
        clients = [
            pool.submit(write_until_stopped, server, f"client {n}", acknowledged, stopping)
            for n in range(CLIENTS)
        ]
        eventually(lambda: len(acknowledged) > 60 or any(client.done() for client in clients))
        second = subprocess.run(
            [*BRAIN, "serve", "--data", str(data), "--port", "0"],
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert second.returncode == 3 and f"in use by process {server.pid}" in second.stderr
        stopping.set()
        assert server.terminate(SHUTDOWN_S + GRACE_S) == 0
        for client in clients:
            assert client.result() <= 1
    with victim(data) as server:
        found: dict[str, str] = {}
        cursor: str | None = None
        while cursor is not None or not found:
            page = server.api.list(limit=100, **({} if cursor is None else {"cursor": cursor}))
            found |= {memory["memory_id"]: memory["content"] for memory in page["memories"]}
            cursor = page["next_cursor"]
        assert acknowledged.items() <= found.items(), "acknowledged and gone"
        assert len(set(found.values())) == len(found)
