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
BRAIN_SERVE = ("-m", "service.cli", "serve")
START_S = 180.0  # the model may have to be exported first


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search found: the `key` of each hit's metadata, best first, and its wall time in ms."""

    keys: list[str]
    abstained: bool
    elapsed_ms: float


class Service:
    """The brain routes that the benchmarks use. Each world of theirs is one agent."""

    def __init__(self, http: httpx.Client, pid: int) -> None:
        self._http = http
        self.url = str(http.base_url)
        self.pid = pid

    def add(
        self, agent: str, items: Sequence[dict[str, Any]], at_once: int = BATCH, *, embedded: bool = False
    ) -> list[str]:
        """Store memories, so many in one request. Returns their ids. Raises when one is refused, or when it
        should have been `embedded` and was not."""
        ids: list[str] = []
        for start in range(0, len(items), at_once):
            body = {"items": items[start : start + at_once]}
            for result in self._post("/brain/memory/batch", agent, body)["results"]:
                if result["status"] >= 300 or (embedded and not result["indexed"]):
                    raise RuntimeError(f"{agent}: {result}")
                ids.append(result["memory"]["memory_id"])
        return ids

    def replace(self, agent: str, item: dict[str, Any], supersedes: Sequence[str]) -> str:
        """Store a memory that supersedes others, as far as its authority reaches: its id."""
        for asked in (item | {"supersedes": list(supersedes)}, item):
            answer = self._http.post("/brain/memory", json=asked, headers={"X-Brain-Agent": agent})
            if answer.status_code != 409:
                answer.raise_for_status()
                return str(answer.json()["memory"]["memory_id"])
        raise RuntimeError(f"{agent}: {answer.text}")

    def get(self, agent: str, memory_id: str) -> Any:
        answer = self._http.get(f"/brain/memory/{memory_id}", headers={"X-Brain-Agent": agent})
        answer.raise_for_status()
        return answer.json()

    def settle(self) -> None:
        """Wait until nothing is left to embed and Chroma has everything."""
        while self._busy():
            time.sleep(0.25)  # to count the lag takes some milliseconds of the server's time

    def search(self, agent: str, query: str, **fields: Any) -> Answer:
        started = time.perf_counter()
        found = self._post("/brain/memory/search", agent, {"query": query, "limit": 100} | fields)
        elapsed = (time.perf_counter() - started) * 1000
        if found["degraded"]:
            raise RuntimeError(f"degraded: {found['degraded_reason']}")
        return Answer([hit["custom"].get("key", "") for hit in found["results"]], found["abstained"], elapsed)

    def _busy(self) -> bool:
        lines = self._http.get("/metrics").text.splitlines()
        gauges = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return any(float(gauges[name]) for name in ("brain_embedding_queue", "brain_index_lag"))

    def ready(self) -> bool:
        """Whether the model is there."""
        return self._http.get("/readyz").json()["embedding"]["problem"] is None

    def _post(self, path: str, agent: str, body: Any) -> Any:
        answer = self._http.post(path, json=body, headers={"X-Brain-Agent": agent})
        answer.raise_for_status()
        return answer.json()


@contextmanager
def running(
    data: Path | None = None,
    command: Sequence[str] = BRAIN_SERVE,
    *,
    wait_for_model: bool = True,
    key: str | None = None,
    **settings: str,
) -> Iterator[Service]:
    """Serve from a directory, a fresh one if none is given, on a free port until the context ends. Its log
    goes to our stderr. `key` goes with every request; `settings` are variables without their BRAIN_."""
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as fresh:
        data = data or Path(fresh)
        named = {f"BRAIN_{name.upper()}": value for name, value in settings.items()}
        environment = os.environ | {
            "BRAIN_LOG__LEVEL": "warning",
            "BRAIN_DATA__DIRECTORY": str(data),
            "BRAIN_SERVER__PORT": "0",
            **named,
        }
        process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL
        )
        try:
            owner = _until(DataDirectoryLock(data).owner, process)
            headers = authorization(key)
            with httpx.Client(base_url=owner.url, headers=headers, timeout=300, trust_env=False) as http:
                service = Service(http, process.pid)
                if wait_for_model:
                    _until(service.ready, process)
                yield service
        finally:
            process.terminate()
            process.wait(timeout=60)


def create_key(data: Path) -> str:
    """A key for a directory that nobody serves yet: its credential. From now on every call needs it."""
    command = "-m service.cli keys create --product bench --rights read,write,admin --json --data"
    made = subprocess.run(
        [sys.executable, *command.split(), str(data)], cwd=ROOT, check=True, capture_output=True
    )
    return str(json.loads(made.stdout)["credential"])


def authorization(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


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
        time.sleep(0.01)
    return found
