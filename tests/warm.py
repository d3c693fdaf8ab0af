"""Processes of ours that start at once: forked from one that has the imports behind it.

`start("service.cli", "stats")` is `python -m service.cli stats` in every way (a process with its own pid,
arguments, environment, standard streams and exit code) but for two seconds of imports, of which the tests
would need hundreds. That the imports work is shown by those that start cold: a first try in
tests/test_cli.py, every `brain mcp`, and `brain serve` in tests/test_cli_keys.py.

The one with the imports is `python -m tests.warm SOCKET`. It is started when it is first needed and ends with
us. It has no threads of Python's and no event loop, so that a fork is whole.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
IMPORTED = (  # all that is imported by then, the modules first that are imported late
    "alembic.command",
    "anyio._backends._asyncio",
    "httpcore",
    "multiprocessing.shared_memory",
    "rich._emoji_codes",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "typer.rich_utils",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.auto",
    "service.cli",
    "service.visit",
    "service.client",
    "service.examination",
    "service.rebuilding",
    "service.stdio",
    "tests.kill_server",
    "tests.kill_rebuild",
    "tests.faults.fault_server",
)


class Process:
    """What `subprocess.Popen` is, as far as the tests need it; the streams are the caller's."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r")
        self.pid = int(self._lines.readline())
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; that of a signal is negative. TimeoutError after so many seconds."""
        code = self._ended(timeout)
        if code is None:
            raise TimeoutError(f"process {self.pid} lives on after {timeout} s")
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            self.returncode = int(self._lines.readline())
            self._connection.close()
        return self.returncode


def start(
    module: str,
    *arguments: str,
    env: Mapping[str, str],
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    cwd: Path | None = None,
) -> Process:
    """`python -m module arguments…`, in the repository unless elsewhere; streams are file descriptors, those
    that are not given lead to /dev/null. It is killed when its Process is forgotten."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address())
    order = {"module": module, "arguments": arguments, "env": dict(env), "cwd": str(cwd or ROOT)}
    with Path(os.devnull).open("r+b") as nothing:
        streams = [nothing.fileno() if one is None else one for one in (stdin, stdout, stderr)]
        socket.send_fds(connection, [b"!"], streams)
    connection.sendall(json.dumps(order).encode() + b"\n")
    return Process(connection)


def run(
    module: str, *arguments: str, env: Mapping[str, str], given: bytes, timeout: float
) -> "subprocess.CompletedProcess[bytes]":
    """To its end: the exit code and what it wrote. TimeoutError after `timeout` seconds."""
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        stdin.write(given)
        stdin.seek(0)
        process = start(
            module,
            *arguments,
            env=env,
            stdin=stdin.fileno(),
            stdout=stdout.fileno(),
            stderr=stderr.fileno(),
        )
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        written = [_read(stdout), _read(stderr)]
    return subprocess.CompletedProcess([module, *arguments], code, *written)


def put_command(folder: Path, name: str, module: str) -> None:
    """A command for a shell, in this folder: `name arguments…` is `python -m module arguments…`, in the
    shell's directory, with its environment and streams."""
    file = folder / name
    text = _COMMAND.format(python=sys.executable, address=address(), module=module)
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)


_COMMAND = """#!{python} -IS
import json, os, socket, sys

connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
order = dict(module={module!r}, arguments=sys.argv[1:], env=dict(os.environ), cwd=os.getcwd())
socket.send_fds(connection, [b"!"], [0, 1, 2])
connection.sendall(json.dumps(order).encode() + b"\\n")
_, code = connection.makefile("r")
sys.exit(int(code) if int(code) >= 0 else 128 - int(code))
"""


@functools.cache
def address() -> str:
    """Of the socket of the process that has the imports, once it has them."""
    path = str(Path(tempfile.mkdtemp(prefix="warm-")) / "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", path], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )

    assert process.stdin is not None and process.stdout is not None
    atexit.register(process.wait)
    atexit.register(process.stdin.close)  # first
    assert process.stdout.readline() == b"warm\n"
    return path


def _read(file: Any) -> bytes:
    file.seek(0)
    written: bytes = file.read()
    return written


# In the process that has the imports


def serve(path: str) -> None:
    """Fork for each connection, until our parent is gone. Returns in the new process, as what it is to be."""
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(64)
        os.write(1, b"warm\n")
        readers: list[int] = [0, door.fileno()]
        while True:
            ready = select.select(readers, [], [])[0]
            if 0 in ready:
                shutil.rmtree(Path(path).parent)
                os._exit(0)
            connection, _ = door.accept()
            if os.fork() == 0:
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as lines:
        order = json.loads(lines.readline())
    if (child := os.fork()) != 0:
        for stream in streams:
            os.close(stream)
        _watch(child, connection)
    connection.close()
    become(order, streams)


def _watch(child: int, connection: socket.socket) -> None:
    """Tell the child's pid and then its exit code; kill it when nobody listens any more."""
    connection.sendall(b"%d\n" % child)
    ended = os.pidfd_open(child)
    if ended not in select.select([ended, connection.fileno()], [], [])[0]:
        os.kill(child, signal.SIGKILL)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.sendall(b"%d\n" % code)
    os._exit(0)


def become(order: dict[str, Any], streams: list[int]) -> None:
    """Be that process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.argv = [order["module"], *order["arguments"]]
    sys.modules.pop(order["module"], None)
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    serve(sys.argv[1])
