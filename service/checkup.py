"""What the server does about Chroma by itself: it compares it with the ledger after a stop that was not clean
and at intervals, has what differs filled anew, and notices when its files vanish. Reads and search go on
meanwhile, exactly, from the ledger. And the door by which `brain doctor` asks a running server."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from models import verbatim
from models.errors import BrainError, TooLarge, invalid
from models.scope import Caller
from service.brain import Brain
from service.responses import document, problem
from stores.refill import Shards
from stores.shard_checks import SHARDS

log = structlog.get_logger()

PATH = "/internal/doctor"
WATCH_S = 2.0
RETRY_S = 60.0  # when Chroma did not answer
MAX_BODY = 1024


class Watch:
    """Notices directories of shards that vanish, or are other ones, while the server runs: Chroma would go on
    with the files that it has open, and lose what it is given."""

    def __init__(self, shards: Shards):
        self._shards = shards
        self._seen: dict[int, tuple[str, int]] = {}  # name and inode

    def vanished(self) -> list[int]:
        """The shards whose directory is not the one that was there at the last look."""
        gone: list[int] = []
        for shard in range(SHARDS):
            name, inode = self._shards.name(shard), self._inode(shard)
            before = self._seen.pop(shard, None)
            if inode is not None:
                self._seen[shard] = (name, inode)
            if before is not None and before[0] == name and before[1] != inode:
                gone.append(shard)
        due = self._shards.due()
        return [shard for shard in gone if shard not in due]

    def _inode(self, shard: int) -> int | None:
        try:
            return self._shards.directory(shard).stat().st_ino
        except OSError:
            return None


async def keep_checking(brain: Brain, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Look at the directories every WATCH_S, and at what is in them when it is time, until cancelled. `sleep`
    waits seconds."""
    now = asyncio.get_running_loop().time
    interval = brain.settings.doctor.interval_s
    watch = Watch(brain.shards)
    due = now() + interval if brain.in_step else now()
    while True:
        try:
            if gone := watch.vanished():
                log.error("directories of Chroma vanished; filling them anew", shards=gone)
                await brain.doctor.refill(gone)
            if now() >= due and (interval or not brain.in_step) and brain.vdb.available:
                due = now() + (interval if await check(brain) else RETRY_S)
        except Exception:
            log.exception("Chroma could not be checked")
            due = now() + RETRY_S
        await sleep(WATCH_S)


async def check(brain: Brain) -> bool:
    """Bring Chroma in step with the ledger. False when it did not answer. Raises StoreUnavailable."""
    found = await brain.doctor.heal()
    if found is None:
        return False
    brain.in_step = True
    if found:
        log.warning("Chroma was brought in step with the ledger", found=[one.what for one in found])
    return True


def routes(brain: Brain) -> list[Route]:
    """The internal route; the gate lets only the owner's token through to it."""

    async def doctor(request: Request) -> Response:
        caller: Caller = request.state.caller
        try:
            order = _order(await _body(request))
            look = brain.doctor.repair if order["repair"] else brain.doctor.examine
            report = await look(audit=order["audit"])
        except BrainError as refusal:
            return problem(refusal, caller.request_id)
        return document(report.document())

    return [Route(PATH, doctor, methods=["POST"])]


def _order(body: bytes) -> dict[str, bool]:
    order = verbatim.parse(body)
    if not isinstance(order, dict):
        raise invalid("body", "must be a JSON object")
    wanted = {"audit": False} | order
    for name in ("repair", "audit"):
        if not isinstance(wanted.get(name), bool):
            raise invalid(name, "must be true or false")
    return wanted


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise TooLarge(f"The body is over the limit of {MAX_BODY} bytes.")
    return body
