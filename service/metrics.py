"""Counters for the operator. Labels name operations and statuses, never tenants or texts."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from models.errors import StoreUnavailable
from service.brain import Brain

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """One registry for one brain."""

    def __init__(self, brain: Brain):
        self._registry = CollectorRegistry()
        answers = _Answers()
        self.count = answers.count
        self._registry.register(answers)
        self._registry.register(_Gauges(brain))

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)


class _Answers(Collector):
    """Counted by hand on the event loop: the library's own counters take locks, and four times as long."""

    def __init__(self) -> None:
        self._requests: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Count one answer."""
        self._requests[operation, status] += 1
        self._buckets[operation][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[operation] += seconds

    def collect(self) -> Iterator[Metric]:
        labels = ["operation", "status"]
        requests = CounterMetricFamily("brain_requests", "Answers by operation and status", labels=labels)
        for (operation, status), count in self._requests.items():
            requests.add_metric([operation, str(status)], count)
        yield requests
        times = HistogramMetricFamily("brain_request_seconds", "Time to answer", labels=["operation"])
        for operation, buckets in self._buckets.items():
            upper = [*(str(float(bound)) for bound in BUCKETS), "+Inf"]
            counts = list(zip(upper, accumulate(buckets), strict=True))
            times.add_metric([operation], counts, self._seconds[operation])
        yield times

    def describe(self) -> list[Metric]:
        return []


class _Gauges(Collector):
    def __init__(self, brain: Brain):
        self._brain = brain

    def collect(self) -> list[GaugeMetricFamily]:
        brain = self._brain
        values: dict[str, tuple[str, float]] = {
            "brain_resident_partitions": ("Partitions in memory", len(brain.residents)),
            "brain_resident_bytes": (
                "Estimated bytes of the partitions in memory",
                brain.residents.size_bytes,
            ),
            "brain_embedding_queue": ("Texts waiting for the model", brain.embedder.queue_length),
            "brain_vdb_available": ("1 while Chroma answers", int(brain.vdb.available)),
        }
        with suppress(StoreUnavailable):  # then most of all the other metrics are wanted
            values["brain_index_lag"] = ("Memories that Chroma has not caught up with", brain.applier.lag())
        return [GaugeMetricFamily(name, text, value=value) for name, (text, value) in values.items()]

    def describe(self) -> list[GaugeMetricFamily]:
        return []
