"""`brain mcp`: finding, becoming and changing the owner, and a real process on stdin and stdout."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, Any, cast

import pytest
from mcp import Client, StdioServerParameters

from service.client import LocalOwner, OwnerUnreachable, RemoteOwner
from service.mcp_tools import Call, Context, build_server
from service.stdio import OwnerConnection
from stores.lock import DataDirectoryLock, Owner
from tests.test_client import FakeOwner, closed_port
from tests.test_mcp_server import both_eras

pytestmark = pytest.mark.anyio

AT_ONCE = (0, 0, 0)  # pauses between attempts
NO_CONTEXT = cast(Context, None)  # the owner needs none: it has the credential


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def connection(
    directory: Path, start: Callable[[], AbstractAsyncContextManager[Owner]], **environment: str
) -> OwnerConnection:
    source = LocalOwner(DataDirectoryLock(directory), start, polls=3, pause=0)
    return OwnerConnection(source, environment, pauses=AT_ONCE, new_id=lambda: "new-id")


async def get(call: Call) -> tuple[int, dict[str, Any]]:
    return await call("brain_memory_get", {"memory_id": "m"}, NO_CONTEXT)


async def test_the_first_process_becomes_the_owner_and_the_second_goes_through_it(tmp_path: Path) -> None:
    first, second = FakeOwner("first"), FakeOwner("second")
    async with connection(tmp_path, first.start) as call:
        assert await get(call) == (200, {"owner": "first"})
        async with connection(tmp_path, second.start) as other:
            assert await get(other) == (200, {"owner": "first"})
    assert second.bodies == []


async def test_when_the_owner_leaves_the_next_call_takes_the_lock(tmp_path: Path) -> None:
    first, second = FakeOwner("first"), FakeOwner("second")
    leaving = connection(tmp_path, first.start)
    call = await leaving.__aenter__()
    await get(call)
    async with connection(tmp_path, second.start) as other:
        assert await get(other) == (200, {"owner": "first"})
        await leaving.__aexit__(None, None, None)
        assert await get(other) == (200, {"owner": "second"})


async def test_calls_at_the_same_time_start_one_owner(tmp_path: Path) -> None:
    owner = FakeOwner("only")
    starts = []

    @asynccontextmanager
    async def start() -> AsyncIterator[Owner]:
        starts.append(1)
        async with owner.start() as card:
            yield card

    async with connection(tmp_path, start) as call:
        answers = await asyncio.gather(*(get(call) for _ in range(5)))
    assert answers == [(200, {"owner": "only"})] * 5
    assert len(starts) == 1


async def test_the_directory_is_free_again_when_the_owner_has_left(tmp_path: Path) -> None:
    async with connection(tmp_path, FakeOwner("first").start) as call:
        await get(call)
    lock = DataDirectoryLock(tmp_path)
    assert lock.owner() is None
    assert lock.acquire()
    lock.release()


async def test_an_owner_that_cannot_start_is_a_503_and_frees_the_directory(tmp_path: Path) -> None:
    @asynccontextmanager
    async def start() -> AsyncIterator[Owner]:
        raise OSError("the disk is full")
        yield

    async with connection(tmp_path, start) as call:
        status, problem = await get(call)
        assert DataDirectoryLock(tmp_path).acquire()
    assert (status, problem["code"], problem["retryable"]) == (503, "store_unavailable", True)
    assert "the disk is full" in problem["detail"]
    assert problem["request_id"] == "new-id"


async def test_an_owner_that_never_listens_is_a_503(tmp_path: Path) -> None:
    starting = DataDirectoryLock(tmp_path)
    assert starting.acquire()
    async with connection(tmp_path, FakeOwner("never").start) as call:
        status, problem = await get(call)
    assert status == 503
    assert "does not listen yet" in problem["detail"]


async def test_writes_get_an_idempotency_key_and_reads_do_not(tmp_path: Path) -> None:
    owner = FakeOwner("first")
    async with connection(tmp_path, owner.start) as call:
        await call("brain_memory_add", {"content": "x"}, NO_CONTEXT)
        await call("brain_memory_add", {"content": "x", "idempotency_key": None}, NO_CONTEXT)
        await call("brain_memory_add", {"content": "x", "idempotency_key": "mine"}, NO_CONTEXT)
        await call("brain_memory_search", {"query": "x"}, NO_CONTEXT)
    keys = [body.get("idempotency_key", "none") for body in owner.bodies]
    assert keys == ["new-id", "new-id", "mine", "none"]


async def test_a_write_whose_answer_is_lost_is_repeated_with_the_same_key(tmp_path: Path) -> None:
    owner = FakeOwner("first", losing=1)
    async with connection(tmp_path, owner.start) as call:
        assert await call("brain_memory_add", {"content": "x"}, NO_CONTEXT) == (200, {"owner": "first"})
    assert owner.bodies == [{"content": "x", "idempotency_key": "new-id"}] * 2


async def test_a_write_without_any_answer_tells_the_key_to_repeat_it_with(tmp_path: Path) -> None:
    owner = FakeOwner("first", losing=99)
    async with connection(tmp_path, owner.start) as call:
        status, problem = await call("brain_memory_add", {"content": "x"}, NO_CONTEXT)
    assert status == 503
    assert "repeat it with idempotency_key 'new-id'" in problem["detail"]
    assert len(owner.bodies) == len(AT_ONCE)


async def test_bad_arguments_are_a_422_as_over_http() -> None:
    remote = OwnerConnection(RemoteOwner(closed_port()), {}, pauses=AT_ONCE, new_id=lambda: "new-id")
    async with remote as call:
        status, problem = await call("brain_memory_get", {"memory": "m"}, NO_CONTEXT)
    assert (status, problem["code"], problem["request_id"]) == (422, "invalid_argument", "new-id")


async def test_a_server_at_a_given_address_that_is_down_is_a_503() -> None:
    async with OwnerConnection(RemoteOwner(closed_port()), {}, pauses=AT_ONCE) as call:
        status, problem = await get(call)
    assert (status, problem["code"]) == (503, "store_unavailable")


async def test_a_local_owner_is_called_with_its_token_unless_there_is_a_key(tmp_path: Path) -> None:
    owner = FakeOwner("first")
    async with connection(tmp_path, owner.start, BRAIN_USER="ann") as call:
        await get(call)
        async with connection(tmp_path, owner.start, BRAIN_API_KEY="k", BRAIN_AGENT="smith") as other:
            await get(other)
    first, second = owner.headers
    assert (first["authorization"], first["x-brain-user"]) == ("Bearer token-of-first", "ann")
    assert (second["authorization"], second["x-brain-agent"]) == ("Bearer k", "smith")


@both_eras
async def test_the_tools_are_listed_before_there_is_an_owner(era: str) -> None:
    class Never:
        async def find(self) -> Owner:
            await asyncio.Event().wait()
            raise OwnerUnreachable("never", sent=False)

        async def leave(self) -> None:
            pass

    async with OwnerConnection(Never(), {}) as call, Client(build_server(call, ["core"]), mode=era) as client:
        assert (await client.list_tools()).tools


# A process whose owner prints wherever it can, and answers when a byte comes in on the fd of argv[1].
SCRIPT = """
import asyncio, os, subprocess, sys
from contextlib import asynccontextmanager
from service.stdio import serve_stdio

