"""The model raises or takes for ever while the server runs: what is written is stored, found by its words,
and gets its vectors later."""

from collections.abc import Iterator

import pytest

from tests.faults.processes import PATIENCE_S, Victim, victim
from tests.serving import Api, eventually, fresh


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with victim(tmp_path_factory.mktemp("model") / "data", "write__embed_wait_ms=100") as server:
        server.api.add("Warm.")
        server.ready()
        yield server


@pytest.fixture
def api(server: Victim) -> Api:
    return server.api.of(fresh())


@pytest.mark.parametrize("fault", ["raise", "slow"])
def test_without_an_answer_of_the_model_writes_are_stored_and_found_by_words(
    server: Victim, api: Api, fault: str
) -> None:
    switch = server.control / fault
    switch.touch()
    try:
        added = api.add("The quarry closes in winter.")
        memory_id = added["memory"]["memory_id"]
        assert added["indexed"] is False
        answer = api.search("quarry winter")
        [hit] = answer["results"]
        assert hit["memory_id"] == memory_id and "vector" not in hit["matched_by"]
        assert answer["degraded"] and answer["degraded_reason"]
        changed = api.request("PATCH", f"/brain/memory/{memory_id}", {"content": "The quarry never closes."})
        assert changed.status_code == 200, changed.text
        assert api.batch([{"content": f"Stone {number}."} for number in range(20)])["results"]
    finally:
        switch.unlink()

    def by_meaning() -> bool:
        answer = api.search("the quarry never closes", limit=1)
        return not answer["degraded"] and "vector" in answer["results"][0]["matched_by"]

    eventually(by_meaning, PATIENCE_S)
    server.ready()
