"""The composition root: the only place where the parts are put together and a server is started."""

import asyncio
import contextlib
import gc
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from models.e5_weights import find_weights
from models.embedder import Embedder
from models.embedding import EXPORTS, Encoder, ExportMissing, ExportRefused
from models.identity import uuid7
from models.multilingual import open_encoder, split_name
from service import http_api
from service.brain import Brain
from service.callers import LOOPBACK, Callers
from service.checkup import keep_checking
from service.checkup import routes as doctor_routes
from service.connections import Connection
from service.expiry import keep_sweeping
from service.gate import Gate
from service.keys import routes as key_routes
from service.metrics import Metrics
from service.rate import RateLimit
from service.raw_cursors import routes as cursor_routes
from service.rebuilding_live import LiveRebuild
from service.rebuilding_live import routes as rebuild_routes
from service.rescan import rescan_in_background
from service.settings import Embedding, Settings, SettingsError
from service.transfer import routes as transfer_routes
from stores.keys import KeyRing
from stores.lock import DataDirectoryLock, Owner
from stores.vdb import Vdb

if TYPE_CHECKING:
    from service.mcp_tools import HttpDoor

log = structlog.get_logger()


class AlreadyOwned(Exception):
    """Another process owns the data directory. The text names it and the next move."""


def now() -> int:
    """Wall-clock time, epoch ms."""
    return time.time_ns() // 1_000_000


def build_brain(
    settings: Settings,
    *,
    load_encoder: Callable[[], Encoder] | None = None,
    vdb: Vdb | None = None,
    clock: Callable[[], int] = now,
    new_id: Callable[[int], str] = uuid7,
    load_model: Callable[[str], Encoder] | None = None,
) -> Brain:
    """A brain over the data directory, not started yet."""
    return Brain(
        settings,
        vdb or Vdb(settings.data_directory / "vdb"),
        Embedder(load_encoder or (lambda: encoder_for(settings))),
        clock,
        new_id,
        load_model=load_model or model_loader(settings),
    )


def build_app(brain: Brain, keys: KeyRing, token: str, *, mcp: bool = True) -> ASGIApp:
    """The HTTP door of a brain that somebody else starts and closes, and the MCP door at /mcp unless `mcp` is
    false. `keys` are loaded."""
    settings = brain.settings
    metrics = Metrics(brain)
    doors = [_mcp_door(brain)] if mcp else []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as open_doors:
            for door in doors:
                await open_doors.enter_async_context(door.run())
            yield
            await rebuild.close()

    rebuild = LiveRebuild(brain)
    internal = [
        *key_routes(keys),
        *doctor_routes(brain),
        *transfer_routes(brain),
        *cursor_routes(brain),
        *rebuild_routes(rebuild),
    ]
    app = Starlette(
        routes=[*http_api.routes(brain, metrics), *(door.route for door in doors), *internal],
        lifespan=lifespan,
        exception_handlers={404: http_api.refuse, 405: http_api.refuse, Exception: http_api.fail},
    )
    app.router.redirect_slashes = False
    limits = settings.limits
    rate = RateLimit(limits.requests_per_second, limits.burst) if limits.requests_per_second else None
    callers = Callers(keys, token, brain.clock, rate=rate, hosts=settings.server.allowed_hosts)
    return Gate(app, http_api.Shortcuts(brain), metrics, callers, brain.refusals)


def _mcp_door(brain: Brain) -> "HttpDoor":
    from service.mcp_tools import (  # half a second, for whoever serves
        build_server,
        http_call,
        streamable_http,
    )

    settings = brain.settings
    names = [*(f"[{name}]" if ":" in name else name for name in LOOPBACK), *settings.server.allowed_hosts]
    hosts = [host for name in names for host in (name, f"{name}:*")]
    return streamable_http(
        build_server(http_call(brain), settings.mcp.toolsets),
        hosts,
        [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts],
    )


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again after its shutdown, and a SIGTERM that drained
    everything would not end with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(
    settings: Settings,
    *,
    port: int,
    host: str = "127.0.0.1",
    brain: Brain | None = None,
    mcp: bool = True,
) -> AsyncIterator[Owner]:
    """A whole server in this process, on `port` (0: any), with /mcp unless `mcp` is false. The caller holds
    the lock of the data directory. Gives where it listens; ends with every acknowledged write on disk. Raises
    SettingsError."""
    brain = brain or build_brain(settings)
    token = secrets.token_urlsafe(32)
    with _bound(host, port) as listening:
        server = _Server(
            uvicorn.Config(
                await _started(brain, host, token, mcp=mcp),
                loop="uvloop",
                http=Connection,
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,  # `Callers` reads those that it needs
                timeout_keep_alive=settings.server.keep_alive_s,
                timeout_graceful_shutdown=settings.server.shutdown_s,
            )
        )
        task = asyncio.create_task(server.serve(sockets=[listening]))
        sweeping = asyncio.create_task(keep_sweeping(brain))
        checking = asyncio.create_task(keep_checking(brain))
        scanning = asyncio.create_task(rescan_in_background(brain))
        counting = asyncio.create_task(brain.refusals.keep_writing())
        try:
            while not server.started:
                if task.done():
                    raise RuntimeError("the HTTP server ended at its start") from task.exception()
                await asyncio.sleep(0.01)
            gc.freeze()  # what was imported stays: the first full collection would take 0.1 s to walk over it
            yield Owner(os.getpid(), _url(listening), token)
        finally:
            server.should_exit = True
            sweeping.cancel()
            checking.cancel()
            scanning.cancel()
            counting.cancel()
            await asyncio.gather(task, sweeping, checking, scanning, counting, return_exceptions=True)
            await brain.close()


