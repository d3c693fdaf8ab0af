"""The end of the write-ahead log is torn, as a power failure leaves it before an fsync has returned: what was
acknowledged before is there, what was on its way is there as a whole or not at all."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.processes import victim

TEXTS = [f"Sealed letter number {number}, for the archive." for number in range(5)]
LATE = "Written while the lights went out."
FRAME = 4096 + 24  # a page and its header
LOG = "ledger.sqlite3-wal"


def cut(log: Path, safe: int) -> None:
    """In the middle of the last write's frames."""
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.truncate(safe + (size - safe) // 2)


def cut_to_a_stump(log: Path, safe: int) -> None:
    """A few bytes of a frame are left."""
    with log.open("r+b") as file:
        file.truncate(safe + 7)


def garble(log: Path, safe: int) -> None:
    """Sectors were written in another order: the last write's first frame is nonsense."""
    with log.open("r+b") as file:
        file.seek(safe)
        file.write(b"\xa5" * FRAME)


def append(log: Path, safe: int) -> None:
    """Old bytes of the disk stand behind the end."""
    with log.open("ab") as file:
        file.write(b"\x37\x7f\x06\x82" * 5_000)


@dataclass(frozen=True)
class Killed:
    """A directory as SIGKILL left it. `safe` is the length of the log before the late write."""

    data: Path
    ids: list[str]
    late: str
    safe: int


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    data = tmp_path_factory.mktemp("killed") / "data"
    log = data / LOG
    with victim(data) as server:
        ids = [server.api.add(text, idempotency_key=text)["memory"]["memory_id"] for text in TEXTS]
        server.ready()
        safe = log.stat().st_size
        late = server.api.add(LATE, idempotency_key="late")["memory"]["memory_id"]
        assert log.stat().st_size > safe, "the late write is behind what must stay"
        server.kill()
    return Killed(data, ids, late, safe)


@pytest.mark.parametrize("tear", [cut, cut_to_a_stump, garble, append])
def test_a_torn_end_of_the_log_takes_nothing_along(
    tmp_path: Path, killed: Killed, tear: Callable[[Path, int], None]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(killed.data, data)
    tear(data / LOG, killed.safe)
    whole = tear is append
    with victim(data) as server:
        assert [server.api.memory(id)["content"] for id in killed.ids] == TEXTS
        there = [memory["content"] for memory in server.api.list(order="oldest")["memories"]]
        assert there == ([*TEXTS, LATE] if whole else TEXTS)
        found = [hit["memory_id"] for hit in server.api.search(LATE)["results"]]
        assert (killed.late in found) is whole
        again = server.api.add(LATE, idempotency_key="late")
        assert again.get("replayed", False) is whole
        assert server.api.list()["total"] == len(TEXTS) + 1
        server.ready()
