"""Real servers in processes of their own, to be killed, stopped, starved and misled."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from stores.lock import DataDirectoryLock, Owner
from tests import warm
from tests.processes import logged
from tests.serving import Api, eventually
from tests.test_vdb import wait_until_gone

PATIENCE_S = 60


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """A server's process, a caller of it, and the folder that puts its model and its clock out of order."""

    process: warm.Process
    api: Api
    data: Path
    control: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL, and wait for the process and its child to be gone."""
        children = self.children()
        self.process.kill()
        self.process.wait()
        for child in children:
            wait_until_gone(child)

    def terminate(self, within: float = PATIENCE_S) -> int:
        """SIGTERM. The exit code."""
        self.process.terminate()
        return self.process.wait(within)

    def children(self) -> list[int]:
        """Process ids; Chroma's is among them."""
        found = []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
        return found

    def chroma(self) -> int:
        """The process id of Chroma's child, once there is one."""

        def find() -> int | None:
            commands = ((child, Path(f"/proc/{child}/cmdline").read_bytes()) for child in self.children())
            return next((child for child, command in commands if b"spawn_main" in command), None)

        child: int = eventually(find)
        return child

    def ready(self) -> None:
        """Wait until the model is there and nothing is behind."""

        def look() -> bool:
            found = self.api.readyz()
            return bool(found["status"] == "ready" and found["vdb"]["index_lag"] == 0)

        eventually(look, PATIENCE_S)


@contextmanager
def victim(data: Path, *options: str) -> Iterator[Victim]:
    """A running server over this directory; killed at the end if it still runs."""
    control = data.parent / f"{data.name}-control"
    control.mkdir(exist_ok=True)
    process = logged(data, "tests.faults.fault_server", str(data), str(control), *options)
    try:
        owner = listening(data, process)
        with httpx.Client(base_url=owner.url, timeout=PATIENCE_S, trust_env=False) as http:
            yield Victim(process, Api(http), data, control)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()


def listening(data: Path, process: warm.Process) -> Owner:
    """The card of this very process."""

    def look() -> Owner | None:
        assert process.poll() is None, "the server did not start; see server.log"
        owner = DataDirectoryLock(data).owner()
        return owner if owner is not None and owner.pid == process.pid else None

    found: Owner = eventually(look, PATIENCE_S)
    return found
