"""The embed thread: one thread that owns one encoder, takes texts and hands out futures.

Queries go before documents. Documents are cut into runs of about 30 ms that share a forward pass, and queries
are answered between runs. What is queued is batched, without waiting for more to come. A round takes the
shortest texts and a few chunks of the oldest one, so that a short text never waits behind a pile of long ones
and a long one always makes progress. What waits holds no more memory than its text.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from models.embedding import (
    BATCH,
    CHUNK_OVERLAP,
    Chunk,
    EmbeddingError,
    Encoder,
    Encoding,
    Floats,
    normalise,
)
from models.priority import give_way
from models.token_codes import Embedded, TokenCodes, pack

RUN_PIECES = 64  # at some 0.5 ms each on one core with two models; a longer chunk runs alone
PIECE_LETTERS = 8  # at the most; what one model takes for a single long word is many pieces to another
TEXT_CHUNKS = 4  # what one text gives to a round
ROUND_CHUNKS = 32  # after so many, what was queued meanwhile is looked at; fewer leave more runs half full
QUERY_CHUNKS = 2  # a query is a question: of more than 370 pieces only the first count
NICE = 5  # a thread that embeds takes a third of a core from one that answers, when there are no more cores


class CannotEmbed(Exception):
    """The embedder can't take this text now. `whole` when it can't take any."""

    def __init__(self, reason: str, *, whole: bool):
        super().__init__(reason)
        self.whole = whole


class EmbedderClosed(EmbeddingError):
    """The embedder was closed before the text was embedded."""


class EmbedderFailed(EmbeddingError):
    """The encoder could not be loaded. `Embedder.reload` tries again."""


class EncodeFailed(EmbeddingError):
    """The encoder raised on this text or on one that shared its run. The cause is chained."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryEncoding:
    """A whole query, however many chunks it has; shapes and units as in Encoding."""

    vector: Floats  # the normalised mean of the chunks' vectors
    pieces: NDArray[np.int32]  # without what later chunks repeat
    tokens: Floats


@dataclass(slots=True, eq=False)
class _Job:
    text: str
    result: Callable[[list[Any]], Any]
    query: bool
    most: int | None = None  # chunks; the rest of the text is left out
    future: Future[Any] = field(default_factory=Future)
    chunks: list[Chunk] = field(default_factory=list)  # empty until the thread cuts the text
    encodings: dict[int, Any] = field(default_factory=dict)  # by the chunk's index


_Slice = tuple[_Job, int]  # one chunk of a job, by its index


