"""The Chroma projection, seen from the serving process: async, bounded in time, and never in its way.

A derived store: the ledger is the truth, so every fault here is one exception, `VdbUnavailable`, and whoever
catches it goes on with the ledger. Chroma itself lives in one child process (`stores.chroma_worker`).

    a late read     its answer is dropped; the child is only behind a batch of writes and stays
    a late write    (or page of `stored`) the child hangs: it is killed, the next call starts another
    a dead child    every call in flight fails, the next call starts another; after the second death in a row
                    restarts are held back, 1 s to 60 s
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from stores import chroma_worker as worker

T = TypeVar("T")

READ_S = 5.0
WRITE_S = 30.0
CLOSE_S = 5.0
_FREE_RESTARTS = 2
_LONGEST_HOLD_S = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class VdbRow:
    """One memory as it stands in Chroma.

    `scope` is `scope_key(product, agent)`; `record` is the whole record as JSON; `vectors` is float32 of
    shape (chunks, dimensions), at least one chunk. ValueError if the shape is another or the id contains '#',
    which is what marks a chunk's row.
    """

    memory_id: str
    scope: str
    user: str
    layer: str
    kind: str
    version: int
    record: str
    vectors: NDArray[np.float32]

    def __post_init__(self) -> None:
        if "#" in self.memory_id or not self.memory_id:
            raise ValueError(f"not a memory id: {self.memory_id!r}")
        if self.vectors.ndim != 2 or self.vectors.shape[0] < 1 or self.vectors.dtype != np.float32:
            raise ValueError(f"vectors of {self.memory_id}: want float32 (chunks, dimensions)")


class VdbUnavailable(Exception):
    """Chroma did not answer, or not in time; `reason` says what happened, for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _hash(product: str, agent: str) -> bytes:
    # Lengths first, so that ('a', 'b::c') and ('a::b', 'c') are two scopes.
    names = [name.encode() for name in (product, agent)]
    return hashlib.sha256(b"".join(len(name).to_bytes(8, "big") + name for name in names)).digest()


def shard_of(product: str, agent: str, shards: int = 16) -> int:
    """The number (0 … shards - 1) of the shard that holds a scope."""
    return int.from_bytes(_hash(product, agent), "big") % shards


def scope_key(product: str, agent: str) -> str:
    """The scope's name inside Chroma, 64 hex digits: tenants' names stay out of its index."""
    return _hash(product, agent).hex()


