"""From the writer's thread to the event loop: publishes what was committed, in order, and only then
acknowledges it, so that a writer reads its own write."""

import asyncio
from collections.abc import Callable

import structlog

from stores.changes import Change
from stores.writer import Committed

log = structlog.get_logger()

SLICE = 8  # changes applied between two yields, so that a bulk write never holds up a read by id


class Publisher:
    """`apply` takes one change on the event loop; `after` is called when a group has been published."""

    def __init__(self, apply: Callable[[Change], None], after: Callable[[], None]):
        self._apply = apply
        self._after = after
        self._queue: asyncio.Queue[list[Committed]] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run())

    def __call__(self, committed: list[Committed]) -> None:
        """Called in the writer's thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._queue.put_nowait, committed)

    async def close(self) -> None:
        """Publish what is queued, then stop. Call it after the writer has ended."""
        await self._queue.join()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        done = 0
        while True:
            for write in await self._queue.get():
                for change in write.changes:
                    try:
                        self._apply(change)
                    except Exception:
                        log.exception("a change was not published")
                    done += 1
                    if done % SLICE == 0:
                        await asyncio.sleep(0)
                write.future.set_result(write.value)
            self._after()
            self._queue.task_done()
