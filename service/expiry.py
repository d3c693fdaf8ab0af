"""What the service does by itself: it archives what has come to its end. Reads never do."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from service.brain import Brain
from stores import expiry

log = structlog.get_logger()

EVERY_S = 60
AT_ONCE = 100  # memories in one write


async def sweep(brain: Brain) -> int:
    """Archive every active memory that is past its end, with the reason "expired". Returns how many. Raises
    StoreUnavailable."""
    now = brain.clock()
    total = 0
    while True:
        found = await asyncio.to_thread(expiry.find_expired, brain.ledger, now, AT_ONCE)
        count: int = await brain.write(partial(expiry.archive, found=found, now=now)) if found else 0
        total += count
        if not count:
            return total


async def keep_sweeping(brain: Brain, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Sweep now and every minute, until cancelled. `sleep` waits seconds."""
    while True:
        try:
            if count := await sweep(brain):
                log.info("expired memories were archived", count=count)
        except Exception:
            log.exception("expired memories could not be archived")
        await sleep(EVERY_S)
