"""The embed thread, with an encoder that goes on only when the test says so."""

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

import numpy as np
import pytest

from models.embedder import Embedder, EmbedderClosed, EmbedderFailed, EncodeFailed
from models.embedding import Chunk, Encoder, Encoding
from tests.hash_encoder import HashEncoder

TIMEOUT = 60  # seconds until a test that hangs fails; nothing waits that long


class SteppedEncoder(HashEncoder):
    """Announces each run (as the first words of its texts) and waits to be let on."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: queue.Queue[list[str]] = queue.Queue()
        self.permits = threading.Semaphore(0)
        self._names: dict[int, str] = {}

    def chunk(self, text: str) -> list[Chunk]:
        if text == "unchunkable":
            raise UnicodeError(text)
        chunks = super().chunk(text)
        self._names |= {chunk[0]: text.split()[0] for chunk in chunks if chunk}
        return chunks

    def encode(self, chunks: Sequence[Chunk]) -> list[Encoding]:
        names = [self._names[chunk[0]] for chunk in chunks]
        self.runs.put(names)
        assert self.permits.acquire(timeout=TIMEOUT)
        if "bad" in names:
            raise ValueError("bad")
        return super().encode(chunks)

    def running(self) -> list[str]:
        """Wait until a run has begun, and name it."""
        return self.runs.get(timeout=TIMEOUT)

    def step(self) -> None:
        self.permits.release()

    def run_all(self) -> None:
        self.permits.release(100_000)


@pytest.fixture
def encoder() -> SteppedEncoder:
    return SteppedEncoder()


@pytest.fixture
def embedder(encoder: SteppedEncoder) -> Iterator[Embedder]:
    embedder = Embedder(lambda: encoder)
    embedder.start()
    yield embedder
    encoder.run_all()
    embedder.close()


def test_a_query_and_a_document_get_the_encoders_vectors(encoder: SteppedEncoder, embedder: Embedder) -> None:
    encoder.run_all()
    document = embedder.embed_document("green tea").result(TIMEOUT)
    query = embedder.embed_query("green tea").result(TIMEOUT)
    expected = HashEncoder().encode(HashEncoder().chunk("green tea"))[0]
    np.testing.assert_allclose(query.vector, expected.vector, atol=1e-6)
    np.testing.assert_allclose(query.tokens, expected.tokens)
    assert query.pieces.tolist() == document.pieces[0].pieces.tolist() == expected.pieces.tolist()
    np.testing.assert_allclose(document.vectors, [expected.vector], atol=1e-6)
    (chunk,) = document.pieces
    np.testing.assert_allclose(chunk.codes * chunk.scales[:, None], expected.tokens, atol=0.01)


def test_a_document_has_an_encoding_for_each_chunk_in_its_order(
    encoder: SteppedEncoder, embedder: Embedder
) -> None:
    encoder.run_all()
    text = " ".join(f"w{i}" for i in range(2345))
    embedded = embedder.embed_document(text).result(TIMEOUT)
    assert [chunk.pieces.tolist() for chunk in embedded.pieces] == HashEncoder().chunk(text)
    assert embedded.vectors.shape == (len(embedded.pieces), 64)


def test_a_query_of_several_chunks_becomes_one_encoding_without_repeats(
    encoder: SteppedEncoder, embedder: Embedder
) -> None:
    encoder.run_all()
    text = " ".join(f"w{i}" for i in range(370))
    query = embedder.embed_query(text).result(TIMEOUT)
    parts = HashEncoder().encode(HashEncoder().chunk(text))
    mean = np.mean([part.vector for part in parts], axis=0)
    np.testing.assert_allclose(query.vector, mean / np.linalg.norm(mean), atol=1e-6)
    assert len(set(query.pieces.tolist())) == len(query.pieces) == len(query.tokens) == 370


def test_of_a_query_of_many_chunks_only_the_first_two_count(
    encoder: SteppedEncoder, embedder: Embedder
) -> None:
    encoder.run_all()
    words = [f"w{i}" for i in range(2000)]
    query = embedder.embed_query(" ".join(words)).result(TIMEOUT)
    first, second = HashEncoder().chunk(" ".join(words[:370]))
    assert query.pieces.tolist() == first + second[30:]


def test_a_document_keeps_nothing_of_its_run_alive(encoder: SteppedEncoder, embedder: Embedder) -> None:
    encoder.run_all()
    embedded = embedder.embed_document("green tea").result(TIMEOUT)
    kept = [embedded.vectors, embedded.pieces[0].codes, embedded.pieces[0].scales]
    assert [array.base for array in kept] == [None, None, None]


def test_a_short_document_does_not_wait_for_a_pile_of_long_ones(
    encoder: SteppedEncoder, embedder: Embedder
) -> None:
    embedder.embed_document("first")
    assert encoder.running() == ["first"]
    for name in "abcdefgh":
        embedder.embed_document(" ".join([name] * 3000))
    embedder.embed_document("short")
    encoder.step()
    assert encoder.running() == ["short"]


def test_queries_go_before_the_documents_that_wait(encoder: SteppedEncoder, embedder: Embedder) -> None:
    embedder.embed_document("first")
    assert encoder.running() == ["first"]
    for name in "abcdefgh":
        embedder.embed_document(f"document{name}")
    embedder.embed_query("query one")
    encoder.step()
    assert encoder.running() == ["query"]
    encoder.step()
    assert len(encoder.running()) == 4  # the first run of the waiting documents
    embedder.embed_query("query two")
    encoder.step()
    assert encoder.running() == ["query"]
    encoder.step()
    assert len(encoder.running()) == 4


def test_a_query_goes_between_the_chunks_of_one_document(encoder: SteppedEncoder, embedder: Embedder) -> None:
    embedder.embed_document("huge " * 3000)
    assert encoder.running() == ["huge"]
    query = embedder.embed_query("query")
    encoder.step()
    assert encoder.running() == ["query"]
    encoder.step()
    assert query.result(TIMEOUT).vector.shape == (64,)


def test_what_is_queued_runs_together_when_its_lengths_are_similar(
    encoder: SteppedEncoder, embedder: Embedder
) -> None:
    embedder.embed_document("first")
    assert encoder.running() == ["first"]
    for name, words in {"long1": 150, "short1": 5, "middle1": 25, "short2": 6, "middle2": 27}.items():
        embedder.embed_document(f"{name} " * words)
    runs = []
    for _ in range(3):
        encoder.step()
        runs.append(encoder.running())
    assert runs == [["short1", "short2"], ["middle1", "middle2"], ["long1"]]


def test_a_document_is_settled_before_the_next_run_ends(encoder: SteppedEncoder, embedder: Embedder) -> None:
    first = embedder.embed_document("first")
    assert encoder.running() == ["first"]
    second = embedder.embed_document("second")
    encoder.step()
    assert encoder.running() == ["second"]
    assert first.done()
    assert not second.done()


def test_a_huge_document_starves_nobody_and_ends_too(encoder: SteppedEncoder, embedder: Embedder) -> None:
    huge = embedder.embed_document("huge " * 50_000)
    assert encoder.running() == ["huge"]
    small = embedder.embed_document("small")
    chunks_before = 1
    encoder.step()
    while (run := encoder.running()) == ["huge"]:
        chunks_before += 1
        encoder.step()
    assert run == ["small"]
    assert chunks_before <= 4
    encoder.step()
    assert len(small.result(TIMEOUT).pieces) == 1
    encoder.run_all()
    assert len(huge.result(TIMEOUT).pieces) == 294


def test_a_failing_run_fails_only_its_own_texts(encoder: SteppedEncoder, embedder: Embedder) -> None:
    first = embedder.embed_document("first")
    assert encoder.running() == ["first"]
    bad = embedder.embed_document("bad")
    companion = embedder.embed_document("companion")
    other = embedder.embed_document("other " * 20)
    encoder.run_all()
    for future in (bad, companion):
        with pytest.raises(EncodeFailed) as failure:
            future.result(TIMEOUT)
        assert isinstance(failure.value.__cause__, ValueError)
    assert len(first.result(TIMEOUT).pieces) == len(other.result(TIMEOUT).pieces) == 1
    assert embedder.embed_query("later").result(TIMEOUT).vector.shape == (64,)
    assert embedder.state == "ready"


def test_a_text_that_cannot_be_cut_fails_alone(encoder: SteppedEncoder, embedder: Embedder) -> None:
    encoder.run_all()
    bad, good = embedder.embed_document("unchunkable"), embedder.embed_document("good")
    with pytest.raises(EncodeFailed):
        bad.result(TIMEOUT)
    assert len(good.result(TIMEOUT).pieces) == 1


def test_a_cancelled_text_is_not_encoded(encoder: SteppedEncoder, embedder: Embedder) -> None:
    embedder.embed_document("first")
    assert encoder.running() == ["first"]
    cancelled, kept = embedder.embed_document("cancelled"), embedder.embed_document("kept")
    assert cancelled.cancel()
    encoder.step()
    assert encoder.running() == ["kept"]
    encoder.step()
    assert len(kept.result(TIMEOUT).pieces) == 1
    with pytest.raises(CancelledError):
        cancelled.result(TIMEOUT)


def test_a_text_cancelled_during_its_run_harms_nobody(encoder: SteppedEncoder, embedder: Embedder) -> None:
    cancelled = embedder.embed_document("cancelled")
    assert encoder.running() == ["cancelled"]
    assert cancelled.cancel()
    encoder.run_all()
    assert len(embedder.embed_document("next").result(TIMEOUT).pieces) == 1
    assert embedder.queue_length == 0


def test_the_queue_length_counts_what_is_not_settled(encoder: SteppedEncoder, embedder: Embedder) -> None:
    futures = [embedder.embed_document("first")]
    assert encoder.running() == ["first"]
    futures.append(embedder.embed_document("second"))
    query = embedder.embed_query("query")
    assert embedder.queue_length == 3
    encoder.run_all()
    query.result(TIMEOUT)
    for future in futures:
        future.result(TIMEOUT)
    assert embedder.queue_length == 0


def test_work_submitted_while_loading_waits_for_the_encoder() -> None:
    loaded = threading.Event()

    def load() -> Encoder:
        assert loaded.wait(TIMEOUT)
        return HashEncoder()

    embedder = Embedder(load)
    embedder.start()
    early = embedder.embed_query("early")
    assert (embedder.state, embedder.encoder, early.done()) == ("loading", None, False)
    loaded.set()
    assert early.result(TIMEOUT).vector.shape == (64,)
    assert embedder.state == "ready"
    assert isinstance(embedder.encoder, HashEncoder)
    embedder.close()


def loads_at_the_second_attempt() -> Callable[[], Encoder]:
    attempts = iter([False, True])

    def load() -> Encoder:
        if not next(attempts):
            raise OSError("no weights")
        return HashEncoder()

    return load


def test_a_failed_load_fails_what_waits_and_what_comes_until_a_reload() -> None:
    embedder = Embedder(loads_at_the_second_attempt())
    early = embedder.embed_document("early")
    embedder.start()
    with pytest.raises(EmbedderFailed, match="no weights"):
        early.result(TIMEOUT)
    assert (embedder.state, embedder.error) == ("failed", "OSError: no weights")
    with pytest.raises(EmbedderFailed, match="no weights"):
        embedder.embed_query("late").result(TIMEOUT)
    embedder.reload()
    assert embedder.embed_query("again").result(TIMEOUT).vector.shape == (64,)
    assert (embedder.state, embedder.error) == ("ready", None)
    embedder.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no priority of their own")
def test_who_embeds_gives_way_to_who_answers() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    priorities: queue.SimpleQueue[int] = queue.SimpleQueue()

    def load() -> Encoder:
        priorities.put(priority())
        return HashEncoder()

    embedder = Embedder(load)
    embedder.start()
    assert priorities.get(timeout=30) > priority()
    embedder.close()


def test_closing_fails_what_is_pending_at_once_and_refuses_what_comes(
    encoder: SteppedEncoder, embedder: Embedder
) -> None:
    pending: list[Future[Any]] = [embedder.embed_document("running"), embedder.embed_query("waiting")]
    encoder.running()
    embedder.close(timeout=0)
    for future in [*pending, embedder.embed_query("late"), embedder.embed_document("later")]:
        with pytest.raises(EmbedderClosed):
            future.result(0)


def test_closing_before_the_start_fails_what_was_submitted() -> None:
    embedder = Embedder(HashEncoder)
    future = embedder.embed_query("never")
    embedder.close()
    with pytest.raises(EmbedderClosed):
        future.result(0)
