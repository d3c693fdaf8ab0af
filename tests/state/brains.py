"""Brains for tests, with every outside influence in the test's hands: time, the model and Chroma."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from models.embedder import Embedder
from models.embedding import Encoder, Encoding
from models.identity import uuid7
from models.scope import Caller, Scope
from service import dispatch
from service.brain import Brain
from service.callers import ALL_RIGHTS
from service.operations import BY_NAME
from service.settings import Settings
from stores.vdb import VdbRow
from tests.hash_encoder import HashEncoder
from tests.memory_vdb import MemoryVdb

Shards = dict[str, dict[str, VdbRow]]


class Clock:
    """Epoch ms that pass only when told to, or while somebody sleeps by `sleep`."""

    def __init__(self, ms: int = 1_700_000_000_000) -> None:
        self.ms = ms
        self.slept: list[float] = []

    def __call__(self) -> int:
        return self.ms

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.ms += round(seconds * 1000) + 1
        await asyncio.sleep(0)


class SwitchEncoder(HashEncoder):
    """Raises while `fail` is set: on everything, or on texts with one of the `poison` words."""

    def __init__(self, *, fail: bool = False, poison: Collection[str] = ()) -> None:
        super().__init__()
        self.fail = fail
        self._poison = {self._piece(word) for word in poison}

    def encode(self, chunks: Sequence[Sequence[int]]) -> list[Encoding]:
        if self.fail or any(self._poison.intersection(chunk) for chunk in chunks):
            raise RuntimeError("the encoder was told to fail")
        return super().encode(chunks)


class SwitchVdb(MemoryVdb):
    """Keeps its rows in `shards`, which outlive it as a directory would. `poison` ids can't be put; a
    shard in `broken` answers nothing. What hangs, fails as soon as it is told to go on."""

    def __init__(self, shards: Shards | None = None, *, fail: bool = False, hang: bool = False) -> None:
        super().__init__(fail=fail)
        self._shards = {} if shards is None else shards
        self._going = asyncio.Event()
        self._hanging = False
        self.hangs(hang)
        self.poison: set[str] = set()
        self.broken: set[str] = set()
        self.puts: list[list[str]] = []
        self.on_put: Callable[[Sequence[VdbRow]], Any] = lambda rows: None

    @property
    def shards(self) -> Shards:
        return {name: dict(rows) for name, rows in self._shards.items()}

    def hangs(self, hang: bool) -> None:
        self._hanging = hang
        (self._going.clear if hang else self._going.set)()

    async def put(self, shard: str, rows: Sequence[VdbRow], **within: float) -> None:
        ids = [row.memory_id for row in rows]
        self.puts.append(ids)
        if self.poison.intersection(ids):
            raise self._fault("a row is broken")
        await super().put(shard, rows, **within)
        self.on_put(rows)

    async def _shard(self, shard: str, within: float) -> dict[str, VdbRow]:
        if self._hanging:
            try:
                await asyncio.wait_for(self._going.wait(), within)
            except TimeoutError:
                raise self._fault(f"no answer in {within} s") from None
            raise self._fault("hung, and was ended")
        if shard in self.broken:
            raise self._fault("the shard is broken")
        return await super()._shard(shard, within)


def settings(directory: Path, read_deadline_ms: int, gather_ms: int) -> Settings:
    """Generous with the model: a slow machine must not turn an answer into another one."""
    return Settings.model_validate(
        {
            "data": {"directory": str(directory)},
            "vdb": {"read_deadline_ms": read_deadline_ms, "gather_ms": gather_ms},
            "write": {"embed_wait_ms": 30_000},
        }
    )


def make_brain(
    directory: Path,
    *,
    vdb: Any = None,
    load: Callable[[], Encoder] = HashEncoder,
    clock: Clock | None = None,
    read_deadline_ms: int = 5_000,
    gather_ms: int = 0,
) -> Brain:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    clock = clock or Clock()
    return Brain(
        settings(directory, read_deadline_ms, gather_ms),
        vdb or SwitchVdb(),
        Embedder(load),
        clock,
        uuid7,
        clock.sleep,
    )


@asynccontextmanager
async def running(directory: Path, **parts: Any) -> AsyncIterator[Brain]:
    brain = make_brain(directory, **parts)
    await brain.start()
    try:
        yield brain
    finally:
        await brain.close()


async def crash_image(brain: Brain, target: Path) -> None:
    """What SIGKILL would leave on disk now. Copied by the writer's own thread, so that no commit and no
    checkpoint runs meanwhile: database and log, not closed, not folded together."""
    source = brain.settings.data_directory
    ignore = shutil.ignore_patterns("lock", "owner.json", "*-shm")
    await brain.write(lambda _: shutil.copytree(source, target, ignore=ignore))


def caller(user: str | None = None, agent: str = "a", product: str = "p") -> Caller:
    return Caller(Scope(product, agent), user, ALL_RIGHTS, "test")


async def call(brain: Brain, name: str, who: Caller, **arguments: Any) -> tuple[int, dict[str, Any]]:
    """An operation's status and body, by the door below HTTP."""
    reply = await dispatch.run(brain, BY_NAME[name], who, arguments)
    assert reply.status is not None
    return reply.status, reply.body


async def add(brain: Brain, who: Caller, content: str, **arguments: Any) -> str:
    """The id of a memory that was stored."""
    status, body = await call(brain, "brain_memory_add", who, content=content, **arguments)
    assert status in (200, 201), body
    return str(body["memory"]["memory_id"])


async def search(brain: Brain, who: Caller, query: str, **arguments: Any) -> list[str]:
    """The ids that a search finds."""
    status, body = await call(brain, "brain_memory_search", who, query=query, **arguments)
    assert status == 200, body
    return [hit["memory_id"] for hit in body["results"]]


async def model_ready(brain: Brain) -> None:
    """Wait until the vectors of new writes count."""
    await asyncio.wrap_future(brain.embedder.embed_query("ready?"))
    while brain.meaning.fingerprint() is None:  # noqa: ASYNC110 - the brain has no event for it, and needs none
        await asyncio.sleep(0)


async def drained(brain: Brain) -> None:
    """Wait until the outbox is empty, parked rows aside."""
    await brain.applier.drained()
    while brain.applier.lag() > len(brain.applier.parked()):
        await asyncio.sleep(0)  # what was published just now has not woken it yet
        await brain.applier.drained()
