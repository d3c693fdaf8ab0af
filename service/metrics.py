"""Counters for the operator. Labels name operations and statuses, never tenants or texts."""

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from models.errors import StoreUnavailable
from service.brain import Brain

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """One registry for one brain."""

    def __init__(self, brain: Brain):
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "brain_requests",
            "Answers by operation and status",
            ["operation", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "brain_request_seconds", "Time to answer", ["operation"], buckets=BUCKETS, registry=self._registry
        )
        self._registry.register(_Gauges(brain))
        self._children: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Count one answer. The labelled children are kept: looking them up costs more than counting."""
        children = self._children.get((operation, status))
        if children is None:
            children = (self._requests.labels(operation, str(status)), self._seconds.labels(operation))
            self._children[operation, status] = children
        children[0].inc()
        children[1].observe(seconds)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)


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
