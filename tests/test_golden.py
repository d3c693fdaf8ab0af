"""Small scenarios that a user would expect to work, with the real model through the real server: what is
stored, what is asked, and what must come first, stay beneath, be left out, or not be answered at all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from models.embedding import Encoder
from models.multilingual import TWIN, open_encoder
from tests.recalling import NOW
from tests.serving import JSON, Api, Server, eventually, fresh, refused, server, succeeded

pytest_plugins = ["tests.embedding_fixtures"]

FOLDER = Path(__file__).parent / "golden"
FILLER = " ".join(
    f"On day {n} of the voyage the sailors mended ropes, salted cod and sang of distant islands."
    for n in range(25)
)
KEYS = set("name memories query options first first_text second top not_above absent abstains".split())


def scenarios() -> list[Any]:
    found = []
    for file in sorted(FOLDER.glob("*.yaml")):
        for scenario in yaml.safe_load(file.read_text(encoding="utf-8")):
            assert not set(scenario) - KEYS, (file.name, scenario)
            found.append(pytest.param(scenario, id=f"{file.stem}: {scenario['name']}"))
    return found


def fields_of(memory: str | JSON) -> JSON:
    """What to add; a text alone is the content."""
    fields = {"content": memory} if isinstance(memory, str) else dict(memory)
    return fields | {"content": fields["content"].replace("{filler}", FILLER)}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory, onnx_folder: Path) -> Iterator[Server]:
    def load() -> Encoder:
        return open_encoder(TWIN, onnx_folder)

    with server(tmp_path_factory.mktemp("golden"), load, clock=lambda: NOW) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None, within=60)
        yield running


def store(api: Api, memories: JSON) -> dict[str, str]:
    """Add them in their order, but for those that must be `refused` with a code; the key of each id."""
    ids: dict[str, str] = {}
    for key, memory in memories.items():
        fields = fields_of(memory)
        if "supersedes" in fields:
            fields["supersedes"] = [ids[old] for old in fields["supersedes"]]
        if code := fields.pop("refused", None):
            refused(api.try_add(**fields), 409, code)
            continue
        ids[key] = succeeded(api.try_add(**fields))["memory"]["memory_id"]
    return {id: key for key, id in ids.items()}


def check(scenario: JSON, keys: list[str], contents: list[str]) -> None:
    """Judge an answer: the keys and contents of its results, best first."""
    if scenario.get("abstains"):
        assert keys == []
        return
    assert keys, "no answer"
    first = scenario.get("first")
    assert first in (None, keys[0]), keys
    assert scenario.get("first_text", contents[0]).casefold().split() == contents[0].casefold().split()
    assert scenario.get("second") in (None, *keys[1:2]), keys
    top = scenario.get("top", [])
    assert set(keys[: len(top)]) == set(top), keys
    assert not set(keys) & set(scenario.get("absent", [])), keys
    for other in scenario.get("not_above", []):
        assert other not in keys or keys.index(other) > keys.index(first)


@pytest.mark.parametrize("scenario", scenarios())
def test_a_user_finds_what_they_expect(golden: Server, scenario: JSON) -> None:
    api = golden.api.of(fresh("golden"))
    key_of = store(api, scenario["memories"])
    answer = api.search(scenario["query"], **scenario.get("options", {}))
    assert not answer["degraded"]
    keys = [key_of[hit["memory_id"]] for hit in answer["results"]]
    assert answer["abstained"] == (not keys)
    check(scenario, keys, [hit["content"] for hit in answer["results"]])


def test_there_are_scenarios_of_every_kind() -> None:
    assert len(scenarios()) >= 60