def _width(one: _Slice) -> int:
    chunk = one[0].chunks[one[1]]
    return max(len(chunk), len(chunk.text) // PIECE_LETTERS) + 2  # with the two special tokens


def _similar_runs(slices: Sequence[_Slice]) -> Iterator[list[_Slice]]:
    """Cut into runs that share a forward pass, shortest first: at most BATCH chunks, RUN_PIECES with padding,
    and of similar length, because padding is what costs on a CPU."""
    run: list[_Slice] = []
    for one in sorted(slices, key=_width):
        width = _width(one)
        full = len(run) == BATCH or width * (len(run) + 1) > RUN_PIECES
        if run and (full or _width(run[0]) < 0.75 * width):
            yield run
            run = []
        run.append(one)
    if run:
        yield run


def _whole_query(encodings: list[Encoding]) -> QueryEncoding:
    repeated = [0] + [CHUNK_OVERLAP] * (len(encodings) - 1)
    return QueryEncoding(
        normalise(np.mean([e.vector for e in encodings], axis=0)),
        np.concatenate([e.pieces[skip:] for e, skip in zip(encodings, repeated, strict=True)]),
        np.concatenate([e.tokens[skip:] for e, skip in zip(encodings, repeated, strict=True)]),
    )


def compact(encoding: Encoding) -> tuple[Floats, TokenCodes]:
    """What is kept of a document's chunk, copied: a view would keep the whole run's arrays alive, 300 KB a
    chunk."""
    return encoding.vector.copy(), pack(encoding)


@contextmanager
def _on_error(handle: Callable[[Exception], None]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever an encoder raises, the thread must go on
        handle(error)


class Embedder:
    """Owns the thread. `load` is called in it, so that loading blocks nobody; until it returns, work waits.

    Futures end with a result, or with EmbedderClosed, EmbedderFailed or EncodeFailed. They may be cancelled
    at any time. Their callbacks run in the embed thread and should only hand over (as asyncio's do)."""

    def __init__(self, load: Callable[[], Encoder]) -> None:
        self.state: Literal["loading", "ready", "failed"] = "loading"
        self.error: str | None = None
        self.encoder: Encoder | None = None
        self._load = load
        self._serving: Encoder | None = None  # what has cut the texts that wait
        self._closed = False
        self._changed = threading.Condition()  # guards everything here; notified on work, reload and close
        self._queries: dict[_Job, None] = {}  # ordered sets of what is not yet settled
        self._documents: dict[_Job, None] = {}
        self._thread = threading.Thread(target=self._work, name="embedder", daemon=True)

    @property
    def queue_length(self) -> int:
        """Texts, queries and documents, whose futures are not settled."""
        return len(self._queries) + len(self._documents)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout: float = 5.0) -> None:
        """Fail what is pending with EmbedderClosed and wait up to `timeout` seconds for the run or the load
        in progress. Harmless when repeated."""
        with self._changed:
            self._closed = True
            pending = [*self._queries, *self._documents]
            self._changed.notify_all()
        for job in pending:
            self._fail(job, EmbedderClosed("the embedder was closed"))
        if self._thread.is_alive():
            self._thread.join(timeout)

    def swap(self, encoder: Encoder) -> None:
        """Embed with another encoder from now on. What waits is embedded by it from the beginning; a run that
        is under way ends with the old one, so that who must know compares fingerprints afterwards."""
        with self._changed:
            self.encoder, self.state, self.error = encoder, "ready", None
            self._changed.notify_all()

    def reload(self) -> None:
        """After a failed load, load again; otherwise nothing."""
        with self._changed:
            if self.state == "failed":
                self.state, self.error = "loading", None
                self._changed.notify_all()

    def embed_query(self, text: str) -> Future[QueryEncoding]:
        return self._submit(self._queries, _Job(text, _whole_query, True, QUERY_CHUNKS))

    def embed_document(self, text: str) -> Future[Embedded]:
        """The vectors and word pieces of each chunk, in the order of the text."""
        return self._submit(self._documents, _Job(text, Embedded.of, False))

    def _submit(self, queue: dict[_Job, None], job: _Job) -> Future[Any]:
        with self._changed:
            if not self._closed and self.state != "failed":
                queue[job] = None
                self._changed.notify_all()
                return job.future
            closed, error = self._closed, self.error
        refusal = EmbedderClosed("the embedder is closed") if closed else EmbedderFailed(error)
        job.future.set_exception(refusal)
        return job.future

    def _work(self) -> None:
        give_way(NICE)
        while self._wait_until(lambda: self.state == "loading" or self.encoder not in (None, self._serving)):
            with _on_error(self._loading_failed):
                encoder = self.encoder or self._load()
                with self._changed:
                    self._serving = self.encoder = self.encoder or encoder
                    self.state = "ready"
                    for job in (*self._queries, *self._documents):
                        job.chunks, job.encodings = [], {}
                self._serve(self._serving)

    def _loading_failed(self, cause: Exception) -> None:
        with self._changed:
            self.state, self.encoder = "failed", None
            self.error = f"{type(cause).__name__}: {cause}"
            pending, error = [*self._queries, *self._documents], self.error
        for job in pending:
            self._fail(job, EmbedderFailed(error), cause)

    def _wait_until(self, ready: Callable[[], bool]) -> bool:
        """Sleep until there is something to do. False: the embedder was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or ready())
            return not self._closed

    def _serve(self, encoder: Encoder) -> None:
        """Until closed, or until another encoder takes its place."""
        while self._wait_until(lambda: bool(self._queries or self._documents) or self.encoder is not encoder):
            if self.encoder is not encoder:
                return
            self._answer_queries(encoder)
            for run in _similar_runs(self._next_slices(encoder, self._pending(self._documents))):
                self._encode(encoder, run)
                self._answer_queries(encoder)

    def _answer_queries(self, encoder: Encoder) -> None:
        while jobs := self._pending(self._queries):
            for run in _similar_runs(self._next_slices(encoder, jobs)):
                self._encode(encoder, run)

    def _next_slices(self, encoder: Encoder, jobs: Sequence[_Job]) -> list[_Slice]:
        """One round: the next few chunks of the oldest text, then of the shortest. A round is finished
        before the next begins, so that the chunks of a job that are done are its first ones."""
        slices: list[_Slice] = []
        for job in (*jobs[:1], *sorted(jobs[1:], key=lambda job: len(job.text))):
            if len(slices) >= ROUND_CHUNKS:
                break
            self._cut(encoder, job)
            done = len(job.encodings)
            slices += [(job, index) for index in range(done, min(done + TEXT_CHUNKS, len(job.chunks)))]
        return slices

    def _pending(self, queue: dict[_Job, None]) -> list[_Job]:
        with self._changed:
            for job in [job for job in queue if job.future.cancelled()]:
                del queue[job]
            return list(queue)

    def _cut(self, encoder: Encoder, job: _Job) -> None:
        if not job.chunks:
            with _on_error(lambda cause: self._fail(job, EncodeFailed(type(cause).__name__), cause)):
                chunks = encoder.chunk(job.text) or [Chunk()]  # never none: such a job would never end
                for chunk in chunks:
                    chunk.of_query = job.query
                job.chunks = chunks[: job.most]

    def _encode(self, encoder: Encoder, run: list[_Slice]) -> None:
        """One forward pass. Whoever is complete is settled at once: its commit overlaps the next run."""
        run = [(job, index) for job, index in run if not job.future.done()]
        if not run:
            return

        def fail(cause: Exception) -> None:
            for job, _ in run:
                self._fail(job, EncodeFailed(type(cause).__name__), cause)

        with _on_error(fail):
            encodings = encoder.encode([job.chunks[index] for job, index in run])
            for (job, index), encoding in zip(run, encodings, strict=True):
                job.encodings[index] = encoding if job.query else compact(encoding)
                if len(job.encodings) == len(job.chunks):
                    result = job.result([job.encodings[i] for i in range(len(job.chunks))])
                    self._leave(job)
                    with suppress(InvalidStateError):  # cancelled or closed meanwhile
                        job.future.set_result(result)

    def _fail(self, job: _Job, error: EmbeddingError, cause: Exception | None = None) -> None:
        error.__cause__ = cause
        self._leave(job)
        with suppress(InvalidStateError):
            job.future.set_exception(error)

    def _leave(self, job: _Job) -> None:
        with self._changed:
            self._queries.pop(job, None)
            self._documents.pop(job, None)
