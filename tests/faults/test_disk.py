"""No room left on the disk, and a directory that can't be written."""

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.faults.processes import Victim, victim
from tests.serving import JSON, refused
from tests.test_cli import Shell

Starved = Callable[[Victim], AbstractContextManager[None]]

ROOM_MB = 48
LIMIT = 64 * 1024


def mounted(folder: Path, options: str) -> bool:
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with little room."""
    folder = tmp_path / "disk"
    if not mounted(folder, f"size={ROOM_MB}m"):
        pytest.skip("mounting is not permitted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def no_file_may_grow(server: Victim) -> Iterator[None]:
    """Beyond LIMIT: what the kernel answers then, SQLite takes for a full disk."""
    for pid in (server.pid, server.chroma()):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))
    yield
    for pid in (server.pid, *server.children()):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextmanager
def no_room(server: Victim) -> Iterator[None]:
    """Something else has taken it all."""
    ballast = server.data.parent / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as full:
            assert full.errno == 28
    yield
    ballast.unlink()


def check(data: Path, starved: Starved) -> None:
    """Writes are refused whole while there is no room, reads go on, and afterwards all is as if nothing had
    been. What was acknowledged is there also for the next process."""
    with victim(data) as server:
        first = server.api.add("The ferry leaves at noon.")["memory"]
        server.ready()
        kept: dict[str, str] = {first["memory_id"]: first["content"]}
        with starved(server):
            refusal: JSON | None = None
            for number in range(200):
                text = f"Crate {number} is on board, {'and another ' * 300}"
                answer = server.api.try_add(text)
                if answer.status_code != 201:
                    refusal = refused(answer, 503, "store_unavailable")
                    assert refusal["retryable"] and answer.headers["retry-after"]
                    break
                kept[answer.json()["memory"]["memory_id"]] = text
            assert refusal is not None, "it never ran out of room"
            assert server.api.memory(first["memory_id"])["content"] == first["content"]
            found = server.api.search("when does the ferry leave?", limit=1)["results"]
            assert [hit["memory_id"] for hit in found] == [first["memory_id"]]
            assert server.api.list()["total"] == len(kept)
        again = server.api.add("There is room again.", idempotency_key="again")["memory"]
        kept[again["memory_id"]] = again["content"]
        server.ready()
        assert server.terminate() == 0
    with victim(data) as server:
        assert server.api.list()["total"] == len(kept)
        assert {id: server.api.memory(id)["content"] for id in kept} == kept
        server.ready()


def test_with_no_file_allowed_to_grow_writes_are_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    check(tmp_path / "data", no_file_may_grow)


def test_with_a_full_disk_writes_are_refused_and_nothing_is_lost(small_disk: Path) -> None:
    check(small_disk / "data", no_room)


def test_a_directory_that_can_only_be_read_is_refused_by_name_with_the_next_move(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    reason = "Read-only file system"
    if os.geteuid() != 0:
        reason = "Permission denied"
        data.chmod(0o500)
    elif not mounted(data, "ro"):
        pytest.skip("root may write everywhere, and mounting is not permitted here")
    try:
        shell = Shell(data)
        for command in (("serve", "--port", "0"), ("stats",)):
            shell.fails(2, f"{data} can't be used: {reason}. Choose another", *command)
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", str(data)], check=True)
