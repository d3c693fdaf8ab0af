"""`brain doctor` on a data directory that nobody owns: the ledger and Chroma, without a server or a model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from models.embedder import CannotEmbed
from models.errors import StoreUnavailable
from models.token_codes import Embedded
from service import app
from service.settings import Settings
from stores.applier import Applier
from stores.doctor import Doctor, Report, unreadable
from stores.ledger import Ledger
from stores.ledger_checks import FINGERPRINT
from stores.lock import LEDGER
from stores.refill import Shards
from stores.vdb import Vdb
from stores.writer import Committed


async def examine(settings: Settings, *, repair: bool, audit: bool = False) -> dict[str, Any]:
    """The report, JSON-ready. The caller holds the lock of the data directory."""
    try:
        async with _doctor(settings, working=repair) as doctor:
            report = await (doctor.repair(audit=audit) if repair else doctor.examine(audit=audit))
    except StoreUnavailable as fault:  # it can't even be opened
        report = Report({}, 0, [unreadable("integrity", fault)])
    return report.document()


@asynccontextmanager
async def _doctor(settings: Settings, *, working: bool) -> AsyncIterator[Doctor]:
    """Over the files as they lie there: nothing is tidied up before it was looked at. Only when `working` is
    anything written, to Chroma too. What needs the model waits for a server. Raises StoreUnavailable."""
    directory = settings.data_directory
    ledger = Ledger(directory / LEDGER, app.now, _acknowledge)
    vdb = Vdb(directory / "vdb")
    shards = Shards(ledger, vdb, directory / "vdb")
    async with AsyncExitStack() as last_first:
        last_first.push_async_callback(asyncio.to_thread, ledger.close)
        last_first.push_async_callback(vdb.close)
        last_first.push_async_callback(asyncio.to_thread, ledger.stop_writing)
        await asyncio.to_thread(ledger.open)
        await asyncio.to_thread(lambda: shards.open(tidy=False))
        stored = ledger.setting(FINGERPRINT)
        applier = Applier(ledger, vdb, _without_model, lambda: None, lambda: stored, shards, app.now)
        last_first.push_async_callback(applier.close)
        if working:
            applier.start()
        yield Doctor(ledger, vdb, shards, applier, None, app.now)


async def _without_model(_: str) -> Embedded:
    raise CannotEmbed("there is no model here", whole=True)


def _acknowledge(committed: list[Committed]) -> None:
    """Nothing is held in memory that would have to be brought in step first."""
    for write in committed:
        write.future.set_result(write.value)
