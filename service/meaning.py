"""Texts as vectors: the model, and whether its vectors are those that the ledger holds. Vectors of two
fingerprints never meet."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import structlog

from models.embedder import CannotEmbed, Embedder, EmbedderClosed
from models.embedding import EmbeddingError, Encoder
from models.errors import StoreUnavailable
from models.token_codes import Embedded, TokenCodes
from service.plan import QueryMeaning
from stores.ledger import Ledger
from stores.token_cache import TokenCache
from stores.writer import FINGERPRINT

log = structlog.get_logger()

T = TypeVar("T")

PROBE = "warm up"
QUERY_WAIT_S = 3.0  # behind a run of documents a query waits for 30 ms; this long only when the model hangs
MAX_WAIT_S = 60.0  # of a write, however many texts it brings
QUERIES = 512  # that are remembered: 60 KB each
# Characters whose words are found in less than the hop to a thread costs others. 60 KB take 30 ms, of some
# scripts more, which nobody on the event loop should wait for.
INLINE = 4_096
TEXTS_AT_ONCE = 16  # what the embedder does in about the time that `write.embed_wait_ms` is meant for one


class Meaning:
    """Lives on the event loop. `wait_ms` is what a write waits for its vectors, for each 16 texts; `ready`
    is called when the model is there; `sleep` waits seconds; `rebuild` is the command to run when the
    ledger's vectors are another model's."""

    def __init__(
        self,
        embedder: Embedder,
        ledger: Ledger,
        wait_ms: int,
        ready: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]],
        rebuild: str,
    ):
        self.embedder = embedder
        self.stored: str | None = None  # the fingerprint of the vectors that the ledger holds
        self._ledger = ledger
        self._tokens = TokenCache(ledger.token_codes)
        self._wait_s = wait_ms / 1000
        self._ready = ready
        self._sleep = sleep
        self._rebuild = rebuild
        self._watch: asyncio.Task[None] | None = None
        self._queries: OrderedDict[tuple[str, str], QueryMeaning] = OrderedDict()  # by fingerprint and text

    def start(self) -> None:
        """Load the model, behind everything. The ledger is open."""
        self.stored = self._ledger.setting(FINGERPRINT)
        self.embedder.start()
        self._watch = asyncio.create_task(self._watch_model())

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.to_thread(self.embedder.close)

    def fingerprint(self) -> str | None:
        """Of the vectors that can be made and compared now; None while the model loads, or when it is not
        the one that the ledger's vectors were made with."""
        encoder = self.embedder.encoder
        same = encoder is not None and encoder.fingerprint == self.stored
        return self.stored if same else None

    def problem(self) -> str | None:
        """Why search by meaning can't take part now; None when it can."""
        if self.fingerprint() is not None:
            return None
        if self.embedder.state == "failed":
            return f"the embedding model could not be loaded: {self.embedder.error}"
        if self.embedder.encoder is None or self.stored is None:
            return "the embedding model is loading"
        return (
            f"the memories were embedded with {self.stored}, the model now is "
            f"{self.embedder.encoder.fingerprint}: `{self._rebuild}` embeds them with it; "
            "or set embedding.model back"
        )

    def switch(self, encoder: Encoder | None, fingerprint: str) -> None:
        """The ledger's vectors are of this fingerprint now, and what is to come is embedded by this encoder:
        None leaves the one that there is, whether it fits or not."""
        self.stored = fingerprint
        self._tokens.clear()
        if encoder is not None and encoder is not self.embedder.encoder:
            self.embedder.swap(encoder)

    async def of_query(self, text: str) -> QueryMeaning | None:
        """A query as the model sees it; None when there is no model to embed it with, or not in time. The
        last ones are remembered."""
        fingerprint, encoder = self.fingerprint(), self.embedder.encoder
        if fingerprint is None or encoder is None:
            return None
        known = self._queries.get((fingerprint, text))
        if known is not None:
            self._queries.move_to_end((fingerprint, text))
            return known
        try:
            async with asyncio.timeout(QUERY_WAIT_S):
                encoding = await asyncio.wrap_future(self.embedder.embed_query(text))
        except TimeoutError:
            log.warning("a query was not embedded in time", seconds=QUERY_WAIT_S)
            return None
        except EmbeddingError as fault:
            log.warning("a query could not be embedded", fault=str(fault))
            return None
        if fingerprint != self.fingerprint():  # another model since: nobody knows which of the two made it
            return None
        meaning = self._queries[fingerprint, text] = QueryMeaning(
            encoding, encoder.starts(text), encoder.multilingual
        )
        if len(self._queries) > QUERIES:
            self._queries.popitem(last=False)
        return meaning

    def stored_tokens(self, memory_ids: Sequence[str]) -> dict[str, list[TokenCodes]]:
        """The word pieces that are stored of these memories, by the model that counts. For a thread."""
        return {} if self.stored is None else self._tokens.of(memory_ids, self.stored)

    def forget(self, memory_id: str) -> None:
        """Hold nothing in memory any more of one that is hidden."""
        self._tokens.forget(memory_id)

    async def of_documents(
        self, texts: Sequence[str], work: Callable[[], T], more: int = 0
    ) -> tuple[T, list[Embedded | None]]:
        """What `work` gives, which finds the words of these texts and of `more` characters, and what the
        model makes of each text meanwhile; None for one that can't be embedded in time: its vectors follow
        through the outbox. When `work` raises, nobody waits for the model."""
        fingerprint = self.fingerprint()
        submit = self.embedder.embed_document
        futures = [] if fingerprint is None else [asyncio.wrap_future(submit(text)) for text in texts]
        try:
            await asyncio.sleep(0)  # the embed thread takes up the texts before this one is busy again
            short = len(texts) <= 1 and more + sum(map(len, texts)) <= INLINE
            done = work() if short else await asyncio.to_thread(work)  # of many, it pauses between them
            if not futures:
                return done, [None] * len(texts)
            wait = min(self._wait_s * max(1, len(texts) / TEXTS_AT_ONCE), MAX_WAIT_S)
            await asyncio.wait(futures, timeout=wait)
            # After a change of the model nobody knows any more which of the two made them.
            same = fingerprint == self.fingerprint()
            return done, [_embedded(future) if same else None for future in futures]
        finally:
            for future in futures:
                future.cancel()

    async def of_document(self, text: str) -> Embedded:
        """What the model makes of a text, however long it takes. Raises CannotEmbed."""
        try:
            return await asyncio.wrap_future(self.embedder.embed_document(text))
        except EmbeddingError as fault:
            raise CannotEmbed(str(fault), whole=not await self._embeds()) from fault

    async def _embeds(self) -> bool:
        """Whether the model embeds anything at all."""
        try:
            await asyncio.wrap_future(self.embedder.embed_query(PROBE))
        except EmbeddingError:
            return False
        return True

    async def _watch_model(self) -> None:
        """When the model is there, take its fingerprint for a ledger that has no vectors yet."""
        try:
            await asyncio.wrap_future(self.embedder.embed_query(PROBE))
        except EmbedderClosed:
            return  # before the start even, for one command that needs no vectors
        except EmbeddingError as fault:
            log.error("no search by meaning", fault=str(fault))
            if self.embedder.encoder is None:
                return  # else it is this text's fault, or will pass: its vectors count from now on
        while not await self._bound():
            await self._sleep(1)
        problem = self.problem()
        if problem is None:
            log.info("embedding model ready", problem=None)
        else:  # until somebody acts on it, search goes by words
            log.warning("search by words only", problem=problem)
        self._ready()

    async def _bound(self) -> bool:
        """Give a ledger that has no vectors yet the model's fingerprint. False when the ledger can't take it
        now: without it nothing could ever be found by meaning."""
        encoder = self.embedder.encoder
        try:
            unbound = self.stored is None or not await asyncio.to_thread(self._ledger.has_vectors)
            if unbound and encoder is not None:
                await asyncio.wrap_future(self._ledger.put_setting(FINGERPRINT, encoder.fingerprint))
                self.stored = encoder.fingerprint
        except StoreUnavailable as fault:
            log.warning("the ledger does not take the model's fingerprint", fault=str(fault))
            return False
        return True


def _embedded(future: "asyncio.Future[Embedded]") -> Embedded | None:
    if not future.done() or future.cancelled() or future.exception() is not None:
        return None
    return future.result()
