"""A real server over a data directory, whose model and clock a test puts out of order while it runs:
`python -m tests.faults.fault_server DIRECTORY CONTROL [SECTION__KEY=VALUE…]`.

CONTROL is a folder. While it holds a file `raise`, the model refuses every text; while it holds `slow`, it
waits before each; `clock` holds milliseconds that are added to the time; while it holds `patient`, no call of
Chroma is ever given up, so that whoever waits for a Chroma that hangs never gets an answer.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from models.embedding import Encoding
from service.app import build_brain, now, serve
from service.settings import Settings
from stores.vdb import Vdb
from tests.hash_encoder import HashEncoder

LOOK_S = 0.02
FOR_EVER_S = 3_600.0
T = TypeVar("T")


class FaultyEncoder(HashEncoder):
    """Does what the control folder says."""

    def __init__(self, control: Path) -> None:
        super().__init__()
        self._control = control

    def encode(self, chunks: Sequence[Sequence[int]]) -> list[Encoding]:
        while (self._control / "slow").exists():
            time.sleep(LOOK_S)
        if (self._control / "raise").exists():
            raise RuntimeError("the model was told to fail")
        return super().encode(chunks)


class PatientVdb(Vdb):
    """Does what the control folder says."""

    def __init__(self, directory: Path, control: Path) -> None:
        super().__init__(directory)
        self._control = control

    async def ask(
        self, shard: str, within: float, function: Callable[..., T], *args: Any, write: bool = False
    ) -> T:
        limit = FOR_EVER_S if (self._control / "patient").exists() else within
        return await super().ask(shard, limit, function, *args, write=write)


def clock_of(control: Path) -> Any:
    """Wall-clock time, epoch ms, and what the control folder adds to it."""
    file = control / "clock"

    def clock() -> int:
        try:
            return now() + int(file.read_text())
        except (FileNotFoundError, ValueError):
            return now()

    return clock


def settings_for(directory: str, options: Sequence[str]) -> Settings:
    """Chroma gets each row at once, which tests wait for."""
    values: dict[str, Any] = {"server": {"port": 0}, "write": {"embed_wait_ms": 60_000}}
    values["vdb"] = {"gather_ms": 0, "read_deadline_ms": 2_000}
    for option in options:
        name, _, value = option.partition("=")
        section, _, key = name.partition("__")
        values.setdefault(section, {})[key] = value
    return Settings.model_validate({**values, "data": {"directory": directory}})


def main(directory: str, control: str, *options: str) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python has it: a file over its limit is an error
    settings = settings_for(directory, options)
    folder = Path(control)
    brain = build_brain(
        settings,
        load_encoder=lambda: FaultyEncoder(folder),
        clock=clock_of(folder),
        vdb=PatientVdb(settings.data_directory / "vdb", folder),
    )
    asyncio.run(serve(settings, brain=brain))


if __name__ == "__main__":
    main(*sys.argv[1:])
