"""A connection to the owner of a data directory for its internal routes, as the owner for the time when there
is none."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx

from service.cli_options import data_lock
from service.client import LocalOwner
from service.settings import Settings
from stores.lock import Owner

WAIT_S = 600.0  # for one answer; a large batch on a slow machine takes its time


@asynccontextmanager
async def owner_door(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """Calls carry the owner's token. Chroma and the model stay out when this process becomes the owner.
    Raises OwnerUnreachable."""

    def visit() -> AbstractAsyncContextManager[Owner]:
        from service.visit import visiting  # the whole server: only when nobody else has it

        return visiting(settings, with_model=False)

    source = LocalOwner(data_lock(settings), visit)
    try:
        owner = await source.find()
        headers = {"Authorization": f"Bearer {owner.token}"}
        limits = httpx.Timeout(WAIT_S, connect=5.0)
        async with httpx.AsyncClient(
            base_url=owner.url, headers=headers, trust_env=False, timeout=limits
        ) as http:
            yield http
    finally:
        await source.leave()
