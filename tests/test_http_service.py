"""What stands outside the scope: health, readiness, metrics; and the service while its model is not there."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from models.embedding import Encoder
from models.multilingual import TWIN
from stores.writer import Transaction
from tests.hash_encoder import HashEncoder
from tests.serving import Api, Server, eventually, refused, server

pytest_plugins = ["tests.serving_fixtures"]


def test_healthz_says_that_the_process_lives(api: Api) -> None:
    answer = api.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_readyz_names_each_store(shared_server: Server, api: Api) -> None:
    api.search("anything")
    shared_server.settle()
    ready = eventually(lambda: (found := api.readyz())["vdb"]["available"] and found)
    assert ready["status"] == "ready"
    assert ready["ledger"] == {"available": True, "error": None}
    assert ready["vdb"] == {"available": True, "index_lag": 0, "parked": [], "error": None}
    assert ready["embedding"] == {
        "state": "ready", "model": TWIN, "fingerprint": "hash:64", "problem": None
    }  # fmt: skip
    assert ready["graph"]["partitions"] >= 0 and ready["graph"]["bytes"] >= 0


def test_metrics_count_answers_and_name_no_tenant_and_no_text(api: Api) -> None:
    secret = api.of(agent="agent-xyzzy", user="user-xyzzy")
    id = secret.add("text-xyzzy", tags=["tag-xyzzy"], session_id="session-xyzzy")["memory"]["memory_id"]
    secret.search("query-xyzzy")
    secret.memory(id)
    secret.get("/brain/memory/id-xyzzy")
    secret.get("/path-xyzzy")
    secret.get("/brain/memory", params={"xyzzy": "1"})
    answer = api.get("/metrics")
    text = answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    assert "xyzzy" not in text and id not in text
    for expected in (
        'brain_requests_total{operation="brain_memory_add",status="201"}',
        'brain_requests_total{operation="brain_memory_get",status="404"}',
        'brain_requests_total{operation="brain_memory_list",status="422"}',
        'brain_requests_total{operation="other",status="404"}',
        'brain_request_seconds_bucket{le="0.001",operation="brain_memory_search"}',
        "brain_index_lag ", "brain_resident_bytes ", "brain_embedding_queue ", "brain_vdb_available ",
    ):  # fmt: skip
        assert expected in text
    labels = set(re.findall(r'(\w+)="', text))
    assert labels == {"operation", "status", "le"}


class Gate:
    """An encoder's loading that waits to be let through, or fails."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def load(self) -> Encoder:
        assert self.open.wait(60)
        return HashEncoder()


def failing() -> Encoder:
    raise OSError("no such model")


def searched_by_words_only(api: Api, cause: str) -> str:
    """Write, read and search without a model; the memory's id."""
    added = api.add("The lighthouse keeper sings.")
    id: str = added["memory"]["memory_id"]
    assert added["indexed"] is False
    assert api.memory(id)["source"] == "graph"  # Chroma has nothing yet
    answer = api.search("lighthouse")
    assert answer["degraded"] is True and cause in answer["degraded_reason"]
    assert [(hit["memory_id"], hit["matched_by"]) for hit in answer["results"]] == [(id, ["words"])]
    ready = api.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
    assert cause in ready.json()["embedding"]["problem"]
    assert ready.json()["vdb"]["index_lag"] == 1 == api.stats()["index_lag"]
    assert api.get("/healthz").status_code == 200
    assert api.batch([{"content": "More."}])["results"][0]["indexed"] is False
    return id


def test_while_the_model_is_loading_words_are_found_and_afterwards_meaning_follows(tmp_path: Path) -> None:
    gate = Gate()
    with released(gate), server(tmp_path, gate.load) as running:
        api = running.api
        id = searched_by_words_only(api, "the embedding model is loading")
        stats = api.stats()
        assert (stats["dimensions"], stats["fingerprint"]) == (None, None)
        gate.open.set()
        eventually(lambda: api.readyz()["status"] == "ready")
        running.settle()
        answer = api.search("lighthouse keeper", explain=True)
        assert not answer["degraded"] and "degraded_reason" not in answer
        [hit] = [hit for hit in answer["results"] if hit["memory_id"] == id]
        assert hit["matched_by"] == ["vector", "words"] and hit["explain"]["dense"] > 0.3
        running.evict(api)
        assert api.memory(id)["source"] == "vdb"
        assert api.add("Now at once.")["indexed"] is True
        assert api.stats()["fingerprint"] == "hash:64"


