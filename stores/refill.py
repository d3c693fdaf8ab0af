"""Fills a shard of the vector store anew, from the ledger into another directory, and flips the pointer:
the one way to repair a shard, or to get rid of text that Chroma keeps in its files after a delete.

A rebuild (`stores.rebuild`) does so with many shards at once, and leaves the directories that it replaced:
they are the earlier generation's, named in one row of `settings`, until it is pruned.

A refill that is due is a row in `settings`, written in the transaction that makes it necessary, so that a
crash at any instant only means that it starts over.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import orjson
import structlog
from sqlalchemy import Connection, delete, select

from models.scope import Scope
from stores.ledger import Ledger
from stores.schema import memories, settings
from stores.vdb import Vdb, VdbUnavailable, shard_of
from stores.vdb_rows import held
from stores.writer import Transaction

log = structlog.get_logger()

_POINTER, _DUE = "vdb.shard.", "vdb.refill."
PREVIOUS = "rebuild.previous"  # the earlier generation: a JSON object, `shards` are its directories by number
QUARANTINE = "quarantine"  # broken directories, beside the root: `<directory>@<epoch ms>`
BATCH = 500  # rows; a refill is bulk work, nobody waits for the rows behind it


class Shards:
    """Which directory holds each shard, and which of them are to be filled anew. `root` is where they
    are. Lives on the event loop; reads the ledger once, at `open`."""

    def __init__(self, ledger: Ledger, vdb: Vdb, root: Path):
        self._ledger = ledger
        self._vdb = vdb
        self._root = root
        self._quarantine = root.parent / QUARANTINE
        self._names: dict[int, str] = {}
        self._kept: dict[int, str] = {}  # of the earlier generation
        self._staged: set[str] = set()  # being filled
        self._last: dict[int, int] = {}  # the highest number given to a directory of each shard
        self._due: set[int] = set()
        self._done = asyncio.Condition()
        self._turn = asyncio.Lock()  # what moves directories does so one after the other

    def open(self, *, tidy: bool = True) -> None:
        """Learn the pointers and, unless it is only to look, delete directories that none points to (a crash
        left them) and have those filled anew that are gone."""
        stored = self._ledger.settings()
        for name, value in stored.items():
            if name.startswith(_POINTER):
                self._names[int(name.removeprefix(_POINTER))] = value
            elif name.startswith(_DUE):
                self._due.add(int(name.removeprefix(_DUE)))
        self._kept = kept_shards(stored)
        if not tidy:
            return
        self._clear()
        self._due |= {shard for shard in self.scopes() if not self.directory(shard).is_dir()}

    def name(self, shard: int) -> str:
        """The directory that holds a shard now."""
        return self._names.get(shard, _first(shard))

    def directory(self, shard: int) -> Path:
        """Where that is."""
        return self._root / self.name(shard)

    def scopes(self) -> dict[int, list[Scope]]:
        """The scopes of every shard that has any memory to hold, by its number."""
        found: dict[int, list[Scope]] = {}
        for scope in self._scopes():
            found.setdefault(shard_of(*scope), []).append(scope)
        return found

    def due(self) -> list[int]:
        """The shards that are to be filled anew."""
        return sorted(self._due)

    def note_due(self, shard: int) -> None:
        """A committed transaction has asked for a refill with `request`, or the shard is broken."""
        self._due.add(shard)

    async def quarantine(self, shard: int, at: int) -> str:
        """Take a broken shard's directory out of use, kept for whoever wants to know why, and have the shard
        filled anew. `at`, epoch ms, goes into its name there, which is returned."""
        self._due.add(shard)  # from now on nothing more is written to it
        async with self._turn:
            name = self.name(shard)
            with contextlib.suppress(VdbUnavailable):
                await self._vdb.close_shard(name)
            kept = f"{name}@{at}"
            await asyncio.to_thread(_move, self._root / name, self._quarantine / kept)
        return kept

    async def refilled(self, shard: int) -> None:
        """Wait until no refill of the shard is due."""
        async with self._done:
            await self._done.wait_for(lambda: shard not in self._due)

    async def refill(self, shard: int, fingerprint: str) -> None:
        """Fill the shard's next directory with every memory that has vectors, verify, flip, delete the old
        one. `fingerprint` says which vectors. The caller lets no other write of the shard run meanwhile;
        a refill that is asked for meanwhile stays due. Raises VdbUnavailable; then the old directory still
        serves."""
        async with self._turn:
            asked = (await asyncio.to_thread(self._ledger.settings)).get(f"{_DUE}{shard}")
            old = self.name(shard)
            new = self.fresh(shard)
            try:
                count = len(await self.fill(shard, new, fingerprint))
            except VdbUnavailable:
                await self.drop([new])
                raise
            if asked is not None:  # what has to leave every file lies there too; done before the row goes
                await asyncio.to_thread(self._empty_quarantine, shard)
            flip = self._ledger.submit(lambda transaction: _flip(transaction, shard, new, asked))
            still_due = await asyncio.wrap_future(flip)
            self._names[shard] = new
            self._staged.discard(new)
            # What was purged is in the earlier generation's files too: it goes on without this shard.
            await self.drop({old, self._kept.pop(shard, old)})
        if not still_due:
            async with self._done:
                self._due.discard(shard)
                self._done.notify_all()
        log.info("a shard was filled anew", shard=shard, memories=count)

    async def fill(
        self, shard: int, new: str, fingerprint: str, told: Callable[[int], None] = lambda count: None
    ) -> dict[str, int]:
        """Put every memory of the shard that has vectors into a new directory, and verify that they are
        there. Memory id → version; `told` hears of each batch. Raises VdbUnavailable."""
        shutil.rmtree(self._root / new, ignore_errors=True)
        expected: dict[str, int] = {}
        putting = asyncio.create_task(asyncio.sleep(0))
        try:
            for ids in await asyncio.to_thread(lambda: list(self._batches(shard))):
                batch, _ = await asyncio.to_thread(held, self._ledger, ids, fingerprint)
                await putting  # so that one batch is read while another is put
                if batch:
                    putting = asyncio.create_task(self._vdb.put(new, batch))
                    expected |= {row.memory_id: row.version for row in batch}
                    told(len(batch))
        finally:
            await asyncio.wait({putting})
        await putting
        if await self._vdb.stored(new) != expected:
            raise VdbUnavailable(f"shard {new} does not hold what was put into it")
        return expected

    def fresh(self, shard: int) -> str:
        """A name for another directory of the shard, reserved until `switch` or `drop`. None is given twice:
        Chroma closes what it left only a moment later."""
        used = {self.name(shard), self._kept.get(shard, "-0"), f"-{self._last.get(shard, 0)}"}
        self._last[shard] = 1 + max(int(name.partition("-")[2]) for name in used)
        name = f"{shard:02d}-{self._last[shard]:04d}"
        self._staged.add(name)
        return name

    async def switch(self, names: Mapping[int, str], kept: Mapping[int, str]) -> None:
        """A committed transaction points to other directories and keeps those of another generation. What
        belongs to neither any more is deleted."""
        self._names.update(names)
        gone = set(self._kept.values()) - {*self._names.values(), *kept.values()}
        self._kept = dict(kept)
        self._staged -= set(names.values())
        await self.drop(gone)

    async def drop(self, directories: Iterable[str]) -> None:
        """Delete directories that nothing points to."""
        for name in directories:
            with contextlib.suppress(VdbUnavailable):  # it may be broken: that is why it is left
                await self._vdb.close_shard(name)
            await asyncio.to_thread(shutil.rmtree, self._root / name, ignore_errors=True)
            self._staged.discard(name)

    def kept(self) -> dict[int, str]:
        """The earlier generation's directories, by the number of the shard."""
        return dict(self._kept)

    def _clear(self) -> None:
        """Delete the directories that neither generation points to."""
        if self._root.is_dir():
            for directory in self._root.iterdir():
                shard, _, generation = directory.name.partition("-")
                if not generation or not shard.isdigit():
                    continue
                if directory.name not in (self.name(int(shard)), self._kept.get(int(shard))):
                    shutil.rmtree(directory)

    def _empty_quarantine(self, shard: int) -> None:
        """Raises OSError: then the shard stays due, and with it whatever asked."""
        for directory in self._quarantine.glob(f"{shard:02d}-*@*"):
            shutil.rmtree(directory)

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


