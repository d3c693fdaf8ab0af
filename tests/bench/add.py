"""Adding: one at a time, eight clients at once, batches of a thousand; against the model and a commit."""

import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from floors import Models, Rows, each_ms, embed, raw_encode
from measure import Figure, Load, Request, Wrk, at_least, at_most, cpu_seconds, interleaved, median, ratio
from server import Service
from texts import sentences

AGENT = "adds"
SECONDS, TEXTS, BATCH = 5.0, 1_500, 1_000


def figures(service: Service) -> list[Figure]:
    model, seeds = Models(), count(1_000)
    return [
        *_one_at_a_time(service, model, seeds),
        *_eight_at_once(service, model, seeds),
        *_batches(service, model, seeds),
    ]


def _adding(service: Service, seed: int, connections: int) -> Load:
    requests = [Request("/brain/memory", {"content": text}) for text in sentences(TEXTS, seed)]
    load = Wrk(
        service.url,
        requests,
        connections=connections,
        headers={"X-Brain-Agent": AGENT},
        pids=[service.pid],
    ).run(SECONDS)
    service.settle()
    return load


def _one_at_a_time(service: Service, model: Models, seeds: Iterator[int]) -> list[Figure]:
    def floor() -> tuple[float, float]:
        cpu = time.process_time()
        with tempfile.TemporaryDirectory() as scratch:
            rows = Rows(Path(scratch, "rows.sqlite3"))
            taken = each_ms(lambda text: rows.add(text, embed(model, text)), sentences(400, next(seeds)))
            rows.close()
        return median(taken), (time.process_time() - cpu) / 400 * 1e6

    found = interleaved({"ours": lambda: _adding(service, next(seeds), 1), "floor": floor})
    p50 = [load.p50 for load in found["ours"]]
    floors = [taken for taken, _ in found["floor"]]
    beside = (
        f"{median(p50):.1f} against {median(floors):.1f} ms; CPU "
        f"{median(load.cpu for load in found['ours']) / 1000:.1f} against "
        f"{median(cpu for _, cpu in found['floor']) / 1000:.1f} ms"
    )
    return [at_most("Single add: p50 of embed and durable commit", ratio(p50, floors), 1.3, beside)]


def _eight_at_once(service: Service, model: Models, seeds: Iterator[int]) -> list[Figure]:
    def floor() -> float:
        return 400 / raw_encode(model, sentences(400, next(seeds)))

    found = interleaved({"ours": lambda: _adding(service, next(seeds), 8), "floor": floor})
    rates = [load.rps for load in found["ours"]]
    beside = f"{median(rates):.0f} against {median(found['floor']):.0f} texts a second"
    share = ratio(rates, found["floor"])
    return [at_least("Eight clients adding: throughput of raw encode", share, 0.80, beside)]


def _batches(service: Service, model: Models, seeds: Iterator[int]) -> list[Figure]:
    def ours() -> tuple[float, float, float]:
        texts, cpu = sentences(BATCH, next(seeds)), cpu_seconds(service.pid)
        started = time.perf_counter()
        service.add(AGENT, [{"content": text} for text in texts], BATCH, embedded=True)
        acknowledged = time.perf_counter() - started
        service.settle()
        return acknowledged, time.perf_counter() - started, cpu_seconds(service.pid) - cpu

    def floor() -> tuple[float, float]:
        cpu = time.process_time()
        return raw_encode(model, sentences(BATCH, next(seeds))), time.process_time() - cpu

    found = interleaved({"ours": ours, "floor": floor})
    acknowledged, drained, cpu = zip(*found["ours"], strict=True)
    floors, floor_cpu = zip(*found["floor"], strict=True)
    beside = (
        f"{BATCH / median(acknowledged):.0f} against {BATCH / median(floors):.0f} texts a second; CPU "
        f"{median(cpu):.1f} against {median(floor_cpu):.1f} ms a text"
    )
    until = f"{ratio(floors, drained):.2f} ({BATCH / median(drained):.0f} texts a second)"
    return [
        at_least(
            "Batches of 1,000, with vectors: throughput of raw encode",
            ratio(floors, acknowledged),
            0.92,
            beside,
        ),
        Figure("The same until Chroma has drained", "", until),
    ]
