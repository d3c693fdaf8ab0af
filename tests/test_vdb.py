"""The Chroma projection: one contract for the store and its fake, then the store's child process."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from stores.vdb import READ_S, Vdb, VdbRow, VdbUnavailable, scope_key, shard_of
from tests.memory_vdb import MemoryVdb, VdbContract, row
from tests.serving import eventually

REPOSITORY = Path(__file__).parent.parent
SHARD = "00-0001"
T = TypeVar("T")


class PatientVdb(Vdb):
    """Waits as long as a machine that does other things may take, where a read names no time."""

    async def ask(
        self, shard: str, within: float, function: Callable[..., T], *args: Any, write: bool = False
    ) -> T:
        return await super().ask(shard, 120 if within == READ_S else within, function, *args, write=write)


def wait_until_gone(pid: int) -> None:
    """Return when the process has ended (or is no longer known); fail after a minute."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(descriptor):
        assert select.select([descriptor], [], [], 60)[0], f"process {pid} lives on"


def open_files(pid: int, under: str) -> list[str]:
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(link.readlink()))
    return [name for name in found if under in name]


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[..., Any]]:
    """Run a coroutine on the module's one event loop."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def vdb(tmp_path: Path, run: Callable[..., Any]) -> Iterator[Vdb]:
    """A store with a child of its own, for tests that maltreat it."""
    store = PatientVdb(tmp_path / "vdb")
    yield store
    run(store.close())


def pid_of(store: Vdb, run: Callable[..., Any]) -> int:
    run(store.stored(SHARD))
    assert store.pid is not None
    return store.pid


class TestMemoryVdb(VdbContract):
    @pytest.fixture(scope="class")
    @classmethod
    def store(cls) -> MemoryVdb:
        return MemoryVdb()

    def test_it_has_the_real_one_s_methods(self):
        def public(of: type) -> dict[str, Any]:
            # `ask` hands a function to the child process, which this one does not have.
            names = [name for name in dir(of) if not name.startswith("_") and name != "ask"]
            members = {name: getattr(of, name) for name in names}
            return {name: inspect.signature(it) if callable(it) else type(it) for name, it in members.items()}

        assert public(MemoryVdb) == public(Vdb)

    @pytest.mark.parametrize("fault", [{"fail": True}, {"hang": True}])
    def test_its_faults_are_the_real_one_s(self, run, fault):
        with pytest.raises(VdbUnavailable):
            run(MemoryVdb(**fault).get(SHARD, "m", within=0.01))


class TestVdb(VdbContract):
    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, run, tmp_path_factory) -> Iterator[Vdb]:
        store = PatientVdb(tmp_path_factory.mktemp("vdb"))
        yield store
        run(store.close())

    def test_a_broken_shard_is_named_and_the_others_work(self, run, store, shard, tmp_path):
        broken = store._root / "15-0001"
        broken.mkdir()
        (broken / "chroma.sqlite3").write_bytes(b"garbage" * 1_000)
        for _ in range(2):
            with pytest.raises(VdbUnavailable, match=r"15-0001.*not a database"):
                run(store.get("15-0001", "m"))
        run(store.put(shard, [row("m", record="here")]))
        assert run(store.get(shard, "m")) == "here"
        assert store.available

    def test_a_closed_shard_has_no_open_files_and_may_be_deleted(self, run, store, shard):
        run(store.put(shard, [row("m")]))
        run(store.close_shard(shard))
        eventually(lambda: not open_files(store.pid, f"/{shard}/"))  # Chroma's own thread closes the last one
        shutil.rmtree(store._root / shard)
        assert run(store.stored(shard)) == {}
        run(store.put(shard, [row("n")]))
        assert run(store.stored(shard)) == {"n": 1}

    def test_a_row_that_chroma_refuses_leaves_the_store_in_order(self, run, store, shard):
        run(store.put(shard, [row("m", [1, 0, 0])]))
        with pytest.raises(VdbUnavailable, match="dimension"):
            run(store.put(shard, [row("n", [1, 0])]))
        assert run(store.stored(shard)) == {"m": 1}


class TestTheChild:
    def test_its_death_fails_the_call_and_the_next_finds_every_acknowledged_row(self, run, vdb):
        run(vdb.put(SHARD, [row(f"m{number}") for number in range(50)]))
        first = vdb.pid

        async def die_in_the_middle_of_a_put() -> None:
            call = asyncio.ensure_future(vdb.put(SHARD, [row(f"n{number}") for number in range(4_000)]))
            await asyncio.sleep(0)
            os.kill(first, signal.SIGKILL)
            await call

        with pytest.raises(VdbUnavailable, match="died"):
            run(die_in_the_middle_of_a_put())
        assert not vdb.available
        assert run(vdb.stored(SHARD)).keys() >= {f"m{number}" for number in range(50)}
        assert vdb.available
        assert vdb.pid != first

    def test_a_late_read_is_dropped_and_the_child_stays(self, run, vdb):
        pid = pid_of(vdb, run)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(VdbUnavailable, match="no answer"):
            run(vdb.get(SHARD, "m", within=0.02))
        os.kill(pid, signal.SIGCONT)
        assert run(vdb.get(SHARD, "m")) is None
        assert vdb.pid == pid

    def test_a_write_that_hangs_costs_the_child_its_life(self, run, vdb):
        pid = pid_of(vdb, run)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(VdbUnavailable, match="no answer"):
            run(vdb.put(SHARD, [row("m")], within=0.1))
        wait_until_gone(pid)
        run(vdb.put(SHARD, [row("m", record="again")]))
        assert run(vdb.get(SHARD, "m")) == "again"

    def test_restarts_are_held_back_when_it_keeps_dying(self, run, tmp_path):
        now = [0.0]
        store = PatientVdb(tmp_path, clock=lambda: now[0])

        async def die_at_once() -> None:
            call = asyncio.ensure_future(store.get(SHARD, "m", within=120))
            while store.pid is None:  # noqa: ASYNC110 (the store has no event for this)
                await asyncio.sleep(0)
            os.kill(store.pid, signal.SIGKILL)
            await call

        run(store.put(SHARD, [row("m")]))
        for _ in range(3):
            with pytest.raises(VdbUnavailable, match="died"):
                run(die_at_once())
        with pytest.raises(VdbUnavailable, match=r"held back for 1\.0 s"):
            run(store.get(SHARD, "m"))
        assert store.pid is None
        now[0] = 1.0
        assert run(store.get(SHARD, "m")) == "{}"
        run(store.close())

    def test_closing_ends_it_and_later_calls_are_refused(self, run, vdb):
        pid = pid_of(vdb, run)
        run(vdb.close())
        wait_until_gone(pid)
        with pytest.raises(VdbUnavailable, match="closed"):
            run(vdb.get(SHARD, "m"))
        run(vdb.close())

    def test_closing_ends_a_child_that_hangs(self, run, vdb):
        pid = pid_of(vdb, run)
        os.kill(pid, signal.SIGSTOP)
        run(vdb.close(within=0.1))
        wait_until_gone(pid)

    def test_a_second_living_owner_of_a_root_is_refused_by_name(self, run, vdb):
        run(vdb.put(SHARD, [row("m")]))
        second = PatientVdb(vdb._root)
        with pytest.raises(VdbUnavailable, match=r"another process holds .*worker\.lock"):
            run(second.get(SHARD, "m", within=120))
        run(second.close())

    def test_the_parent_never_imports_chroma(self):
        code = "import sys, stores.vdb, stores.chroma_worker; print('chromadb' in sys.modules)"
        answer = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)
        assert answer.stdout == "False\n"


# Deliberately without `if __name__ == "__main__"`: the child must not run it again.
SCRIPT = """
import asyncio, pathlib, sys
from stores.vdb import Vdb
from tests.memory_vdb import row
print("main runs", flush=True)

