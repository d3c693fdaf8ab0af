"""Real processes of the command line: `brain serve` and `brain mcp`."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mcp import StdioServerParameters

from stores.lock import DataDirectoryLock, Owner
from tests import warm
from tests.serving import eventually

BRAIN = [sys.executable, "-m", "service.cli"]


def environment(**more: str) -> dict[str, str]:
    """Ours, without anybody's BRAIN_ variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BRAIN_")}
    return kept | {"HF_HUB_OFFLINE": "1"} | more


def stdio(data: Path, **more: str) -> StdioServerParameters:
    """How an MCP client starts `brain mcp` on a data directory."""
    command, *arguments = BRAIN
    return StdioServerParameters(
        command=command,
        args=[*arguments, "mcp", "--data", str(data), "--toolsets", "brain"],
        env=environment(**more),
    )


def logged(directory: Path, *arguments: str) -> warm.Process:
    """A process of ours over this directory; what it prints goes into `server.log` beside that."""
    with (directory.parent / "server.log").open("ab") as log:
        return warm.start(*arguments, env=environment(), stdout=log.fileno(), stderr=log.fileno())


@contextmanager
def serving_process(data: Path) -> Iterator[Owner]:
    """`brain serve` on a free port, stopped by SIGTERM, which it must survive with exit code 0."""
    with tempfile.TemporaryFile("w+") as log:
        process = warm.start(
            *("service.cli", "serve", "--data", str(data), "--port", "0"),
            env=environment(),
            stderr=log.fileno(),
        )
        try:
            lock = DataDirectoryLock(data)
            yield eventually(lambda: process.poll() is not None or lock.owner()) and lock.owner()
        finally:
            process.terminate()
            code = process.wait(60)
            log.seek(0)
            logs = log.read()
    assert code == 0, logs
