"""Fills a shard of the vector store anew, from the ledger into another directory, and flips the pointer:
the one way to repair a shard, or to get rid of text that Chroma keeps in its files after a delete.

A refill that is due is a row in `settings`, written in the transaction that makes it necessary, so that a
crash at any instant only means that it starts over.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import structlog
from sqlalchemy import delete, or_, select

from models.scope import Scope
from stores.ledger import Ledger
from stores.schema import memories, settings
from stores.vdb import Vdb, VdbUnavailable, shard_of
from stores.vdb_rows import held
from stores.writer import Transaction

log = structlog.get_logger()

_POINTER, _DUE = "vdb.shard.", "vdb.refill."
BATCH = 100  # rows; a refill is bulk work, nobody waits for the rows behind it


class Shards:
    """Which directory holds each shard, and which of them are to be filled anew. `root` is where they
    are. Lives on the event loop; reads the ledger once, at `open`."""

    def __init__(self, ledger: Ledger, vdb: Vdb, root: Path):
        self._ledger = ledger
        self._vdb = vdb
        self._root = root
        self._names: dict[int, str] = {}
        self._due: set[int] = set()
        self._done = asyncio.Condition()

    def open(self) -> None:
        """Learn the pointers, delete directories that none points to (a crash left them), and have those
        filled anew that are gone."""
        stored = self._ledger.settings()
        for name, value in stored.items():
            if name.startswith(_POINTER):
                self._names[int(name.removeprefix(_POINTER))] = value
            elif name.startswith(_DUE):
                self._due.add(int(name.removeprefix(_DUE)))
        if self._root.is_dir():
            for directory in self._root.iterdir():
                shard, _, generation = directory.name.partition("-")
                if generation and shard.isdigit() and directory.name != self.name(int(shard)):
                    shutil.rmtree(directory)
        held = {shard_of(*scope) for scope in self._scopes()}
        self._due |= {shard for shard in held if not (self._root / self.name(shard)).is_dir()}

    def name(self, shard: int) -> str:
        """The directory that holds a shard now."""
        return self._names.get(shard, f"{shard:02d}-0001")

    def due(self) -> list[int]:
        """The shards that are to be filled anew."""
        return sorted(self._due)

    def note_due(self, shard: int) -> None:
        """A committed transaction has asked for a refill with `request`, or the shard is broken."""
        self._due.add(shard)

    async def refilled(self, shard: int) -> None:
        """Wait until no refill of the shard is due."""
        async with self._done:
            await self._done.wait_for(lambda: shard not in self._due)

    async def refill(self, shard: int, fingerprint: str) -> None:
        """Fill the shard's next directory with every memory that has vectors, verify, flip, delete the old
        one. `fingerprint` says which vectors. The caller lets no other write of the shard run meanwhile;
        a refill that is asked for meanwhile stays due. Raises VdbUnavailable; then the old directory still
        serves."""
        asked = (await asyncio.to_thread(self._ledger.settings)).get(f"{_DUE}{shard}")
        old = self.name(shard)
        new = f"{shard:02d}-{int(old.partition('-')[2]) + 1:04d}"
        shutil.rmtree(self._root / new, ignore_errors=True)
        expected: dict[str, int] = {}
        for ids in await asyncio.to_thread(lambda: list(self._batches(shard))):
            batch, _ = await asyncio.to_thread(held, self._ledger, ids, fingerprint)
            if batch:
                await self._vdb.put(new, batch)
                expected |= {row.memory_id: row.version for row in batch}
        if await self._vdb.stored(new) != expected:
            raise VdbUnavailable(f"shard {new} does not hold what was put into it")
        flip = self._ledger.submit(lambda transaction: _flip(transaction, shard, new, asked))
        still_due = await asyncio.wrap_future(flip)
        self._names[shard] = new
        with contextlib.suppress(VdbUnavailable):  # it may be broken: that is why it is left
            await self._vdb.close_shard(old)
        await asyncio.to_thread(shutil.rmtree, self._root / old, ignore_errors=True)
        if not still_due:
            async with self._done:
                self._due.discard(shard)
                self._done.notify_all()
        log.info("a shard was filled anew", shard=shard, memories=len(expected))

    def _batches(self, shard: int) -> Iterator[list[str]]:
        """The ids of every memory of the scopes that the shard holds."""
        scopes = self._scopes()
        with self._ledger.snapshot() as connection:
            for scope in scopes:
                if shard_of(*scope) == shard:
                    mine = (memories.c.product == scope.product) & (memories.c.agent == scope.agent)
                    ids = list(connection.scalars(select(memories.c.memory_id).where(mine)))
                    yield from (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))

    def _scopes(self) -> list[Scope]:
        """Every scope that has a memory."""
        with self._ledger.snapshot() as connection:
            rows = connection.execute(select(memories.c.product, memories.c.agent).distinct())
            return [Scope(*tuple(row)) for row in rows]


def request(transaction: Transaction, shard: int) -> None:
    """Ask, inside a write, that a shard be filled anew. No two ask in the same words: a refill that runs
    already may have copied what this write takes away."""
    name = f"{_DUE}{shard}"
    transaction.execute(delete(settings).where(settings.c.name == name))
    transaction.insert(settings, [{"name": name, "value": str(transaction.next_seq())}])


def _flip(transaction: Transaction, shard: int, directory: str, asked: str | None) -> bool:
    """Point to another directory. True when a refill was asked for since the one that was `asked` for."""
    pointer, due = settings.c.name == f"{_POINTER}{shard}", settings.c.name == f"{_DUE}{shard}"
    transaction.execute(delete(settings).where(or_(pointer, due & (settings.c.value == asked))))
    transaction.insert(settings, [{"name": f"{_POINTER}{shard}", "value": directory}])
    return transaction.execute(select(settings.c.name).where(due)).first() is not None