async def main():
    store = Vdb(pathlib.Path(sys.argv[1]))
    await store.put("00-0001", [row("m", record="acknowledged")])
    print(store.pid, flush=True)
    await store.put("00-0001", [row(f"n{number}") for number in range(20_000)], within=600)

asyncio.run(main())
"""


class TestAKilledParent:
    @pytest.fixture(params=["script", "module"])
    def parent(self, request, tmp_path) -> Iterator[subprocess.Popen[str]]:
        (tmp_path / "server.py").write_text(SCRIPT)
        how = [str(tmp_path / "server.py")] if request.param == "script" else ["-m", "server"]
        process = subprocess.Popen(
            [sys.executable, *how, str(tmp_path / "vdb")],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{REPOSITORY}:{tmp_path}"},
        )
        yield process
        process.kill()
        process.communicate()

    def test_leaves_no_child_and_its_successor_works_at_once(self, run, parent, vdb):
        assert parent.stdout is not None
        assert parent.stdout.readline() == "main runs\n"
        child = int(parent.stdout.readline())
        stdouts = [Path(f"/proc/{pid}/fd/1").readlink() for pid in (child, parent.pid)]
        assert stdouts[0] != stdouts[1]
        parent.kill()
        assert run(vdb.get(SHARD, "m", within=120)) == "acknowledged"
        wait_until_gone(child)
        assert parent.stdout.read() == ""  # nor did the child run `main` again, or write to our stdout


def test_names_are_hashed_with_their_lengths():
    assert scope_key("a", "b::c") != scope_key("a::b", "c")
    assert scope_key("ab", "c") != scope_key("a", "bc")
    assert {shard_of("product", f"agent {number}") for number in range(500)} == set(range(16))
    assert len(scope_key("a", "b")) == 64


@pytest.mark.parametrize("chunks", [np.zeros((0, 3), np.float32), np.zeros(3, np.float32), np.zeros((1, 3))])
def test_a_row_without_float32_chunks_is_refused(chunks):
    with pytest.raises(ValueError, match="chunks"):
        VdbRow("m", "s", "u", "l", "k", 1, "{}", chunks)


def test_an_id_with_a_chunk_mark_is_refused():
    with pytest.raises(ValueError, match="memory id"):
        row("m#1")