def litter():
    print("printed")
    os.write(1, b"written to fd 1")
    subprocess.run(["echo", "from a child"])

@asynccontextmanager
async def connect():
    released = asyncio.Event()
    if len(sys.argv) > 1:
        asyncio.get_running_loop().add_reader(int(sys.argv[1]), released.set)
    else:
        released.set()

    async def call(name, arguments, context):
        litter()
        await released.wait()
        return 409, {"name": name, "arguments": arguments}

    litter()
    yield call
    litter()
    print("left", file=sys.stderr)

asyncio.run(serve_stdio(connect(), ["core"]))
"""
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "brain_memory_get", "arguments": {"memory_id": "m"}},
}


@contextmanager
def process(*arguments: str, pass_fds: tuple[int, ...] = ()) -> Iterator[tuple[Popen[str], IO[str], IO[str]]]:
    """The process, its stdin and its stdout."""
    command = [sys.executable, "-c", SCRIPT, *arguments]
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=pass_fds, text=True) as started:
        assert started.stdin and started.stdout
        try:
            yield started, started.stdin, started.stdout
        finally:
            started.kill()  # no effect on one that has ended


def left(started: Popen[str]) -> bool:
    """The process ended by itself, after it had left its owner, and complained of nothing."""
    assert started.stderr
    errors = started.stderr.read()
    return started.wait(60) == 0 and "Traceback" not in errors and errors.rstrip().endswith("left")


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


@both_eras
async def test_a_real_process_answers_and_its_stdout_carries_nothing_but_the_protocol(era: str) -> None:
    parameters = StdioServerParameters(command=sys.executable, args=["-c", SCRIPT])
    async with Client(parameters, mode=era) as client:
        assert (await client.list_tools()).tools
        result = await client.call_tool("brain_memory_get", {"memory_id": "é"})
    assert result.structured_content == {"name": "brain_memory_get", "arguments": {"memory_id": "é"}}


def test_the_end_of_input_waits_for_the_answers_and_ends_the_process_cleanly() -> None:
    with pipe() as (waits, release), process(str(waits), pass_fds=(waits,)) as (started, stdin, stdout):
        stdin.write(f"{json.dumps(INITIALIZE)}\n{json.dumps(CALL)}\n")
        stdin.close()
        os.write(release, b"!")
        lines = [json.loads(line) for line in stdout]
        assert left(started)
    assert [line["id"] for line in lines] == [0, 1]
    assert lines[1]["result"]["structuredContent"]["name"] == "brain_memory_get"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_cleanly_with_its_input_open_and_a_call_under_way(number: int) -> None:
    with pipe() as (waits, _), process(str(waits), pass_fds=(waits,)) as (started, stdin, stdout):
        stdin.write(f"{json.dumps(INITIALIZE)}\n{json.dumps(CALL)}\n")
        stdin.flush()
        assert json.loads(stdout.readline())["id"] == 0
        started.send_signal(number)
        rest = [json.loads(line) for line in stdout]
        assert left(started)
    assert all(line["id"] == 1 and "error" in line for line in rest)


def test_a_client_that_leaves_without_reading_ends_the_process_cleanly() -> None:
    with process() as (started, stdin, stdout):
        stdout.close()
        stdin.write(f"{json.dumps(INITIALIZE)}\n{json.dumps(CALL)}\n")
        stdin.close()
        assert started.wait(60) == 0