class Vdb:
    """Every shard under one root. Belongs to one event loop; `shard` is a directory's name under the root.

    `within` is in seconds. A write's time starts when the write before it has ended. All methods raise
    VdbUnavailable; after `close` always.
    """

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root.absolute()
        self._clock = clock
        self._child: asyncio.Task[_Child] | None = None
        self._write_turn = asyncio.Lock()
        self._closed = False
        self._deaths = 0  # in a row, since the last answer
        self._not_before = 0.0
        self.last_error: str | None = None

    @property
    def available(self) -> bool:
        """False from the child's death (or `close`) to the next answer. One shard's fault leaves it true."""
        return not self._closed and self._deaths == 0

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is no child."""
        child = _made(self._child)
        return child.process.pid if child else None

    def start(self) -> None:
        """Start the child now, as the first call would, and return at once; ready about 1.5 s later."""
        if self._child is None and not self._closed:
            self._child = asyncio.get_running_loop().create_task(asyncio.to_thread(_Child, self._root))

    async def put(self, shard: str, rows: Sequence[VdbRow], *, within: float = WRITE_S) -> None:
        """Store these memories, replacing what was stored of them; on disk when this returns."""
        async with self._write_turn:
            await self.ask(shard, within, worker.put, list(rows), write=True)

    async def remove(self, shard: str, memory_ids: Iterable[str], *, within: float = WRITE_S) -> None:
        """Delete these memories with all their chunks; unknown ids are no error."""
        async with self._write_turn:
            await self.ask(shard, within, worker.remove, list(memory_ids), write=True)

    async def get(self, shard: str, memory_id: str, *, within: float = READ_S) -> str | None:
        """The record JSON exactly as it was put, or None."""
        return (await self.ask(shard, within, worker.get, [memory_id])).get(memory_id)

    async def query(
        self,
        shard: str,
        vector: NDArray[np.float32],
        *,
        scope: str,
        user: str | None = None,
        k: int,
        within: float = READ_S,
    ) -> list[tuple[str, float]]:
        """The k ≥ 1 nearest memories of a scope (of one user in it) to a vector of shape (dimensions,).

        Memory id and cosine distance (0 … 2) of its best chunk, nearest first. Approximate: a live memory can
        be missing.
        """
        packed = np.ascontiguousarray(vector, dtype=np.float32).tobytes()
        return await self.ask(shard, within, worker.query, packed, scope, user, k)

    async def stored(self, shard: str, *, within: float = WRITE_S) -> dict[str, int]:
        """Memory id → version of all that the shard holds. `within` as for `rows`."""
        return {id: number for id, number, _ in await self.rows(shard, within=within) if number is not None}

    async def rows(self, shard: str, *, within: float = WRITE_S) -> list[tuple[str, int | None, bytes]]:
        """All rows as `worker.rows` tells them. `within` bounds each page; only writes wait."""
        rows: list[tuple[str, int | None, bytes]] = []
        async with self._write_turn:
            more = True
            while more:
                page, more = await self.ask(shard, within, worker.rows, len(rows), write=True)
                rows += page
        return rows

    async def close_shard(self, shard: str, *, within: float = WRITE_S) -> None:
        """Close the shard, so that its directory may be deleted; its files close a moment later."""
        async with self._write_turn:
            await self.ask(shard, within, worker.close, write=True)

    async def close(self, *, within: float = CLOSE_S) -> None:
        """End the child: calls in flight may finish `within`, then it is killed. Twice is harmless."""
        self._closed = True
        if self._child is not None:
            await asyncio.wait([self._child])
            if child := _made(self._child):
                await asyncio.to_thread(child.end, within)
            self._child = None

    async def ask(
        self, shard: str, within: float, function: Callable[..., T], *args: Any, write: bool = False
    ) -> T:
        """Run a function of the child process on a shard."""
        if Path(shard).name != shard or shard in ("", ".."):
            raise ValueError(f"not a shard's name: {shard!r}")
        what = f"{function.__name__} on {shard}"
        starting = self._ready()
        try:
            async with asyncio.timeout(within):
                child = await asyncio.shield(starting)
                call = child.pool.submit(function, str(self._root / shard), *args)
                answer = await asyncio.wrap_future(call)
        except TimeoutError:
            if write:
                self._lost(starting, f"{what}: no answer in {within} s, child killed")
            raise VdbUnavailable(f"{what}: no answer in {within} s") from None
        except BrokenProcessPool:
            raise self._lost(starting, f"{what}: the child process died") from None
        except worker.WorkerError as error:
            self._deaths, self.last_error = 0, f"{what}: {error}"  # an answer too: the child lives
            raise VdbUnavailable(self.last_error) from None
        except (OSError, RuntimeError) as error:  # no process to be had; the pool was closed meanwhile
            raise self._lost(starting, f"{what}: {error}") from None
        self._deaths, self.last_error = 0, None
        return answer

    def _ready(self) -> asyncio.Task[_Child]:
        if self._closed:
            raise VdbUnavailable("closed")
        if self._child is None:
            held = self._not_before - self._clock()
            if held > 0:
                raise VdbUnavailable(f"restart held back for {held:.1f} s after: {self.last_error}")
            self.start()
        assert self._child is not None
        return self._child

    def _lost(self, task: asyncio.Task[_Child], reason: str) -> VdbUnavailable:
        """Give this child up: once, however many calls were in flight in it."""
        if self._child is task and not self._closed:
            if child := _made(task):
                child.kill()
            self._child = None
            self.last_error = reason
            self._deaths += 1
            if self._deaths > _FREE_RESTARTS:
                hold = min(2.0 ** (self._deaths - _FREE_RESTARTS - 1), _LONGEST_HOLD_S)
                self._not_before = self._clock() + hold
        return VdbUnavailable(reason)


class _Context(SpawnContext):
    """Spawn, and keep what ProcessPoolExecutor takes from its context and doesn't show: process and pipe."""

    process: _Process
    results: SimpleQueue[Any]

    def Process(self, *args: Any, **kwargs: Any) -> _Process:  # type: ignore[override]
        self.process = _Process(*args, **kwargs)
        return self.process

    def SimpleQueue(self) -> SimpleQueue[Any]:
        self.results = super().SimpleQueue()
        return self.results


class _Process(SpawnProcess):
    """A spawned child that does not run the parent's `__main__` again.

    Spawn does so to find pickled functions; ours live in a module of their own. Running it would import the
    whole service into the child, and a main script without a `__name__` guard would start a second server.
    """

    _hiding = threading.Lock()

    def start(self) -> None:
        with self._hiding:
            main = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")
            try:
                super().start()
            finally:
                sys.modules["__main__"] = main


class _Child:
    """One pool with its one process. Made in a thread: spawning blocks."""

    def __init__(self, root: Path) -> None:
        context = _Context()
        self.pool = ProcessPoolExecutor(
            1, mp_context=context, initializer=worker.initialize, initargs=(str(root),)
        )
        self.pool.submit(worker.ping)  # the first call spawns, later ones don't
        self.process = context.process
        # Our copy of the child's end of the pipe. While it is open, a child killed in the middle of a large
        # answer leaves the pool waiting for the rest for ever, and the interpreter's exit with it.
        context.results._writer.close()  # type: ignore[attr-defined]

    def kill(self) -> None:
        """End the process and all calls in flight, which raise BrokenProcessPool."""
        self.process.kill()
        self.pool.shutdown(wait=False)

    def end(self, within: float) -> None:
        """Let the calls in flight finish, then end the process for certain."""
        self.pool.shutdown(wait=False)
        if not wait([self.process.sentinel], within):
            self.process.kill()
            wait([self.process.sentinel])


def _made(task: asyncio.Task[_Child] | None) -> _Child | None:
    return task.result() if task and task.done() and not task.cancelled() and not task.exception() else None
