"""Recall in a partition of 10,000, alone and while two clients remember as fast as they can."""

from collections.abc import Iterator
from itertools import count

from measure import Figure, Load, Request, Wrk, at_most, interleaved, median, ratio
from search import questions
from server import Service
from texts import sentences

AGENT = "history"
ROWS, SECONDS, WRITERS = 10_000, 5.0, 2
FRAMES = 10  # every so many memories hold in one frame


def figures(service: Service) -> list[Figure]:
    items = [
        {"content": text} | ({"frame": f"team-{number % FRAMES}"} if number % 2 else {})
        for number, text in enumerate(sentences(ROWS, 7))
    ]
    service.add(AGENT, items, 1_000)
    service.settle()
    seeds = count(7_000)
    _recalling(service, seeds)  # loads the partition
    found = interleaved(
        {
            "idle": lambda: _recalling(service, seeds),
            "framed": lambda: _recalling(service, seeds, frame="Team-1"),
            "busy": lambda: _beside_writers(service, seeds),
        }
    )
    idle = [load.p50 for load in found["idle"]]
    busy = [load.p95 for load in found["busy"]]
    framed = [load.p50 for load in found["framed"]]
    beside = (
        f"{median(busy):.1f} against {median(idle):.1f} ms; alone p95 "
        f"{median(load.p95 for load in found['idle']):.1f}, p99 beside writers "
        f"{median(load.p99 for load in found['busy']):.1f} ms"
    )
    name = "Recall among 10,000: p95 while two clients write, of the p50 alone"
    return [
        at_most(name, ratio(busy, idle), 4, beside),
        Figure(
            "The same in one frame: p50, of the p50 without",
            "",
            f"{ratio(framed, idle):.2f} ({median(framed):.1f} against {median(idle):.1f} ms)",
        ),
    ]


def _recalling(service: Service, seeds: Iterator[int], **given: str) -> Load:
    asked = [
        Request("/brain/history/recall", {"query": query, **given}) for query in questions(1_000, next(seeds))
    ]
    return _wrk(service, asked, 1).run(SECONDS)


def _beside_writers(service: Service, seeds: Iterator[int]) -> Load:
    texts = sentences(2_000, next(seeds))
    said = [Request("/brain/history/remember", {"content": text, "source": "bench"}) for text in texts]
    writers = _wrk(service, said, WRITERS).start(SECONDS + 2)
    load = _recalling(service, seeds)
    writers.communicate()
    service.settle()
    return load


def _wrk(service: Service, requests: list[Request], connections: int) -> Wrk:
    headers = {"X-Brain-Agent": AGENT}
    return Wrk(service.url, requests, connections=connections, headers=headers, pids=[service.pid])
