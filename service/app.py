"""The composition root: the only place where the parts are put together and a server is started."""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from models.embedder import Embedder
from models.embedding import EXPORTS, Encoder, ExportMissing, ExportRefused, OnnxEncoder
from models.identity import uuid7
from service import http_api
from service.brain import Brain
from service.gate import LOOPBACK, Gate
from service.mcp_tools import build_server, http_call, streamable_http
from service.metrics import Metrics
from service.settings import Settings, SettingsError
from stores.lock import DataDirectoryLock, Owner
from stores.vdb import Vdb

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
) -> Brain:
    """A brain over the data directory, not started yet."""
    return Brain(
        settings,
        vdb or Vdb(settings.data_directory / "vdb"),
        Embedder(load_encoder or (lambda: encoder_for(settings))),
        clock,
        new_id,
    )


def build_app(brain: Brain, token: str) -> ASGIApp:
    """The HTTP and MCP doors of a brain that somebody else starts and closes."""
    metrics = Metrics(brain)
    hosts = [f"[{name}]:*" if ":" in name else f"{name}:*" for name in LOOPBACK]
    door = streamable_http(
        build_server(http_call(brain), brain.settings.mcp.toolsets),
        hosts,
        [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts],
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with door.run():
            yield

    app = Starlette(
        routes=[*http_api.routes(brain, metrics), door.route],
        lifespan=lifespan,
        exception_handlers={404: http_api.refuse, 405: http_api.refuse, Exception: http_api.fail},
    )
    app.router.redirect_slashes = False
    return Gate(app, metrics, token)


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would raise them again after its shutdown, and a SIGTERM that drained
    everything would not end with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(settings: Settings, *, port: int, brain: Brain | None = None) -> AsyncIterator[Owner]:
    """A whole server in this process, on `port` (0: any). The caller holds the lock of the data directory.
    Gives where it listens; ends with every acknowledged write on disk."""
    brain = brain or build_brain(settings)
    token = secrets.token_urlsafe(32)
    with _listen(settings.server.host, port) as listening:
        host, bound = listening.getsockname()[:2]
        server = _Server(
            uvicorn.Config(
                build_app(brain, token),
                loop="uvloop",
                http="httptools",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=settings.server.keep_alive_s,
                timeout_graceful_shutdown=settings.server.shutdown_s,
            )
        )
        await brain.start()
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            while not server.started:
                if task.done():
                    raise RuntimeError("the HTTP server ended at its start") from task.exception()
                await asyncio.sleep(0.01)
            shown = f"[{host}]" if ":" in host else host
            yield Owner(os.getpid(), f"http://{shown}:{bound}", token)
        finally:
            server.should_exit = True
            await asyncio.gather(task, return_exceptions=True)
            await brain.close()


async def serve(settings: Settings, *, brain: Brain | None = None) -> None:
    """Own the data directory and serve until SIGTERM or SIGINT. Raises AlreadyOwned or SettingsError."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with owning(settings) as lock:
        async with serving(settings, port=settings.server.port, brain=brain) as owner:
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
        return OnnxEncoder(model, target)
    log.info("exporting the embedding model; until then search goes by words", target=str(target))
    # In a child: torch and sentence-transformers take ten seconds and half a gigabyte to import.
    command = [sys.executable, "-m", "service.export", model, str(target)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())
    return OnnxEncoder(model, target)


def export_directory(settings: Settings) -> Path:
    """Where the ONNX export of the configured model lies."""
    if settings.embedding.export_directory:
        return Path(settings.embedding.export_directory).expanduser().absolute()
    return EXPORTS / Path(settings.embedding.model).name


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; bound by us, so that its port is known. Raises SettingsError."""
    if host not in LOOPBACK:
        raise SettingsError(
            f"server.host {host}: without keys only this machine is served: {', '.join(sorted(LOOPBACK))}."
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named: asyncio switches Nagle's delay of 40 ms an answer off only then.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise SettingsError(
            f"server.port {port} on {host}: {error.strerror}. Choose another --port."
        ) from None
    return listening
