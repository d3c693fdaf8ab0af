"""Owning a data directory for one command: a server of its own when nobody serves, and the keys alone."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from service import app
from service.brain import Brain
from service.settings import Settings
from stores import outbox
from stores.keys import KeyRing
from stores.ledger import Ledger
from stores.lock import Owner
from stores.writer import Committed

MODEL_WAIT_S = 30.0
_PAUSE_S = 0.05


@asynccontextmanager
async def visiting(settings: Settings, *, with_model: bool, with_vdb: bool = False) -> AsyncIterator[Owner]:
    """`app.serving` on the ledger alone: Chroma and the model stay out unless they are asked for; the model
    is waited for then, up to MODEL_WAIT_S, and what was written without vectors is embedded first. What is
    left undone stays in the outbox, for whoever serves next."""
    brain = app.build_brain(settings)
    if not with_vdb:
        await brain.vdb.close()  # what is closed before the start never starts
    if not with_model:
        brain.embedder.close()
    async with app.serving(settings, port=0, brain=brain, mcp=False) as owner:
        if with_model:
            await _wait_for_vectors(brain)
        yield owner


@contextmanager
def key_ring(settings: Settings) -> Iterator[KeyRing]:
    """The keys of a data directory whose lock the caller holds. Raises StoreUnavailable."""
    ledger = Ledger(settings.data_directory / "ledger.sqlite3", app.now, _acknowledge)
    try:
        ledger.open()
        ring = KeyRing(ledger)
        ring.load()
        yield ring
    finally:
        ledger.stop_writing()
        ledger.close()


async def _wait_for_vectors(brain: Brain) -> None:
    def behind() -> bool:
        with brain.ledger.snapshot() as connection:
            return outbox.next_task(connection, "embed", brain.clock(), ()) is not None

    loop = asyncio.get_running_loop()
    end = loop.time() + MODEL_WAIT_S
    while loop.time() < end and brain.embedder.state != "failed":
        if brain.embedder.state == "ready" and not await asyncio.to_thread(behind):
            return
        await asyncio.sleep(_PAUSE_S)


def _acknowledge(committed: list[Committed]) -> None:
    """Nothing is held in memory that would have to be brought in step first."""
    for write in committed:
        write.future.set_result(write.value)