def _move(directory: Path, target: Path) -> None:
    if directory.is_dir():
        target.parent.mkdir(mode=0o700, exist_ok=True)
        directory.rename(target)


def request(transaction: Transaction, shard: int) -> None:
    """Ask, inside a write, that a shard be filled anew. No two ask in the same words: a refill that runs
    already may have copied what this write takes away."""
    name = f"{_DUE}{shard}"
    transaction.execute(delete(settings).where(settings.c.name == name))
    transaction.insert(settings, [{"name": name, "value": str(transaction.next_seq())}])


def pointer(connection: Connection, shard: int) -> str:
    """The directory that the ledger says holds a shard, in this snapshot."""
    found = connection.scalar(select(settings.c.value).where(settings.c.name == f"{_POINTER}{shard}"))
    return _first(shard) if found is None else str(found)


def _first(shard: int) -> str:
    return f"{shard:02d}-0001"


def kept_shards(stored: Mapping[str, str]) -> dict[int, str]:
    """The earlier generation's directories, from the rows of `settings`."""
    row = stored.get(PREVIOUS)
    return {} if row is None else {int(shard): name for shard, name in orjson.loads(row)["shards"].items()}


def point(transaction: Transaction, names: Mapping[int, str]) -> None:
    """Point to other directories, inside a write."""
    rows = {f"{_POINTER}{shard}": name for shard, name in names.items()}
    transaction.execute(delete(settings).where(settings.c.name.in_(list(rows))))
    transaction.insert(settings, [{"name": name, "value": value} for name, value in rows.items()])


def put_row(transaction: Transaction, name: str, value: str | None) -> None:
    """Set a row of `settings`, or take it away."""
    transaction.execute(delete(settings).where(settings.c.name == name))
    if value is not None:
        transaction.insert(settings, [{"name": name, "value": value}])


def _flip(transaction: Transaction, shard: int, directory: str, asked: str | None) -> bool:
    """Point to another directory. True when a refill was asked for since the one that was `asked` for."""
    due = settings.c.name == f"{_DUE}{shard}"
    transaction.execute(delete(settings).where(due & (settings.c.value == asked)))
    point(transaction, {shard: directory})
    row = transaction.scalar(select(settings.c.value).where(settings.c.name == PREVIOUS))
    if row is not None:  # its directory of this shard goes too
        earlier = orjson.loads(row)
        earlier["shards"].pop(str(shard), None)
        put_row(transaction, PREVIOUS, orjson.dumps(earlier).decode())
    return transaction.execute(select(settings.c.name).where(due)).first() is not None
