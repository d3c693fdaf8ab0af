"""Search in a partition of 10,000, warm and cold."""

import json
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from floors import Models, each_ms, embed, nearest, read_rows
from measure import Figure, Load, Request, Wrk, at_most, interleaved, median, ratio
from server import Service, running
from texts import sentences

BIG, OTHER = "big", "other"
ROWS, SECONDS = 10_000, 5.0
LATE = "message.late", "plain.late", "multilingual.late"


def questions(number: int, seed: int) -> list[str]:
    """Like the texts, but of a question's length."""
    return [" ".join(text.split()[:9]) + "?" for text in sentences(number, seed)]


def figures() -> list[Figure]:
    """Of one data directory, with late interaction and without."""
    seeds = count(3_000)
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as scratch:
        data = Path(scratch)
        with running(data, resident__budget_mb="1") as service:  # room for one partition: the other is cold
            service.add(BIG, [{"content": text} for text in sentences(ROWS, 2)], 1_000)
            service.add(OTHER, [{"content": text} for text in sentences(10, 3)])
            service.settle()
            found = [_warm(service, data, seeds, "with late interaction", 1.6), _cold(service, data, seeds)]
        with running(data, search__weights=json.dumps(dict.fromkeys(LATE, 0))) as service:
            return [*found, _warm(service, data, seeds, "without", 1.2)]


def _warm(service: Service, data: Path, seeds: Iterator[int], how: str, target: float) -> Figure:
    model = Models()
    _, matrix = read_rows(data / "ledger.sqlite3", BIG)
    service.search(BIG, "load the partition")

    def ours() -> Load:
        requests = [
            Request("/brain/memory/search", {"query": query}) for query in questions(1_000, next(seeds))
        ]
        headers = {"X-Brain-Agent": BIG}
        return Wrk(service.url, requests, connections=1, headers=headers, pids=[service.pid]).run(SECONDS)

    def floor() -> tuple[float, float]:
        cpu = time.process_time()
        taken = each_ms(lambda query: nearest(matrix, embed(model, query)), questions(400, next(seeds)))
        return median(taken), (time.process_time() - cpu) / 400 * 1000

    found = interleaved({"ours": ours, "floor": floor})
    p50 = [load.p50 for load in found["ours"]]
    floors = [taken for taken, _ in found["floor"]]
    beside = (
        f"{median(p50):.1f} against {median(floors):.1f} ms; CPU "
        f"{median(load.cpu for load in found['ours']) / 1000:.1f} against "
        f"{median(cpu for _, cpu in found['floor']):.1f} ms"
    )
    name = f"Search among 10,000, {how}: p50 of embedding the query and exact scoring"
    return at_most(name, ratio(p50, floors), target, beside)


def _cold(service: Service, data: Path, seeds: Iterator[int]) -> Figure:
    def ours() -> float:
        service.search(OTHER, "push the big one out", limit=1)
        started = time.perf_counter()
        service.search(BIG, questions(1, next(seeds))[0], limit=10)
        return time.perf_counter() - started

    found = interleaved({"ours": ours, "floor": lambda: read_rows(data / "ledger.sqlite3", BIG)[0]}, 9)
    beside = f"{median(found['ours']):.3f} against {median(found['floor']):.3f} s"
    name = "First search in a cold partition of 10,000, of reading its rows"
    return at_most(name, ratio(found["ours"], found["floor"]), 2, beside)
