"""GET by id of a resident memory, against a bare Starlette route that answers the same JSON."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import Figure, Load, Request, Wrk, at_least, at_most, interleaved, median, ratio
from server import Service, authorization
from texts import sentences

AGENT, INGEST = "reads", "ingest"
ROWS, CONNECTIONS, SECONDS = 500, 32, 4.0


@contextmanager
def floor(answer: object) -> Iterator[tuple[str, int]]:
    """A bare server that answers this object: its URL and process id."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(answer, file)
        file.flush()
        command = [sys.executable, str(Path(__file__).with_name("floor_server.py")), file.name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield f"http://127.0.0.1:{int(process.stdout.readline())}", process.pid
            finally:
                process.terminate()


def figures(service: Service, key: str | None) -> list[Figure]:
    """`key` is the one that the server wants, if any."""
    headers = {"X-Brain-Agent": AGENT} | authorization(key)
    ids = service.add(AGENT, [{"content": text} for text in sentences(ROWS, 1)])
    service.search(AGENT, "load the partition", limit=1)
    service.settle()
    answer = service.get(AGENT, ids[0])
    requests = [Request(f"/brain/memory/{id}") for id in ids]
    ours = Wrk(service.url, requests, connections=CONNECTIONS, headers=headers, pids=[service.pid])
    with floor(answer) as (url, pid):
        bare = Wrk(url, [Request("/memory")], connections=CONNECTIONS, headers=headers, pids=[pid])
        for load in (ours, bare):
            load.run(1)
        found = interleaved({"ours": lambda: ours.run(SECONDS), "floor": lambda: bare.run(SECONDS)})
    return [*_beside_floor(found["ours"], found["floor"]), _during_ingest(service, ours, key)]


def _beside_floor(ours: list[Load], bare: list[Load]) -> list[Figure]:
    def of(name: str) -> tuple[float, str, str]:
        mine, theirs = ([getattr(load, name) for load in loads] for loads in (ours, bare))
        return ratio(mine, theirs), f"{median(mine):,.2f}", f"{median(theirs):,.2f}"

    cpu, mine, theirs = of("cpu")
    found = [at_most("GET by id: CPU of the floor's", cpu, 1.5, f"{mine} against {theirs} µs a request")]
    rps, mine, theirs = of("rps")
    found.append(at_least("GET by id: requests per second", rps, 0.70, f"{mine} against {theirs}"))
    p99, mine, theirs = of("p99")
    found.append(at_most("GET by id: p99", p99, 2.5, f"{mine} against {theirs} ms"))
    return found


def _during_ingest(service: Service, ours: Wrk, key: str | None) -> Figure:
    seeds = iter(range(100, 200))

    def busy() -> Load:
        items = [{"content": text} for text in sentences(6_000, next(seeds))]
        batches = [
            Request("/brain/memory/batch", {"items": items[at : at + 100]})
            for at in range(0, len(items), 100)
        ]
        headers = {"X-Brain-Agent": INGEST} | authorization(key)
        with Wrk(service.url, batches, connections=2, headers=headers).start(SECONDS + 2):
            ours.run(1)
            load = ours.run(SECONDS)
        service.settle()
        return load

    found = interleaved({"idle": lambda: ours.run(SECONDS), "busy": busy})
    p99 = {name: [load.p99 for load in loads] for name, loads in found.items()}
    beside = (
        f"{median(p99['busy']):.2f} against {median(p99['idle']):.2f} ms; "
        f"{median(load.rps for load in found['busy']):,.0f} requests a second meanwhile"
    )
    return at_most(
        "GET by id while a bulk ingest runs: p99 of idle's", ratio(p99["busy"], p99["idle"]), 3, beside
    )
