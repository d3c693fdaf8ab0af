"""A real server for the benchmarks: `brain serve` in a process of its own, over a directory that goes."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from stores.lock import DataDirectoryLock

ROOT = Path(__file__).resolve().parents[2]
BATCH = 100  # memories in one request
START_S = 180.0  # the model may have to be exported first


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search found: the `key` of each hit's metadata, best first, and its wall time in ms."""

    keys: list[str]
    abstained: bool
    elapsed_ms: float


class Service:
    """The brain routes that the benchmarks use. Each world of theirs is one agent."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def add(self, agent: str, items: Sequence[dict[str, Any]]) -> None:
        """Store memories; each carries its `key` in its metadata. Raises when one is refused."""
        for start in range(0, len(items), BATCH):
            body = {"items": items[start : start + BATCH]}
            for result in self._post("/brain/memory/batch", agent, body)["results"]:
                if result["status"] >= 300:
                    raise RuntimeError(f"{agent}: {result}")

    def search(self, agent: str, query: str, **fields: Any) -> Answer:
        started = time.perf_counter()
        found = self._post("/brain/memory/search", agent, {"query": query, "limit": 100} | fields)
        elapsed = (time.perf_counter() - started) * 1000
        if found["degraded"]:
            raise RuntimeError(f"degraded: {found['degraded_reason']}")
        return Answer([hit["custom"]["key"] for hit in found["results"]], found["abstained"], elapsed)

    def ready(self) -> bool:
        """Whether the model is there."""
        return self._http.get("/readyz").json()["embedding"]["problem"] is None

    def _post(self, path: str, agent: str, body: Any) -> Any:
        answer = self._http.post(path, json=body, headers={"X-Brain-Agent": agent})
        answer.raise_for_status()
        return answer.json()


@contextmanager
def running() -> Iterator[Service]:
    """Serve from a fresh directory on a free port until the context ends. Its log goes to our stderr."""
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as data:
        command = [sys.executable, "-m", "service.cli", "serve", "--data", data, "--port", "0"]
        quiet = os.environ | {"BRAIN_LOG__LEVEL": "warning"}
        process = subprocess.Popen(command, cwd=ROOT, env=quiet, stdin=subprocess.DEVNULL)
        try:
            owner = _until(DataDirectoryLock(Path(data)).owner, process)
            with httpx.Client(base_url=owner.url, timeout=300, trust_env=False) as http:
                service = Service(http)
                _until(service.ready, process)
                yield service
        finally:
            process.terminate()
            process.wait(timeout=60)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of them lies, by nearest rank."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def score(scorer: Path, data: Path, rows: Sequence[dict[str, Any]], out: Path | None) -> None:
    """Write a run file, one JSON object a line, to `out` or where it is lost, and print what the scorer
    says of it."""
    with tempfile.TemporaryDirectory() as scratch:
        run = out or Path(scratch, "run.jsonl")
        run.write_text("".join(json.dumps(row) + "\n" for row in rows))
        sys.stdout.flush()
        subprocess.run([sys.executable, scorer, "--data", data, "--run", run], check=True)


def show_latency(answers: Sequence[Answer]) -> None:
    times = [answer.elapsed_ms for answer in answers]
    print(f"search over HTTP: p50 {percentile(times, 0.5):.1f} ms, p95 {percentile(times, 0.95):.1f} ms")


def show_abstention(name: str, answers: Sequence[Answer]) -> None:
    abstained = sum(answer.abstained for answer in answers)
    print(f"{name}: abstained from {abstained} of {len(answers)} ({abstained / len(answers):.1%})")


def _until(value: Callable[[], Any], process: "subprocess.Popen[bytes]") -> Any:
    """`value()` as soon as it is true, while the server lives."""
    end = time.monotonic() + START_S
    while not (found := value()):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        if time.monotonic() > end:
            raise TimeoutError(f"the server was not ready within {START_S:.0f} s")
        time.sleep(0.05)
    return found