async def _started(brain: Brain, host: str, token: str, *, mcp: bool) -> ASGIApp:
    """Start the brain; its doors. A start that fails leaves nothing behind."""
    await brain.start()
    try:
        keys = KeyRing(brain.ledger)
        await asyncio.to_thread(keys.load)
        if host not in LOOPBACK and not keys:
            raise SettingsError(
                f"server.host {host}: without keys only this machine is served: "
                f"{', '.join(sorted(LOOPBACK))}. Make a key first: brain keys create."
            )
        return build_app(brain, keys, token, mcp=mcp)
    except BaseException:
        await brain.close()
        raise


async def serve(settings: Settings, *, brain: Brain | None = None) -> None:
    """Own the data directory and serve until SIGTERM or SIGINT. Raises AlreadyOwned or SettingsError."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with owning(settings) as lock:
        where = settings.server
        async with serving(settings, port=where.port, host=where.host, brain=brain) as owner:
            lock.publish(owner)
            log.info("serving", url=owner.url, data=str(settings.data_directory), pid=owner.pid)
            await stop.wait()
            log.info("stopping: finishing what was begun")


@contextmanager
def owning(settings: Settings) -> Iterator[DataDirectoryLock]:
    """Hold the data directory's lock. Raises AlreadyOwned."""
    lock = DataDirectoryLock(settings.data_directory)
    if not lock.acquire():
        owner = lock.owner()
        who = f"process {owner.pid}, at {owner.url}" if owner else "another process that is starting"
        raise AlreadyOwned(
            f"{settings.data_directory} is in use by {who}. Call it there, stop it, or choose another --data."
        )
    try:
        yield lock
    finally:
        lock.release()


def encoder_for(settings: Settings) -> Encoder:
    """The serving encoder, exported first if need be. Runs in the embed thread; takes seconds."""
    model = settings.embedding.model
    target = export_directory(settings)
    with contextlib.suppress(ExportMissing, ExportRefused):
        return open_encoder(model, target)
    if split_name(model)[1]:
        find_weights()  # of a child that misses them one would only hear that it failed
    log.info("exporting the embedding model; until then search goes by words", target=str(target))
    # In a child: torch and sentence-transformers take ten seconds and half a gigabyte to import.
    command = [sys.executable, "-m", "service.export", model, str(target)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())
    return open_encoder(model, target)


def model_loader(settings: Settings) -> Callable[[str], Encoder]:
    """Gives the serving encoder of any model by its name or path, as `encoder_for` does of the one in the
    settings. It raises EmbeddingError."""

    def load(model: str) -> Encoder:
        other = settings.model_copy(update={"embedding": Embedding(model=model)})
        try:
            return encoder_for(settings if model == settings.embedding.model else other)
        except subprocess.CalledProcessError as fault:
            raise ExportRefused(f"the export ended with exit code {fault.returncode}; see above") from fault

    return load


def export_directory(settings: Settings) -> Path:
    """Where the ONNX export of the configured model lies."""
    if settings.embedding.export_directory:
        return Path(settings.embedding.export_directory).expanduser().absolute()
    return EXPORTS / Path(settings.embedding.model).name


def _bound(host: str, port: int) -> socket.socket:
    """A socket bound to an address, so that its port is known; nobody is answered before the server listens
    on it. Raises SettingsError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named: asyncio switches Nagle's delay of 40 ms an answer off only then.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except (OSError, UnicodeError) as error:
        bound.close()
        cause = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"server.port {port} on {host}: {cause}. Choose another --port or --host."
        ) from None
    return bound


def _url(listening: socket.socket) -> str:
    """Where this machine can call it: by loopback when it listens on every address."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
