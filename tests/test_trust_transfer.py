"""Facts, conflicts and standings in exports and imports: they come back as they were; and where a file has
only one side of a conflict, the memory stands as what is there has it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stores.lock import DataDirectoryLock
from tests.equivalence import check
from tests.serving import JSON, Api, Server, eventually, server, succeeded
from tests.test_cli import Shell

OF_THE_CALL = {"elapsed_ms", "request_id", "source", "seq"}
EVERY = "details,chain,evidence,conflicts,links"


@dataclass(frozen=True, slots=True)
class Filled:
    running: Server
    shell: Shell
    ids: dict[str, str]


def fill(api: Api) -> dict[str, str]:
    """Facts that agree and contradict each other, an open conflict and two resolved ones, feedback, and what
    rests on what fell. Ids by name."""
    ids: dict[str, str] = {}
    opened: dict[str, list[str]] = {}

    def add(name: str, object: str | None = None, about: str = "town", **fields: Any) -> None:
        if object is not None:
            fact = {"subject": about, "predicate": "is", "object": object, "single_valued": True}
            fields["facts"] = [fact]
        done = api.add(f"{name} of {about}.", **fields)
        ids[name], opened[name] = done["memory"]["memory_id"], done["conflicts"]

    def resolve(name: str, adopted: str | None) -> None:
        path = f"/brain/conflicts/{opened[name][0]}/resolve"
        succeeded(api.post(path, {"adopted": adopted, "reason": "So it is."}))

    high = {"source_authority": "policy"}
    add("early", "Porto", memory_at=1_000, actor="Ann")
    add("resting", evidence_ids=[ids["early"]])
    add("late", "Lisbon", memory_at=2_000, actor="Ann")
    add("older", "Faro", memory_at=500)
    add("same", "lisbon", actor="Bob")
    add("rule", "shut", "gate", layer="l5_knowledge", **high)
    add("denial", "open", "gate")
    add("was", "red", "door", **high)
    add("is", "blue", "door")
    resolve("is", ids["is"])
    add("one", "wide", "road", frame="a")
    add("other", "narrow", "road", frame="b")
    resolve("other", None)
    for name, verdict in (("late", "confirmed"), ("rule", "useful"), ("same", "outdated")):
        succeeded(api.post(f"/brain/memory/{ids[name]}/feedback", {"verdict": verdict}))
    return ids


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with server(tmp_path_factory.mktemp("trusted")) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        ids = fill(running.api)
        directory = running.brain.settings.data_directory
        DataDirectoryLock(directory).publish(running.owner)
        yield Filled(running, Shell(directory, running.owner), ids)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items() if name not in OF_THE_CALL}
    if isinstance(value, list):
        found = [plain(one) for one in value]
        return sorted(found, key=lambda one: json.dumps(one, sort_keys=True))
    return value


def shown(api: Api, ids: dict[str, str]) -> dict[str, JSON]:
    found = {name: plain(api.memory(id, include=EVERY)) for name, id in ids.items()}
    return found | {"conflicts": plain(succeeded(api.get("/brain/conflicts")))}


def test_all_of_it_comes_back_as_it_was_and_only_once(filled: Filled, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    assert filled.shell.run("export", str(file)).returncode == 0
    there = Shell(tmp_path / "there")
    done = there.json("import", str(file))
    assert (done["added"], done["conflicts"], done["conflicts_left_out"]) == (11, 3, 0)
    assert (done["errors"], done["links_left_out"]) == ([], 0)
    again = there.json("import", str(file))
    assert (again["present"], again["links"], again["conflicts"]) == (11, 0, 0)
    assert there.out("export", "-").split("\n")[1:] == file.read_text(encoding="utf-8").split("\n")[1:]
    assert "nothing is wrong" in there.out("doctor").lower() or there.run("doctor").returncode == 0
    with server(tmp_path / "there") as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        running.settle()
        running.portal.call(check, running.brain)
        assert shown(running.api, filled.ids) == shown(filled.running.api, filled.ids)
        # The rules go on from there.
        new = {"subject": "gate", "predicate": "is", "object": "ajar", "single_valued": True}
        answer = running.api.add("The gate is ajar.", facts=[new])
        assert answer["memory"]["status"] == "conflicted"
        assert answer["superseded"] == [filled.ids["denial"]]
        path = f"/brain/conflicts/{answer['conflicts'][0]}/resolve"
        succeeded(running.api.post(path, {"adopted": filled.ids["rule"]}))


def test_a_file_that_lacks_a_side_leaves_the_conflict_out(filled: Filled, tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    assert filled.shell.run("export", str(file), "--layers", "l2_fact").returncode == 0
    there = Shell(tmp_path / "there")
    done = there.json("import", str(file))
    assert (done["added"], done["conflicts"], done["conflicts_left_out"]) == (10, 2, 1)
    assert there.run("doctor").returncode == 0
    with server(tmp_path / "there") as running:
        got = running.api.memory(filled.ids["denial"], include="details")
        assert (got["details"]["conflicts"], got["confidence"], got["speculate"]) == ([], 0.7, None)
        assert got["status"] == "conflicted", "it has lost, and somebody may restore it"
        assert succeeded(running.api.get("/brain/conflicts"))["total"] == 0


def test_what_was_resolved_elsewhere_is_resolved_here(filled: Filled, tmp_path: Path) -> None:
    there = tmp_path / "there"
    with server(there) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        ids = fill(running.api)
        directory = running.brain.settings.data_directory
        DataDirectoryLock(directory).publish(running.owner)
        shell = Shell(directory, running.owner)
        before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
        assert shell.run("export", str(before)).returncode == 0
        [conflict] = running.api.memory(ids["denial"], include="conflicts")["conflicts"]
        path = f"/brain/conflicts/{conflict['conflict_id']}/resolve"
        succeeded(running.api.post(path, {"adopted": ids["denial"]}))
        assert shell.run("export", str(after)).returncode == 0
        expected = shown(running.api, ids)
    other = Shell(tmp_path / "other")
    other.json("import", str(before))
    done = other.json("import", str(after))
    assert (done["updated"], done["conflicts"], done["errors"]) == (2, 1, [])
    assert other.run("doctor").returncode == 0
    with server(tmp_path / "other") as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        running.settle()
        running.portal.call(check, running.brain)
        found = shown(running.api, ids)
        for name, one in expected.items():
            assert {k: (one[k], found[name][k]) for k in one if one[k] != found[name][k]} == {}, name
