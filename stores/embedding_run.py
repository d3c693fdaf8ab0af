"""Embeds many texts of the ledger and commits their vectors: the long part of a rebuild.

Windows of texts are sorted by length, because padding is what costs on a CPU, and each is committed while the
next is embedded. What is committed is done: whoever starts again goes on behind it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import structlog
from sqlalchemy import select

from models.embedder import compact
from models.embedding import Chunk, Encoder, Floats
from models.token_codes import Embedded, TokenCodes
from stores.inserts import replace_vectors
from stores.ledger import Ledger
from stores.schema import versions
from stores.writer import Transaction

log = structlog.get_logger()

WINDOW = 256  # memories in one commit
RUN = 16  # chunks between two looks whether somebody waits for the processor

Kept = tuple[Floats, TokenCodes]
Mark = Callable[[Transaction, str], None]
"""Told in each window's transaction which memory was the last."""


class EmbeddingRun:
    """`pause` is awaited between runs; `told` hears how many memories each commit finished. A text that can't
    be embedded is left out and named in `failed`, unless none can."""

    def __init__(
        self,
        ledger: Ledger,
        encoder: Encoder,
        pause: Callable[[], Awaitable[None]],
        told: Callable[[int], None],
    ):
        self.failed: dict[str, str] = {}  # memory id -> why
        self.embedded = 0
        self.chunks = 0
        self._ledger = ledger
        self._encoder = encoder
        self._pause = pause
        self._told = told

    async def embed(self, ids: Sequence[str], mark: Mark | None = None) -> None:
        """Embed these memories, in this order. Those that were purged meanwhile stay without vectors."""
        commit: asyncio.Future[Any] | None = None
        try:
            for start in range(0, len(ids), WINDOW):
                window = ids[start : start + WINDOW]
                found = await asyncio.to_thread(self._ledger.find_all, window)
                texts = {id: memory.content for id, memory in found.items() if not memory.hidden}
                made = await self.vectors(texts)
                self.embedded += len(made)
                self.chunks += sum(len(embedded.pieces) for embedded in made.values())
                if commit is not None:
                    self._told(await commit)
                write = _Commit(self._encoder.fingerprint, made, window[-1], len(window), mark)
                commit = asyncio.wrap_future(self._ledger.submit(write))
        finally:
            if commit is not None:
                self._told(await commit)

    async def vectors(self, texts: dict[str, str]) -> dict[str, Embedded]:
        """What the model makes of each text by its id; without those that can't be embedded."""
        cut = await asyncio.to_thread(lambda: {id: self._chunks(id, text) for id, text in texts.items()})
        pieces = [(id, number) for id, chunks in cut.items() for number in range(len(chunks))]
        pieces.sort(key=lambda one: len(cut[one[0]][one[1]]))
        made: dict[str, dict[int, Kept]] = {}
        for start in range(0, len(pieces), RUN):
            run = pieces[start : start + RUN]
            rows = await asyncio.to_thread(self._run, [cut[id][number] for id, number in run], run)
            for (id, number), chunk in zip(run, rows, strict=True):
                if chunk is not None:
                    made.setdefault(id, {})[number] = chunk
            await self._pause()
        whole = {id: rows for id, rows in made.items() if len(rows) == len(cut[id])}
        if texts and not whole and not self.embedded:
            raise ModelUseless(f"the model embeds nothing: {next(iter(self.failed.values()), 'no chunks')}")
        return {id: Embedded.of([rows[number] for number in sorted(rows)]) for id, rows in whole.items()}

    def _chunks(self, id: str, text: str) -> list[Chunk]:
        try:
            return self._encoder.chunk(text)
        except Exception as fault:  # noqa: BLE001 - the others go on; a trace may quote the text
            log.error("a memory's text can't be cut", memory_id=id, fault=type(fault).__name__)
            self.failed[id] = type(fault).__name__
            return []

    def _run(self, chunks: Sequence[Chunk], named: Sequence[tuple[str, int]]) -> list[Kept | None]:
        """What is kept of each chunk. When the run fails, each of its chunks is tried alone."""
        try:
            return [compact(encoding) for encoding in self._encoder.encode(chunks)]
        except Exception as fault:  # noqa: BLE001 - the others go on; a trace may quote the text
            if len(chunks) == 1:
                log.error("a memory can't be embedded", memory_id=named[0][0], fault=type(fault).__name__)
                self.failed[named[0][0]] = type(fault).__name__
                return [None]
        return [self._run([chunk], [one])[0] for chunk, one in zip(chunks, named, strict=True)]


class ModelUseless(Exception):
    """Not one text could be embedded. The text says why."""


class _Commit:
    """The write of one window."""

    def __init__(self, fingerprint: str, made: dict[str, Embedded], last: str, count: int, mark: Mark | None):
        self._fingerprint = fingerprint
        self._made = made
        self._last = last
        self._count = count
        self._mark = mark

    def __call__(self, transaction: Transaction) -> int:
        alive = sorted(
            transaction.execute(_alive(list(self._made))).scalars()
        )  # else a purge would be undone
        replace_vectors(transaction, alive, self._fingerprint, [self._made[memory_id] for memory_id in alive])
        if self._mark is not None:
            self._mark(transaction, self._last)
        return self._count


def _alive(ids: Sequence[str]) -> Any:
    current = versions.c.memory_id.in_(ids) & versions.c.to_seq.is_(None)
    return select(versions.c.memory_id).where(current, versions.c.status != "purged")


def sample(ids: Sequence[str], count: int) -> Iterator[str]:
    """So many of them at the most, evenly spread."""
    step = max(1, len(ids) // count)
    yield from list(ids[::step])[:count]
