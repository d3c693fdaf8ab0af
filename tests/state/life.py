"""What happens to the brain of the state machine: starts, ends, evictions and faults."""

import asyncio
import tempfile
import threading
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from service.brain import Brain
from tests.state.brains import Clock, Shards, SwitchEncoder, SwitchVdb, crash_image, make_brain, model_ready
from tests.state.model_changes import ChangingModel

# Thousands of commits: a real disk's fsync would be all that is measured. SIGKILL doesn't need it.
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Life(RuleBasedStateMachine):
    """A brain over the in-memory Chroma, whose rows outlive a restart as a directory would."""

    deadline_ms = 20  # what a cold read waits for a Chroma that hangs; the fake answers at once or never

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.root = Path(tempfile.mkdtemp(prefix="brain-state-", dir=IN_MEMORY))
        self.lives = 0
        self.model = ChangingModel()
        self.clock = Clock()
        self.shards: Shards = {}

    # The brain's life

    @initialize(loaded=st.booleans())
    def begin(self, loaded: bool) -> None:
        self.start(self.root / "0", loaded=loaded)

    def make_vdb(self, directory: Path) -> Any:
        return SwitchVdb(self.shards)

    def start(self, directory: Path, *, loaded: bool) -> None:
        self.directory = directory
        self.encoder, self.load = SwitchEncoder(), threading.Event()
        encoder, load = self.encoder, self.load
        if loaded:
            load.set()

        def loading() -> SwitchEncoder:
            load.wait(60)
            return encoder

        async def start() -> Brain:
            self.vdb = self.make_vdb(directory)
            brain = make_brain(
                directory,
                vdb=self.vdb,
                load=loading,
                clock=self.clock,
                read_deadline_ms=self.deadline_ms,
            )
            await brain.start()
            if loaded:
                await model_ready(brain)
            return brain

        self.brain = self.runner.run(start())

    def stop(self) -> None:
        self.load.set()
        self.heal()
        self.runner.run(self.brain.close())

    def heal(self) -> None:
        self.encoder.fail = False
        if isinstance(self.vdb, SwitchVdb):
            self.vdb.fail = False
            self.vdb.hangs(False)

    @rule(loaded=st.booleans())
    def restart(self, loaded: bool) -> None:
        self.stop()
        self.start(self.directory, loaded=loaded)
        self.came_up(loaded)

    @rule(loaded=st.booleans())
    def kill(self, loaded: bool) -> None:
        """Go on from what was on disk, in the ledger and in Chroma, at one moment of a brain that ran on."""
        self.lives += 1
        image = self.root / str(self.lives)
        shards = self.vdb.shards if isinstance(self.vdb, SwitchVdb) else {}
        self.runner.run(crash_image(self.brain, image))
        self.stop()
        self.shards = shards
        self.start(image, loaded=loaded)
        self.came_up(loaded)

    def came_up(self, loaded: bool) -> None:
        """What is looked at after a start that was not the first."""

    @rule()
    def evict(self) -> None:
        self.runner.run(self.all_out())

    async def all_out(self) -> None:
        self.brain.residents.evict_all()

    # Faults

    @rule(how=st.sampled_from(["fail", "hang", "well"]))
    def chroma(self, how: str) -> None:
        if isinstance(self.vdb, SwitchVdb):
            self.vdb.fail = how == "fail"
            self.vdb.hangs(how == "hang")

    @rule(fail=st.booleans())
    def embedder(self, fail: bool) -> None:
        self.encoder.fail = fail

    @rule()
    def model_loads(self) -> None:
        self.load.set()
