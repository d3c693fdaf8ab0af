"""Rebuilding inside a server that goes on: real HTTP, a real ledger, a real Chroma. The new model waits where
a test wants to see what happens meanwhile."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pytest

from models.embedder import Embedder
from models.embedding import Encoder, Encoding
from tests.hash_encoder import HashEncoder
from tests.serving import JSON, Server, eventually, refused, server
from tests.test_rebuild import NEW, OLD, directories, in_sight, in_step, vectors

COUNT = 60


class Waiting(HashEncoder):
    """Says that it has begun, and embeds when it may."""

    def __init__(self, dimensions: int) -> None:
        super().__init__(dimensions)
        self.begun = threading.Event()
        self.may = threading.Event()

    def encode(self, chunks: Sequence[Sequence[int]]) -> list[Encoding]:
        self.begun.set()
        assert self.may.wait(60)
        return super().encode(chunks)


class Owner:
    """Calls the internal route as the command line does."""

    def __init__(self, running: Server) -> None:
        headers = {"Authorization": f"Bearer {running.owner.token}"}
        self._http = httpx.Client(base_url=running.owner.url, headers=headers, trust_env=False, timeout=60)

    def ask(self, method: str, **order: object) -> JSON:
        answer = self._http.request(method, "/internal/rebuild", json=order or None)
        assert answer.status_code < 300, answer.text
        found: JSON = answer.json()
        return found

    def finished(self) -> JSON:
        """The status once it runs no more."""
        eventually(lambda: self.ask("GET")["state"] != "running")
        return self.ask("GET")


@contextmanager
def running(directory: Path, model: Encoder, dimensions: int = OLD) -> Iterator[tuple[Server, Owner]]:
    with server(directory, lambda: HashEncoder(dimensions), load_model=lambda name: model) as it:
        eventually(lambda: it.brain.meaning.fingerprint() is not None)
        it.api.of("a").batch([{"content": f"note {n} about word{n}"} for n in range(COUNT)])
        it.settle()
        yield it, Owner(it)


def test_reads_writes_and_searches_go_on_until_the_new_model_answers_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    model = Waiting(NEW)
    with running(tmp_path, model) as (it, owner):
        api = it.api.of("a")
        assert owner.ask("POST", model="new")["state"] == "running"
        assert model.begun.wait(60)
        assert "already" in refusal(it) or "under way" in refusal(it)
        # Held up in the middle of it: everything is as before.
        added = api.add("Added meanwhile, about word1001.")
        assert added["indexed"] is True
        gone = api.search("note word7")["results"][0]["memory_id"]
        assert api.request("DELETE", f"/brain/memory/{gone}").status_code == 200
        purged = api.search("note word8")["results"][0]["memory_id"]
        assert api.post("/brain/purge", {"memory_id": purged}).status_code == 200
        found = api.search("added meanwhile word1001")
        assert not found["degraded"] and "vector" in found["results"][0]["matched_by"]
        with ThreadPoolExecutor(2) as pool:
            stop = threading.Event()
            writers = [pool.submit(write_until, it, stop, name) for name in ("b", "a")]
            try:
                model.may.set()
                done = owner.finished()
            finally:
                stop.set()
            written = [id for writer in writers for id in writer.result()]
        assert done["state"] == "done", done
        assert done["report"]["fingerprint"] == "hash:32" and written
        in_step(it)
        assert in_sight(tmp_path) >= {added["memory"]["memory_id"], *written}
        embedded = {id for id, _ in vectors(tmp_path, "hash:32")}
        assert embedded >= in_sight(tmp_path) and purged not in embedded
        assert it.brain.meaning.stored == "hash:32"
        found = api.search("added meanwhile word1001")
        assert not found["degraded"] and "vector" in found["results"][0]["matched_by"]
        for id in written:
            assert api.of("a").get(f"/brain/memory/{id}").status_code in (200, 404)  # 404: agent b's
    with server(tmp_path, lambda: HashEncoder(NEW)) as it:
        in_step(it)


def refusal(it: Server) -> str:
    headers = {"Authorization": f"Bearer {it.owner.token}"}
    url = f"{it.owner.url}/internal/rebuild"
    answer = httpx.post(url, json={}, headers=headers, trust_env=False, timeout=60)
    return str(refused(answer, 409, "conflict_state")["detail"])


def write_until(it: Server, stop: threading.Event, agent: str) -> list[str]:
    """Add one memory after the other, and see that each is found at once and by whatever model."""
    api, ids = it.api.of(agent), list[str]()
    while not stop.is_set():
        text = f"Of agent {agent}, entry{len(ids)}."
        ids.append(api.add(text)["memory"]["memory_id"])
        found = api.search(f"agent {agent} entry{len(ids) - 1}")
        assert text in [hit["content"] for hit in found["results"]], found
    return ids


def test_a_cancelled_one_leaves_no_trace_but_vectors_to_go_on_from(tmp_path: Path) -> None:
    model = Waiting(NEW)
    with running(tmp_path, model) as (it, owner):
        before = directories(tmp_path)
        owner.ask("POST", model="new")
        assert model.begun.wait(60)
        owner.ask("DELETE")
        model.may.set()
        assert owner.finished()["state"] == "cancelled"
        assert it.brain.meaning.stored == "hash:64" and directories(tmp_path) == before
        in_step(it)
        owner.ask("POST", model="new")
        assert owner.finished()["state"] == "done"
        in_step(it)
        owner.ask("POST", action="rollback")
        assert owner.finished()["state"] == "done"
        assert it.brain.meaning.stored == "hash:64"


def test_what_was_purged_stands_in_no_file_of_either_generation(tmp_path: Path) -> None:
    with running(tmp_path, HashEncoder(NEW)) as (it, owner):
        api = it.api.of("a")
        secret = api.add("The codeword is xylophonequartz.")["memory"]["memory_id"]
        it.settle()
        owner.ask("POST", model="new")
        assert owner.finished()["state"] == "done"
        assert holding(tmp_path, b"xylophonequartz")
        receipt = api.post("/brain/purge", {"memory_id": secret, "wait": True})
        assert receipt.status_code == 200, receipt.text
        eventually(lambda: not it.brain.shards.due())
        in_step(it)
        owner.ask("POST", action="rollback")  # to a generation that has lost this shard's directory
        assert owner.finished()["state"] == "done", owner.finished()
    assert holding(tmp_path, b"xylophonequartz") == []


def holding(data: Path, text: bytes) -> list[str]:
    return [str(file) for file in data.rglob("*") if file.is_file() and text in file.read_bytes()]


def test_a_model_that_cannot_be_loaded_is_refused_and_the_present_one_serves_on(tmp_path: Path) -> None:
    with running(tmp_path, HashEncoder(NEW)) as (it, owner):
        owner.ask("POST", model="new", scope=["default/a"])
        failed = owner.finished()
        assert failed["state"] == "failed" and failed["problem"]["code"] == "invalid_argument"
        headers = {"Authorization": f"Bearer {it.owner.token}"}
        url = f"{it.owner.url}/internal/rebuild"
        answer = httpx.post(url, json={"modell": "x"}, headers=headers, trust_env=False, timeout=60)
        refused(answer, 422, "invalid_argument", "modell")
        anybody = httpx.post(url, json={}, trust_env=False, timeout=60)
        refused(anybody, 403, "forbidden")
        in_step(it)


@pytest.mark.parametrize("waiting", [True, False])
def test_what_waits_when_the_encoder_is_swapped_is_embedded_by_the_new_one(waiting: bool) -> None:
    first = Waiting(OLD)
    embedder = Embedder(lambda: first)
    embedder.start()
    try:
        busy = embedder.embed_document("one that is under way")
        assert first.begun.wait(60)
        queued = embedder.embed_document("one that waits") if waiting else None
        embedder.swap(HashEncoder(NEW))
        first.may.set()
        assert busy.result(60).vectors[0].shape in ((OLD,), (NEW,))
        later = queued or embedder.embed_document("one that comes later")
        vectors = later.result(60).vectors
        assert vectors.shape == (1, NEW) and np.isfinite(vectors).all()
        assert embedder.embed_query("a question").result(60).vector.shape == (NEW,)
    finally:
        first.may.set()
        embedder.close()
