"""Chroma hangs, raises or loses its files while the server runs: nobody waits for it, nothing is lost, and it
is brought in step again."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.processes import PATIENCE_S, Victim, victim
from tests.serving import Api, eventually, fresh


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with victim(tmp_path_factory.mktemp("chroma") / "data") as server:
        server.api.add("Warm.")
        server.ready()
        yield server


@pytest.fixture
def api(server: Victim) -> Api:
    return server.api.of(fresh())


def works(api: Api) -> dict[str, str]:
    """Every way of writing and reading, none of them waiting for Chroma. What is stored now."""
    text = "The lighthouse keeper keeps bees."
    first = api.add(text)["memory"]["memory_id"]
    second = api.add("A second memory about tides.")["memory"]["memory_id"]
    answer = api.search("who keeps bees?", limit=1)
    assert [hit["memory_id"] for hit in answer["results"]] == [first]
    assert "vector" in answer["results"][0]["matched_by"]
    assert api.memory(first)["content"] == text
    new = api.request("PATCH", f"/brain/memory/{second}", {"content": "Tides turn twice a day."})
    assert new.status_code == 200, new.text
    assert api.request("DELETE", f"/brain/memory/{second}").status_code == 200
    third = new.json()["memory"]["memory_id"]
    return {first: text, third: "Tides turn twice a day."}


def healed(server: Victim, api: Api, stored: dict[str, str]) -> None:
    """Chroma holds everything again, and a server that has nothing in memory yet reads from it."""
    server.ready()
    assert {id: api.memory(id)["content"] for id in stored} == stored


def test_a_chroma_that_hangs_holds_nobody_up_and_catches_up(server: Victim, api: Api) -> None:
    """Nothing is given up meanwhile: whoever waited for it would get no answer at all."""
    child, patient = server.chroma(), server.control / "patient"
    patient.touch()
    os.kill(child, signal.SIGSTOP)
    try:
        stored = works(api)
        assert server.api.readyz()["vdb"]["index_lag"] > 0
        assert server.chroma() == child
    finally:
        patient.unlink()
        os.kill(child, signal.SIGCONT)
    healed(server, api, stored)


def test_a_chroma_whose_files_are_broken_is_filled_anew(server: Victim, api: Api) -> None:
    before = works(api)
    server.ready()
    for file in (server.data / "vdb").rglob("*"):
        if file.is_file() and file.name != "worker.lock":
            file.write_bytes(b"not a database")
    os.kill(server.chroma(), signal.SIGKILL)  # what it has open, it would go on using
    stored = works(api)
    eventually(lambda: server.api.readyz()["vdb"]["index_lag"] == 0, PATIENCE_S)
    healed(server, api, before | stored)


def test_a_chroma_whose_directory_is_deleted_is_filled_anew(server: Victim, api: Api) -> None:
    before = works(api)
    server.ready()
    shutil.rmtree(server.data / "vdb")
    stored = works(api)
    healed(server, api, before | stored)
    eventually(lambda: any((server.data / "vdb").glob("*/chroma.sqlite3")), PATIENCE_S)


def test_afterwards_the_next_server_reads_everything_from_chroma(tmp_path: Path) -> None:
    """The same three faults in a row, and then a restart."""
    with victim(tmp_path / "data") as server:
        stored = works(server.api)
        server.ready()
        os.kill(server.chroma(), signal.SIGSTOP)
        stored |= works(server.api)
        assert server.terminate() == 0, "a Chroma that hangs must not keep the server from stopping"
    shutil.rmtree(tmp_path / "data" / "vdb")
    with victim(tmp_path / "data") as server:
        server.ready()
        for memory_id, text in stored.items():
            assert server.api.memory(memory_id)["content"] == text
