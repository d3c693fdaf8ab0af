"""100,000 memories in 100 partitions: how long until the first read, how much memory and disk."""

import tempfile
import time
from pathlib import Path

from measure import Figure, children, cpu_seconds, disk_mb, median, resident_mb
from server import Service, running
from texts import sentences

PARTITIONS, ROWS = 100, 1_000
HASH_SERVER = ("-m", "tests.bench.hash_server")
STARTS = 5


def figures() -> list[Figure]:
    """The tests' encoder stands in for the model: 384 dimensions too, and 100,000 texts take minutes."""
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as scratch:
        data = Path(scratch)
        ids, filled = _fill(data)
        disk = Figure("100,000 memories: disk", "", _disk(data))
        reads = [_first_read(data, ids[0]) for _ in range(STARTS)]
        start = Figure("100,000 memories: start to the first read by id", "", f"{median(reads):.2f} s")
        return [filled, start, *_memory(data, ids), disk]


def _fill(data: Path) -> tuple[list[str], Figure]:
    """One id of each partition."""
    ids = []
    with running(data, HASH_SERVER) as service:
        started = time.perf_counter()
        for number in range(PARTITIONS):
            items = [{"content": text} for text in sentences(ROWS, 5_000 + number)]
            ids.append(service.add(f"agent-{number}", items, ROWS)[0])
        acknowledged = time.perf_counter() - started
        cpu = cpu_seconds(service.pid)
        service.settle()
        drained = time.perf_counter() - started
    rows = PARTITIONS * ROWS
    measured = (
        f"{rows / acknowledged:,.0f} a second acknowledged ({cpu / rows * 1e6:.0f} µs CPU a row), "
        f"{rows / drained:,.0f} a second until Chroma has drained"
    )
    return ids, Figure("100,000 memories without the model: ingest", "", measured)


def _first_read(data: Path, memory_id: str) -> float:
    started = time.perf_counter()
    with running(data, HASH_SERVER, wait_for_model=False) as service:
        service.get("agent-0", memory_id)
        return time.perf_counter() - started


def _memory(data: Path, ids: list[str]) -> list[Figure]:
    with running(data, HASH_SERVER) as service:
        service.settle()
        base = _mb(service)
        for number, memory_id in enumerate(ids):
            service.get(f"agent-{number}", memory_id)
            service.search(f"agent-{number}", "a word of the partition", limit=1)
        server, chroma = (after - before for after, before in zip(_mb(service), base, strict=True))
    return [
        Figure(
            "100,000 memories, all touched: memory over the base, server",
            "≤ 500 MB",
            f"**{server:.0f} MB** (base {base[0]:.0f})",
            server <= 500,
        ),
        Figure(
            "the same, the Chroma child",
            "≤ 300 MB",
            f"**{chroma:.0f} MB** (base {base[1]:.0f})",
            chroma <= 300,
        ),
    ]


def _mb(service: Service) -> tuple[float, float]:
    """Resident memory of the server and of its children, MB."""
    return resident_mb(service.pid), sum(resident_mb(child) for child in children(service.pid))


def _disk(data: Path) -> str:
    ledger = sum(file.stat().st_size for file in data.glob("ledger.sqlite3*")) / 1e6
    return (
        f"{disk_mb(data):.0f} MB, of it {ledger:.0f} in the ledger and {disk_mb(data / 'vdb'):.0f} in Chroma"
    )