@contextmanager
def released(gate: Gate) -> Iterator[None]:
    """However the test ends, the loading ends too."""
    try:
        yield
    finally:
        gate.open.set()


def test_when_the_model_can_not_be_loaded_the_cause_is_named_and_a_restart_mends_it(tmp_path: Path) -> None:
    with server(tmp_path, failing) as running:
        eventually(lambda: running.api.readyz()["embedding"]["state"] == "failed")
        id = searched_by_words_only(running.api, "could not be loaded: OSError: no such model")
        assert running.api.get("/metrics").status_code == 200
    with server(tmp_path) as running:
        eventually(lambda: running.api.readyz()["status"] == "ready")
        running.settle()
        hits = running.api.search("lighthouse keeper")["results"]
        assert (hits[0]["memory_id"], hits[0]["matched_by"]) == (id, ["vector", "words"])


def test_another_model_than_the_memories_were_embedded_with_is_named_and_never_compared(
    tmp_path: Path,
) -> None:
    with server(tmp_path) as running:
        id = running.api.add("The lighthouse keeper sings.")["memory"]["memory_id"]
        running.settle()
    with server(tmp_path, lambda: HashEncoder(32)) as running:
        api = running.api
        eventually(lambda: "hash:32" in (api.readyz()["embedding"]["problem"] or ""))
        answer = api.search("lighthouse")
        assert answer["degraded"] and "hash:64" in answer["degraded_reason"]
        assert [(hit["memory_id"], hit["matched_by"]) for hit in answer["results"]] == [(id, ["words"])]
        assert api.add("Kept without vectors.")["indexed"] is False
        assert api.readyz()["status"] == "degraded"
    with server(tmp_path) as running:
        eventually(lambda: running.api.readyz()["status"] == "ready")
        running.settle()
        assert running.api.search("kept without")["results"][0]["matched_by"] == ["vector", "words"]


class BrokenClock:
    """Epoch ms, until it breaks: a bug inside an operation."""

    def __init__(self) -> None:
        self.broken = False

    def __call__(self) -> int:
        if self.broken:
            raise ValueError("text-xyzzy")
        return 1_700_000_000_000


def test_a_bug_of_ours_is_a_problem_document_without_its_details_and_the_service_goes_on(
    tmp_path: Path,
) -> None:
    clock = BrokenClock()
    with server(tmp_path, clock=clock) as running:
        api = running.api
        id = api.add("Before.")["memory"]["memory_id"]
        clock.broken = True
        for answer in (api.get(f"/brain/memory/{id}"), api.try_add("Meanwhile."), api.get("/brain/memory")):
            problem = refused(answer, 500, "internal_error")
            assert "xyzzy" not in answer.text and "report" in problem["hint"]
        clock.broken = False
        assert api.memory(id)["content"] == "Before."
        assert api.add("Afterwards.")["memory"]
        assert api.stats()["total"] == 2


def rename(running: Server, table: str, name: str) -> None:
    """Take a table away under the running service, or put it back."""

    def write(transaction: Transaction) -> None:
        transaction.connection.exec_driver_sql(f"ALTER TABLE {table} RENAME TO {name}")

    running.portal.call(running.brain.write, write)


def test_a_ledger_that_can_not_be_read_is_503_and_never_an_empty_answer(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        api = running.api
        api.add("Here.")
        running.settle()
        rename(running, "memories", "gone")
        for answer in (api.get("/brain/memory"), api.get("/brain/stats"), api.of(user="new").try_add("a")):
            problem = refused(answer, 503, "store_unavailable")
            assert answer.headers["retry-after"] == "1" and "SELECT" not in problem["detail"]
        rename(running, "gone", "memories")
        assert api.list()["total"] == 1
        rename(running, "outbox", "gone")
        ready = api.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
        assert ready.json()["ledger"]["error"]
        assert "brain_requests_total" in api.get("/metrics").text  # most wanted just then
        rename(running, "gone", "outbox")
        assert api.readyz()["ledger"]["available"]


@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_health_is_asked_with_either_method(api: Api, method: str) -> None:
    asked: Callable[[str], int] = lambda path: api.request(method, path).status_code  # noqa: E731
    assert [asked(path) for path in ("/healthz", "/readyz", "/metrics", "/openapi.json")] == [200] * 4
