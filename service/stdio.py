"""`brain mcp`: the MCP door over stdin and stdout. The process is a thin client of the owner of the data
directory, becomes the owner when there is none, and goes to the next owner when the present one leaves."""

import asyncio
import os
import signal
import threading
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from io import TextIOWrapper
from types import TracebackType
from typing import Any, BinaryIO, cast

import anyio
import mcp_types as types
import structlog
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from models.errors import BrainError, StoreUnavailable
from service.client import OwnerClient, OwnerSource, OwnerUnreachable, credential_headers
from service.mcp_tools import Call, Context, build_server, choose
from service.operations import BY_NAME, Operation

log = structlog.get_logger()


class OwnerConnection:
    """A context that gives a `Call`, which sends each tool call to the owner, whoever that is by then."""

    def __init__(
        self,
        source: OwnerSource,
        environment: Mapping[str, str],
        *,
        pauses: Sequence[float] = (0, 0.1, 0.5, 2, 5),
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ):
        """`environment` holds the credentials (client.credential_headers; ValueError). A call is tried
        once after each of `pauses` (seconds) until an answer comes; each time, the owner is looked for
        again."""
        self._source = source
        self._headers = credential_headers(environment)
        self._pauses = pauses
        self._new_id = new_id
        self._route: asyncio.Task[OwnerClient] | None = None
        self._clients = AsyncExitStack()

    async def __aenter__(self) -> Call:
        self._ensure()  # the owner starts meanwhile; nobody waits for it before the first call
        return self.call

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._route is not None:
            self._route.cancel()
            await asyncio.wait({self._route})
        await self._clients.aclose()
        await self._source.leave()

    async def call(self, name: str, arguments: dict[str, Any], _: Context) -> tuple[int, dict[str, Any]]:
        """The owner's answer, or the problem document of what hindered it.

        A repeat after a lost answer must not write twice, so every write gets an idempotency key.
        """
        operation = BY_NAME[name]
        arguments = self._repeatable(operation, arguments)
        try:
            return await self._send(operation, arguments)
        except BrainError as refusal:
            return refusal.status, refusal.document(self._new_id())

    async def _send(self, operation: Operation[Any], arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        detail = ""
        sent = False
        for pause in self._pauses:
            await asyncio.sleep(pause)
            route = self._ensure()
            try:
                client = await asyncio.shield(route)
            except OwnerUnreachable as fault:  # it has done its own waiting
                detail = str(fault)
                break
            try:
                return await client.call(operation, arguments)
            except OwnerUnreachable as fault:
                log.warning("the owner gave no answer", operation=operation.name, detail=str(fault))
                detail, sent = str(fault), sent or fault.sent
            if self._route is route:
                self._route = None
            if sent and not _harmless_twice(operation, arguments):
                break
        if sent and not operation.annotations.read_only:
            key = arguments.get("idempotency_key")
            detail += " The call may have been carried out"
            detail += f"; repeat it with idempotency_key '{key}' to be sure." if key else "."
        raise StoreUnavailable(f"The memory can't be reached: {detail}", retry_after=1)

    def _ensure(self) -> asyncio.Task[OwnerClient]:
        """The task that finds the owner, shared by all calls; a new one when the last found none."""
        if self._route is None or (self._route.done() and self._route.exception() is not None):
            self._route = asyncio.create_task(self._connect())
            # Looked at by the next call, which may never come: not a fault to complain about at exit.
            self._route.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._route

    async def _connect(self) -> OwnerClient:
        owner = await self._source.find()
        headers = {"Authorization": f"Bearer {owner.token}"} if owner.token else {}
        client = OwnerClient(owner.url, headers | self._headers)
        # Closed at the end and not when it is given up: other calls may still wait for its answers.
        self._clients.push_async_callback(client.aclose)
        return client

    def _repeatable(self, operation: Operation[Any], arguments: dict[str, Any]) -> dict[str, Any]:
        keyed = "idempotency_key" in operation.input.model_fields
        if operation.annotations.read_only or not keyed or arguments.get("idempotency_key") is not None:
            return arguments
        return arguments | {"idempotency_key": self._new_id()}


def _harmless_twice(operation: Operation[Any], arguments: dict[str, Any]) -> bool:
    hints = operation.annotations
    return hints.read_only or hints.idempotent or arguments.get("idempotency_key") is not None


async def serve_stdio(
    connect: AbstractAsyncContextManager[Call], toolsets: Collection[str], *, grace: float = 30.0
) -> None:
    """Serve one client on stdin and stdout until its input ends, or SIGTERM or SIGINT comes.

    After the end of input, the requests that were read are answered, for `grace` seconds at the most; a
    signal doesn't wait for them. From the call on, and for good, fd 1 is stderr and fd 0 is empty, so that
    stdout carries the protocol and nothing else. Raises ValueError for an unknown toolset.
    """
    choose(toolsets)  # refused before anything is touched
    wire_in, wire_out = _take_wire()
    lines = _Lines(wire_in)
    pending = _Pending()

    def stop() -> None:
        lines.end()
        pending.give_up()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        async with (
            connect as call,
            stdio_server(cast("anyio.AsyncFile[str]", lines), wire_out) as (read, write),
            _draining(read, write, pending, grace) as streams,
        ):
            server = build_server(call, toolsets)
            await server.run(*streams, server.create_initialization_options())
    except* (BrokenPipeError, anyio.BrokenResourceError):
        log.warning("the client left without waiting for its answers")


def _take_wire() -> tuple[BinaryIO, "anyio.AsyncFile[str]"]:
    """Our own ends of stdin and stdout. The SDK diverts fd 0 and 1 too, but gives them back when its
    transport ends, when a C library has yet to flush what it printed meanwhile."""
    wire_in = os.fdopen(os.dup(0), "rb")
    wire_out = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return wire_in, anyio.wrap_file(TextIOWrapper(wire_out, encoding="utf-8"))


class _Lines:
    """The lines of a file, read by a thread that nobody has to wait for: a blocked read can't be cancelled,
    and the SDK's own would keep the process from ending at a signal."""

    def __init__(self, file: BinaryIO):
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        pump = threading.Thread(target=self._pump, args=(file, asyncio.get_running_loop()), daemon=True)
        pump.start()

    def end(self) -> None:
        """Nothing more is read after what is here already."""
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[str]:
        while (line := await self._queue.get()) is not None:
            yield line.decode("utf-8", errors="replace")

    def _pump(self, file: BinaryIO, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop is closed: the process is ending
            for line in iter(file.readline, b""):
                loop.call_soon_threadsafe(self._queue.put_nowait, line)
            loop.call_soon_threadsafe(self._queue.put_nowait, None)


class _Pending:
    """The requests that were read and are not answered yet."""

    def __init__(self) -> None:
        self._ids: set[types.RequestId] = set()
        self._given_up = False
        self._none_left = asyncio.Event()
        self._none_left.set()

    def read(self, item: SessionMessage | Exception) -> None:
        if isinstance(item, Exception) or self._given_up:
            return
        message = item.message
        if isinstance(message, types.JSONRPCRequest):
            self._ids.add(message.id)
            self._none_left.clear()
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settle((message.params or {}).get("requestId"))  # such a request is never answered

    def written(self, item: SessionMessage) -> None:
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._settle(item.message.id)

    def give_up(self) -> None:
        """From now on, wait for none."""
        self._given_up = True
        self._ids.clear()
        self._none_left.set()

    async def wait(self) -> None:
        await self._none_left.wait()

    def _settle(self, request_id: types.RequestId | None) -> None:
        if request_id is not None:
            self._ids.discard(request_id)
        if not self._ids:
            self._none_left.set()


@asynccontextmanager
async def _draining(
    read: AsyncIterable[SessionMessage | Exception],
    write: ObjectSendStream[SessionMessage],
    pending: _Pending,
    grace: float,
) -> AsyncIterator[tuple[ObjectReceiveStream[SessionMessage | Exception], ObjectSendStream[SessionMessage]]]:
    """The same two streams, but the end of input comes only when nothing is pending, or after `grace`
    seconds: the SDK cancels what is under way as soon as it sees the end."""
    to_server, server_reads = anyio.create_memory_object_stream[SessionMessage | Exception]()
    server_writes, from_server = anyio.create_memory_object_stream[SessionMessage]()

    async def inward() -> None:
        async with to_server:
            async for item in read:
                pending.read(item)
                await to_server.send(item)
            with anyio.move_on_after(grace):
                await pending.wait()

    async def outward() -> None:
        async with write:
            async for item in from_server:
                await write.send(item)
                pending.written(item)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(inward)
        tasks.start_soon(outward)
        yield server_reads, server_writes
