"""Rebuild: another generation of vectors and of Chroma's directories, filled from the ledger beside the one
that serves, verified, and switched to by one transaction.

    embed    what has no vectors of the wanted fingerprint, in committed windows (`stores.embedding_run`)
    fill     every shard concerned into a fresh directory
    catch up with what was written meanwhile, until little is left
    verify   counts, each memory found by its own vector, sampled texts embedded again, old and new neighbours
    switch   fingerprint and pointers; what changed since the last look is left to the outbox

Killed at any instant, it leaves the old generation serving, or the new one; vectors that were committed stay,
and the next rebuild goes on behind them. A directory that was not finished is filled again: after a kill
nobody should trust half an index.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from models.embedding import Encoder
from models.scope import Scope
from stores.embedding_run import EmbeddingRun
from stores.generations import MODEL, Flip, Generation
from stores.ledger import Ledger
from stores.outlook import Outlook, look, marker, todo
from stores.refill import BATCH, Shards
from stores.vdb import Vdb, VdbUnavailable, shard_of
from stores.vdb_rows import held
from stores.verification import Findings, verify
from stores.writer import FINGERPRINT

FEW = 100  # memories behind which the switch may wait for
ROUNDS = 10

Stage = Literal["embedding", "filling", "verifying", "switching"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to rebuild. `fingerprint` and `model` (name or path) are those that are to count; without `embed`
    the ledger's vectors are taken as they are. Scopes and layers narrow it, empty means all; with
    `only_missing` what has vectors keeps them; `back` returns to the earlier generation's directories."""

    fingerprint: str
    model: str | None
    embed: bool = True
    scopes: frozenset[Scope] = frozenset()
    layers: frozenset[str] = frozenset()
    only_missing: bool = False
    back: Generation | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a rebuild did. `failed`: memory id → why it could not be embedded."""

    before: Generation
    embedded: int
    chunks: int
    placed: int
    shards: int
    seconds: float
    embed_seconds: float
    fill_seconds: float
    findings: Findings
    failed: dict[str, str] = field(default_factory=dict)


async def _go_on() -> None:
    """Nobody else wants the processor."""


class Rebuild:
    """One rebuild, on the event loop. `told(stage, done, total)` hears how far it is; `turn` keeps the
    applier still around the switch, and `switched` is called in it once the other generation counts; `pause`
    is awaited between two runs of the model."""

    def __init__(
        self,
        ledger: Ledger,
        vdb: Vdb,
        shards: Shards,
        plan: Plan,
        encoder: Encoder | None,
        *,
        told: Callable[[Stage, int, int], None] = lambda stage, done, total: None,
        turn: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext,
        switched: Callable[[], None] = lambda: None,
        pause: Callable[[], Awaitable[None]] = _go_on,
    ):
        self._ledger = ledger
        self._vdb = vdb
        self._shards = shards
        self._plan = plan
        self._encoder = encoder
        self._told = told
        self._turn = turn
        self._switched = switched
        self._directories: dict[int, str] = {}
        self._placed: dict[int, dict[str, int]] = {}  # of each directory: memory id -> version
        self._done = self._total = 0
        self._switching: asyncio.Task[None] | None = None
        self._run = None if encoder is None else EmbeddingRun(ledger, encoder, pause, self._advanced)

    async def run(self) -> Report:
        """Raises VdbUnavailable, StoreUnavailable, ModelUseless or VerificationFailed; then, and when it is
        cancelled, the generation that served goes on serving."""
        started = time.monotonic()
        self._before = await asyncio.to_thread(self._now)
        try:
            concerned = await self._embed_all()
            with suppress(VdbUnavailable):  # its process takes a second to start, which is not the filling's
                await self._vdb.get(self._shards.name(0), "-")
            embedded_at = time.monotonic()
            await self._fill_all(concerned)
            filled_at = time.monotonic()
            findings = Findings()
            if self._directories or self._is_whole:  # else there was nothing to do
                await self._approach()
                findings = await self._verify()
                await self._approach()
                await self._uncancelled_switch()
        finally:
            await asyncio.shield(asyncio.ensure_future(self._tidy()))
        return Report(
            self._before,
            0 if self._run is None else self._run.embedded,
            0 if self._run is None else self._run.chunks,
            sum(map(len, self._placed.values())),
            len(self._directories),
            time.monotonic() - started,
            embedded_at - started,
            filled_at - embedded_at,
            findings,
            {} if self._run is None else self._run.failed,
        )

    def _now(self) -> Generation:
        stored = self._ledger.settings()
        names = {shard: self._shards.name(shard) for shard in self._shards.scopes()}
        return Generation(stored.get(FINGERPRINT), stored.get(MODEL), names)

    @property
    def _other_model(self) -> bool:
        return self._plan.fingerprint != self._before.fingerprint

    def _advanced(self, count: int) -> None:
        self._done += count
        self._told("embedding", min(self._done, self._total), self._total)

    async def _embed_all(self) -> set[int]:
        """Embed what is to be embedded. Returns the shards that are to be filled."""
        plan = self._plan
        missing = plan.only_missing or self._other_model or plan.back is not None
        wanted = await asyncio.to_thread(
            todo, self._ledger, plan.fingerprint, plan.scopes, plan.layers, missing=missing and plan.embed
        )
        narrowed = bool(plan.scopes or plan.layers) or (plan.only_missing and not self._other_model)
        shards = {shard_of(*scope) for scope in wanted.scopes}
        if self._run is not None and plan.embed:
            self._done, self._total = wanted.skipped, len(wanted.ids) + wanted.skipped
            self._told("embedding", self._done, self._total)
            mark = None if missing else marker(wanted.key)
            await self._run.embed(wanted.ids, mark)
        return shards if narrowed else set(await asyncio.to_thread(self._shards.scopes))

    async def _fill_all(self, shards: set[int]) -> None:
        self._done, self._total = 0, sum(map(len, (await self._look()).shown.values()))
        back = {} if self._plan.back is None else self._plan.back.shards
        for shard in sorted(shards):
            try:
                if shard in back:
                    self._placed[shard] = await self._vdb.stored(back[shard])
                    self._directories[shard] = back[shard]
                    continue
            except VdbUnavailable:  # broken meanwhile, so it is filled anew
                pass
            await self._fill(shard)

    async def _fill(self, shard: int) -> None:
        if shard in self._directories and self._directories[shard] not in self._shards.kept().values():
            await self._shards.drop([self._directories.pop(shard)])
        directory = self._shards.fresh(shard)
        self._directories[shard] = directory
        self._placed[shard] = await self._shards.fill(shard, directory, self._plan.fingerprint, self._filled)

    def _filled(self, count: int) -> None:
        self._done += count
        self._told("filling", min(self._done, self._total), self._total)

    async def _look(self) -> Outlook:
        return await asyncio.to_thread(look, self._ledger, self._plan.fingerprint)

    # What is written meanwhile

    async def _approach(self) -> None:
        """Catch up until little is left."""
        for _ in range(ROUNDS):
            if await self._catch_up() <= FEW:
                return

    async def _catch_up(self) -> int:
        """Bring the directories in step with the ledger as it is now. Returns how many memories it took."""
        now = await self._look()
        self._since = now.seq
        count = 0
        if self._run is not None and self._other_model and self._plan.embed:
            missing = [id for id in now.missing if id not in self._run.failed]
            await self._run.embed(missing)
            count += len(missing)
            if missing:
                now = await self._look_again(now.seq)
        self._missing = now.missing
        concerned = now.shown if self._is_whole else {s: now.shown.get(s, {}) for s in self._directories}
        for shard in sorted(concerned.keys() | self._directories.keys()):
            count += await self._step(shard, now.shown.get(shard, {}), now.purged)
        return count

    async def _look_again(self, seq: int) -> Outlook:
        """With the vectors that were just made; what was written since `seq` still counts as later."""
        found = await self._look()
        return Outlook(seq, found.shown, found.missing, found.purged)

    @property
    def _is_whole(self) -> bool:
        return not (self._plan.scopes or self._plan.layers or self._plan.only_missing) or self._other_model

    async def _step(self, shard: int, shown: dict[str, int], purged: frozenset[str]) -> int:
        placed = self._placed.get(shard, {})
        gone = placed.keys() - shown.keys()
        if shard not in self._directories or gone & purged:
            # Chroma keeps in its files what it deletes, and what was purged may stand in none.
            await self._fill(shard)
            return len(self._placed[shard])
        directory = self._directories[shard]
        late = [id for id, version in shown.items() if placed.get(id) != version]
        for start in range(0, len(late), BATCH):
            ids = late[start : start + BATCH]
            rows, _ = await asyncio.to_thread(held, self._ledger, ids, self._plan.fingerprint)
            if rows:
                await self._vdb.put(directory, rows)
            placed |= {row.memory_id: row.version for row in rows}
        if gone:
            await self._vdb.remove(directory, sorted(gone))
            for id in gone:
                del placed[id]
        return len(late) + len(gone)

    # The end

    async def _verify(self) -> Findings:
        self._told("verifying", 0, sum(map(len, self._placed.values())))
        return await verify(
            self._ledger,
            self._vdb,
            self._plan.fingerprint,
            self._directories,
            self._placed,
            self._before,
            self._run,
            lambda done: self._told("verifying", done, sum(map(len, self._placed.values()))),
        )

    async def _uncancelled_switch(self) -> None:
        """The ledger and this process must change together: who cancels now comes too late."""
        self._switching = asyncio.create_task(self._switch())
        while not self._switching.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({self._switching})
        self._switching.result()

    async def _switch(self) -> None:
        async with self._turn():
            await self._catch_up()
            self._told("switching", 0, 1)
            plan, names = self._plan, self._directories
            flip = Flip(plan.fingerprint, plan.model, names, self._before, self._since, self._missing)
            due = await asyncio.wrap_future(self._ledger.submit(flip))
            kept = self._before.shards
            for shard in due:
                self._shards.note_due(shard)
            switch = self._shards.switch(self._directories, kept)
            self._switched()
            await switch
        self._told("switching", 1, 1)

    async def _tidy(self) -> None:
        """Delete what was staged, unless it serves now."""
        switching = self._switching
        if switching is not None and switching.exception() is None:
            return
        kept = set(self._shards.kept().values())
        await self._shards.drop(name for name in self._directories.values() if name not in kept)
