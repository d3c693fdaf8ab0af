"""The doctor finds, names and repairs damage that was made by hand, in real SQLite and real Chroma files; a
store that is whole gives no finding; and a server heals its Chroma by itself."""

import asyncio
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service import app, examination
from service.callers import PRODUCT
from service.settings import Settings
from stores.graph_checks import CHECK as GRAPH
from stores.lock import DataDirectoryLock
from stores.shard_checks import CHECK as CHROMA
from stores.vdb import VdbRow, scope_key, shard_of
from tests.serving import JSON, Api, Server, eventually, server, succeeded
from tests.test_cli import Shell

NOT_AT_REST = shutil.ignore_patterns("lock", "owner.json", "*-shm")
AGENT, MANY = "small", "many"  # the second has enough rows for Chroma to write its index to a file
LONG = " ".join(f"word{n}" for n in range(450))  # three chunks


def fill(running: Server) -> dict[str, str]:
    """A little of everything. Ids by name."""
    eventually(lambda: running.brain.meaning.fingerprint() is not None)
    api = running.api.of(AGENT)
    texts = {
        "old": "Old amber.",
        "kept": "Kept birch.",
        "long": LONG,
        "gone": "Gone cobalt.",
        "raw": "Raw delta.",
    }
    ids = {name: identify(api.add(text, tags=["t", name])) for name, text in texts.items()}
    ids["new"] = identify(
        succeeded(api.post("/brain/memory/supersede", {"content": "New amber.", "supersedes": [ids["old"]]}))
    )
    ids["rests"] = identify(api.add("Rests on evidence.", evidence_ids=[ids["kept"]]))
    fact = {"subject": "gate", "predicate": "is", "single_valued": True}
    for name, object, authority in (("rule", "shut", "policy"), ("denial", "open", "informal")):
        facts = [fact | {"object": object}]
        ids[name] = identify(api.add(f"Gate {object}.", facts=facts, source_authority=authority))
    turns = [{"role": "user", "content": f"Turn {n} of ember."} for n in range(3)]
    api.add(messages=turns, session_id="s")
    succeeded(api.request("DELETE", f"/brain/memory/{ids['gone']}"))
    identify(running.api.of(AGENT, "eve").add("Another user's fjord."))
    running.settle()
    return ids


def fill_many(running: Server) -> None:
    for start in (0, 550):
        running.api.of(MANY).batch([{"content": f"Row {n} of grove{n}."} for n in range(start, start + 550)])
    running.settle()


def identify(answer: JSON) -> str:
    memory_id: str = answer["memory"]["memory_id"]
    return memory_id


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that was left in order."""
    directory = tmp_path_factory.mktemp("doctor") / "template"
    directory.mkdir(mode=0o700)
    with server(directory) as running:
        (directory.parent / "ids.json").write_text(json.dumps(fill(running)))
        shutil.copytree(directory, directory.parent / "few", ignore=NOT_AT_REST)
        fill_many(running)
        eventually(lambda: running.brain.in_step)
    return directory


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "data"))


@pytest.fixture
def ids(template: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((template.parent / "ids.json").read_text())
    return found


@pytest.fixture(scope="module")
def running(template: Path) -> Iterator[Server]:
    """A server for damage that is undone or repaired by the end of a test. It does not heal by itself."""
    with server(template.parent / "few", doctor={"interval_s": 0}) as running:
        eventually(lambda: running.brain.in_step)
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


def examine(running: Server) -> JSON:
    found: JSON = running.portal.call(running.brain.doctor.examine).document()
    return found


def repair(running: Server) -> JSON:
    found: JSON = running.portal.call(running.brain.doctor.repair).document()
    return found


def damage(running: Server, statement: str, **values: Any) -> None:
    """Run SQL as somebody would who knows no better: beside the service, without foreign keys."""
    path = running.brain.settings.data_directory / "ledger.sqlite3"
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute(statement, values)
    connection.close()


def named(report: JSON, check: str) -> dict[str, list[str]]:
    """The findings of a check: what was found, and of whom."""
    return {one["what"]: one["subjects"] for one in report["findings"] if one["check"] == check}


def test_a_store_that_is_whole_gives_no_finding_with_a_server_and_without(
    running: Server, template: Path
) -> None:
    report = examine(running)
    assert report["clean"] and set(report["checks"].values()) == {0}
    assert report["counts"] == {"memories": 13, "partitions": 2, "scopes": 1}
    assert "memories 1113, partitions 3, tasks waiting 0" in Shell(template).out("doctor")


SAME = ("content", "tags", "status", "supersedes", "superseded_by")
STANDING = "UPDATE versions SET state = json_set(state, {}) WHERE memory_id = :denial AND to_seq IS NULL"
REPAIRABLE = [
    ("orphans", "INSERT INTO tokens VALUES ('ghost', 'words-2', 'a')"),
    ("orphans", "INSERT INTO vectors VALUES ('ghost', 0, 'hash:64', x'00')"),
    ("orphans", "INSERT INTO token_vectors VALUES ('ghost', 0, 'hash:64', x'', x'', x'')"),
    ("orphans", "INSERT INTO outbox VALUES ('ghost', 'index', 1, 0, 'parked', 6, 0, 'gone')"),
    ("orphans", "INSERT INTO edges VALUES (:kept, 'related', 'ghost', 1, NULL, 1.0)"),
    ("orphans", "INSERT INTO tags VALUES (:kept, 9, 'nobody')"),
    ("words", "DELETE FROM tokens WHERE memory_id = :kept"),
    ("embeddings", "DELETE FROM vectors WHERE memory_id = :kept"),
    ("embeddings", "DELETE FROM vectors WHERE memory_id = :long AND chunk = 1"),
    ("embeddings", "UPDATE vectors SET vector = x'0011' WHERE memory_id = :kept"),
    ("tags", "UPDATE tags SET tag = 'other' WHERE memory_id = :kept AND tag = 't'"),
    ("tags", "DELETE FROM tags WHERE memory_id = :kept"),
    ("links", "DELETE FROM edges WHERE type = 'supersedes' AND to_id = :old"),
    ("links", "UPDATE edges SET to_seq = 99 WHERE type = 'evidence_for' AND to_id = :rests"),
    ("links", "INSERT INTO edges VALUES (:old, 'evidence_for', :kept, 1, NULL, 1.0)"),
    ("orphans", "INSERT INTO fact_keys VALUES ('ghost', 0, 'p', 'a', 'u', 'k', 'o', 1)"),
    ("facts", "DELETE FROM fact_keys WHERE memory_id = :rule"),
    ("facts", "DELETE FROM edges WHERE type = 'asserts' AND from_id = :rule"),
    ("facts", "INSERT INTO edges VALUES (:kept, 'asserts', 'entity:x', 1, NULL, 1.0)"),
    ("conflicts", "UPDATE edges SET to_seq = 99 WHERE type = 'conflicts_with' AND from_id = :denial"),
    ("standings", STANDING.format("'$.standing.outranked', json('false')")),
    ("standings", STANDING.format("'$.standing.conflicts', json('[]')")),
    ("standings", STANDING.format("'$.confidence', 0.99")),
    ("tasks", "INSERT INTO outbox VALUES (:kept, 'index', 999999, :shard, 'parked', 6, 0, 'a fault')"),
    ("tasks", "INSERT INTO outbox VALUES (:kept, 'index', 999999, :wrong, 'pending', 1, :later, 'a fault')"),
]


@pytest.mark.parametrize(("check", "statement"), REPAIRABLE)
def test_what_can_be_derived_again_is(
    running: Server, ids: dict[str, str], check: str, statement: str
) -> None:
    shard = shard_of(PRODUCT, AGENT)
    api = running.api.of(AGENT)
    before = api.memory(ids["kept"])
    damage(running, statement, **ids, shard=shard, wrong=(shard + 1) % 16, later=app.now() + 3_600_000)
    found = examine(running)
    assert found["checks"][check] == 1 and not found["clean"]
    assert all(one["repairable"] for one in found["findings"] if one["check"] == check)
    report = repair(running)
    assert report["clean"], report["findings"]
    assert check in {one["check"] for one in report["repaired"]}
    eventually(lambda: running.brain.applier.lag() == 0)
    assert examine(running)["clean"]
    after = api.memory(ids["kept"])
    assert {name: after[name] for name in SAME} == {name: before[name] for name in SAME}
    assert ids["kept"] in [hit["memory_id"] for hit in api.search("kept birch")["results"]]


STATE = "UPDATE versions SET state = {} WHERE memory_id = :old AND to_seq IS NULL"
IRREPARABLE = [
    (
        "history",
        "UPDATE versions SET version = version + 5 WHERE memory_id = :old AND to_seq IS NULL",
        "UPDATE versions SET version = version - 5 WHERE memory_id = :old AND to_seq IS NULL",
    ),
    (
        "history",
        "UPDATE versions SET to_seq = to_seq + 1 WHERE memory_id = :old AND version = 1",
        "UPDATE versions SET to_seq = to_seq - 1 WHERE memory_id = :old AND version = 1",
    ),
    (
        "history",
        "UPDATE versions SET at = at + 1e12 WHERE memory_id = :old AND version = 1",
        "UPDATE versions SET at = at - 1e12 WHERE memory_id = :old AND version = 1",
    ),
    (
        "history",
        "UPDATE versions SET to_seq = 7777 WHERE memory_id = :kept",
        "UPDATE versions SET to_seq = NULL WHERE memory_id = :kept",
    ),
    (
        "history",
        "UPDATE versions SET memory_id = 'away' WHERE memory_id = :kept",
        "UPDATE versions SET memory_id = :kept WHERE memory_id = 'away'",
    ),
    (
        "history",
        "UPDATE events SET at = at + 1e12 WHERE seq = 2",
        "UPDATE events SET at = at - 1e12 WHERE seq = 2",
    ),
    (
        "references",
        "UPDATE memories SET memory_id = 'away' WHERE memory_id = :kept",
        "UPDATE memories SET memory_id = :kept WHERE memory_id = 'away'",
    ),
    (
        "records",
        "UPDATE memories SET content = content || '!!' WHERE memory_id = :kept",
        "UPDATE memories SET content = substr(content, 1, length(content) - 2) WHERE memory_id = :kept",
    ),
    (
        "records",
        "UPDATE memories SET layer = 'l9_dreams' WHERE memory_id = :kept",
        "UPDATE memories SET layer = 'l2_fact' WHERE memory_id = :kept",
    ),
    (
        "records",
        "UPDATE versions SET status = 'archived' WHERE memory_id = :kept",
        "UPDATE versions SET status = 'active' WHERE memory_id = :kept",
    ),
    ("records", STATE.format("'[' || state"), STATE.format("substr(state, 2)")),
    (
        "chains",
        STATE.format("json_remove(state, '$.superseded_by')"),
        STATE.format("json_set(state, '$.superseded_by', json_array(:new))"),
    ),
    (
        "chains",
        STATE.format("json_set(state, '$.superseded_by', json_array(:kept))"),
        STATE.format("json_set(state, '$.superseded_by', json_array(:new))"),
    ),
    (
        "chains",
        STATE.format(
            "json_set(state, '$.superseded_by', json_array(:old), '$.supersedes', json_array(:old))"
        ),
        STATE.format("json_remove(json_set(state, '$.superseded_by', json_array(:new)), '$.supersedes')"),
    ),
]


@pytest.mark.parametrize(("check", "statement", "undo"), IRREPARABLE)
def test_what_only_the_ledger_knows_is_named_and_left_alone(
    running: Server, ids: dict[str, str], check: str, statement: str, undo: str
) -> None:
    damage(running, statement, **ids)
    try:
        report = examine(running)
        mine = [one for one in report["findings"] if one["check"] == check]
        assert mine and not report["clean"]
        assert all(not one["repairable"] and "restore a backup" in one["move"] for one in mine)
        assert all(one["count"] >= 1 for one in mine)
    finally:
        damage(running, undo, **ids)
    assert examine(running)["clean"]


def test_a_partition_in_memory_that_lost_a_link_is_loaded_again(running: Server, ids: dict[str, str]) -> None:
    api = running.api.of(AGENT)
    api.search("amber")
    holder = running.brain.residents.holder(ids["new"])
    assert holder is not None

    async def lose() -> None:
        holder.graph.unlink(ids["new"], "supersedes", ids["old"])

    running.portal.call(lose)
    report = examine(running)
    assert sorted(named(report, GRAPH)["memories are others in memory than in the ledger"]) == sorted(
        [ids["new"], ids["old"]]
    )
    assert repair(running)["clean"]


@pytest.mark.parametrize("harm", ["missing", "older", "chunks", "record", "hidden", "strange"])
def test_a_row_of_chroma_that_differs_is_named_and_written_again(
    running: Server, ids: dict[str, str], harm: str
) -> None:
    vdb, shards = running.brain.vdb, running.brain.shards
    shard = shards.name(shard_of(PRODUCT, AGENT))
    scope = scope_key(PRODUCT, AGENT)
    vectors = np.eye(3, 64, dtype=np.float32)
    record = "{}" if harm == "record" else '{"content": "stale"}'

    def row(memory_id: str, version: int, chunks: int = 1) -> VdbRow:
        return VdbRow(memory_id, scope, PRODUCT, "l2_fact", "memory", version, record, vectors[:chunks])

    subject = {"chunks": ids["long"], "hidden": ids["gone"], "strange": "ghost"}.get(harm, ids["kept"])
    if harm == "missing":
        running.portal.call(vdb.remove, shard, [subject])
    else:
        running.portal.call(vdb.put, shard, [row(subject, 7 if harm == "older" else 1)])
    report = examine(running)
    found = {what: subjects for what, subjects in named(report, CHROMA).items() if subject in subjects}
    assert found and all(subjects == [subject] for subjects in found.values())
    assert repair(running)["clean"]
    rows = dict(running.portal.call(vdb.stored, shards.name(shard_of(PRODUCT, AGENT))))
    assert rows.get(ids["kept"]) == 1 and not {"ghost", ids["gone"]} & rows.keys()


def test_through_the_owner_the_command_says_the_same_and_repairs(
    running: Server, ids: dict[str, str]
) -> None:
    data = running.brain.settings.data_directory
    DataDirectoryLock(data).publish(running.owner)
    shell = Shell(data)
    assert shell.json("doctor")["clean"]
    damage(running, "DELETE FROM tokens WHERE memory_id = :kept", **ids)
    text = shell.fails(1, "brain doctor --repair", "doctor")
    assert "words" in text and ids["kept"] in text.replace("\n", "")
    assert "Repaired:" in shell.out("doctor", "--repair")
    token = {"authorization": f"Bearer {running.owner.token}"}
    wrong = running.api.http.post("/internal/doctor", json={"repair": "yes"}, headers=token)
    assert wrong.status_code == 422 and wrong.json()["errors"][0]["field"] == "repair"
    assert running.api.http.post("/internal/doctor", json={"repair": True}).status_code == 403


def alone(data: Path, *, repair: bool = False) -> JSON:
    """What `brain doctor` does when nobody serves."""
    settings = Settings.model_validate({"data": {"directory": str(data)}})
    with app.owning(settings):
        report: JSON = asyncio.run(examination.examine(settings, repair=repair))
    return report


def shard_directory(data: Path, agent: str) -> Path:
    [found] = (data / "vdb").glob(f"{shard_of(PRODUCT, agent):02d}-*")
    return found


def garble_index(data: Path) -> None:
    for file in shard_directory(data, MANY).rglob("*.bin"):
        file.write_bytes(bytes(random.Random(1).randbytes(file.stat().st_size)))
    for file in shard_directory(data, MANY).rglob("*.pickle"):
        file.write_bytes(b"no pickle")


def truncate_index(data: Path) -> None:
    for file in shard_directory(data, MANY).rglob("data_level0.bin"):
        os.truncate(file, file.stat().st_size // 2)


def garble_database(data: Path) -> None:
    (shard_directory(data, AGENT) / "chroma.sqlite3").write_bytes(b"not a database" * 1000)


def delete_shard(data: Path) -> None:
    shutil.rmtree(shard_directory(data, AGENT))


def delete_everything(data: Path) -> None:
    shutil.rmtree(data / "vdb")


@pytest.mark.parametrize("harm", [garble_index, truncate_index, garble_database])
def test_a_broken_shard_goes_to_quarantine_and_is_filled_anew(data: Path, harm: Any) -> None:
    harm(data)
    [finding] = alone(data)["findings"]
    assert finding["check"] == CHROMA and "quarantine" in finding["move"]
    assert not (data / "quarantine").exists()
    repaired = alone(data, repair=True)
    assert repaired["clean"] and [one["check"] for one in repaired["repaired"]] == [CHROMA]
    [kept] = (data / "quarantine").iterdir()
    assert kept.name.startswith(finding["subjects"][0] + "@") and (kept / "chroma.sqlite3").exists()
    assert alone(data)["clean"]


@pytest.mark.parametrize("harm", [delete_shard, delete_everything])
def test_a_shard_that_is_gone_is_filled_anew(data: Path, harm: Any) -> None:
    harm(data)
    assert set(named(alone(data), CHROMA)) == {"a shard's directory is gone"}
    if harm is delete_everything:
        assert Shell(data).json("doctor", "--repair")["clean"] and Shell(data).free
    else:
        assert alone(data, repair=True)["clean"]
    assert alone(data)["clean"]


@pytest.mark.parametrize("torn", [True, False])
def test_a_ledger_that_is_damaged_is_said_plainly_with_the_next_move(data: Path, torn: bool) -> None:
    path = data / "ledger.sqlite3"
    whole = path.read_bytes()
    if torn:
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + random.Random(2).randbytes(40_000) + whole[middle + 40_000 :])
    else:
        path.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    before = path.read_bytes()
    report = alone(data, repair=True)
    assert not report["clean"] and not report["repaired"]
    assert "integrity" in {one["check"] for one in report["findings"]}
    assert all("restore a backup" in one["move"] for one in report["findings"] if not one["repairable"])
    assert torn or path.read_bytes() == before


# The server by itself


def in_chroma(running: Server, agent: str) -> dict[str, int]:
    found: dict[str, int] = running.portal.call(
        running.brain.vdb.stored, running.brain.shards.name(shard_of(PRODUCT, agent))
    )
    return found


def test_after_an_unclean_stop_chroma_is_compared_and_healed(
    data: Path, ids: dict[str, str], tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    with server(data) as running:
        assert running.brain.in_step, "the template was left in order"
        shard = running.brain.shards.name(shard_of(PRODUCT, AGENT))
        running.portal.call(running.brain.vdb.remove, shard, [ids["kept"]])
        copied = running.brain.ledger.submit(lambda _: shutil.copytree(data, killed, ignore=NOT_AT_REST))
        copied.result(60)
    with server(killed) as running:
        eventually(lambda: running.brain.in_step)
        assert in_chroma(running, AGENT)[ids["kept"]] == 1
        assert examine(running)["clean"]
    with server(killed) as running:
        assert running.brain.in_step, "it ended well this time"


def test_a_broken_shard_is_quarantined_by_the_server_and_a_purge_empties_that_too(
    data: Path, ids: dict[str, str]
) -> None:
    garble_index(data)
    with sqlite3.connect(data / "ledger.sqlite3") as connection:
        connection.execute("DELETE FROM settings WHERE name = 'clean'")
    connection.close()
    with server(data) as running:
        eventually(lambda: running.brain.in_step)
        [kept] = (data / "quarantine").iterdir()
        api = running.api.of(MANY)
        canary = api.search("grove7")["results"][0]
        assert b"grove7." in (kept / "chroma.sqlite3").read_bytes()
        receipt = succeeded(api.post("/brain/purge", {"memory_id": canary["memory_id"], "wait": True}))
        assert receipt["done"]["vdb"] == "done"
        assert list((data / "quarantine").iterdir()) == []
        assert examine(running)["clean"]


def test_at_intervals_the_server_heals_what_differs(data: Path, ids: dict[str, str]) -> None:
    with server(data, doctor={"interval_s": 1}) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        shard = running.brain.shards.name(shard_of(PRODUCT, AGENT))
        running.portal.call(running.brain.vdb.remove, shard, [ids["kept"]])
        eventually(lambda: ids["kept"] in in_chroma(running, AGENT))
        assert examine(running)["clean"]


def test_the_vdb_directory_deleted_while_the_server_runs_is_noticed_and_filled_anew(
    data: Path, ids: dict[str, str]
) -> None:
    with server(data) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        api = running.api.of(AGENT)
        assert in_chroma(running, AGENT)
        delete_everything(data)
        added = identify(api.add("Written meanwhile, about harbor."))
        assert [hit["memory_id"] for hit in api.search("harbor", limit=1)["results"]] == [added]
        eventually(lambda: (data / "vdb").is_dir() and not running.brain.shards.due())
        running.settle()
        assert in_chroma(running, AGENT)[added] == 1
        report = examine(running)
        assert report["clean"], report["findings"]


def test_after_any_work_nothing_is_found(tmp_path: Path) -> None:
    """Writes of every kind, from a seed, by two users of two agents."""
    chance = random.Random(20251130)
    with server(tmp_path) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        callers = [running.api.of(agent, user) for agent in ("a", "b") for user in (None, "u")]
        made: dict[Api, list[str]] = {api: [] for api in callers}
        for number in range(160):
            api = chance.choice(callers)
            if chance.random() < 0.4 or len(made[api]) < 3:
                made[api].append(
                    identify(api.add(f"Note {number % 30} about iris.", tags=[f"t{number % 3}"]))
                )
                continue
            one, other = chance.sample(made[api], 2)
            work(api, chance, one, other, number)
        running.settle()
        report = examine(running)
        assert report["clean"], report["findings"]
    report = alone(tmp_path)
    assert report["clean"] and report["waiting"] == 0, report["findings"]


def work(api: Api, chance: random.Random, one: str, other: str, number: int) -> None:
    """One request; a refusal is as good."""
    path = f"/brain/memory/{one}"
    turns = [{"role": "user", "content": f"Said {number}."}, {"role": "assistant", "content": "Heard."}]
    method, where, body = chance.choice(
        [
            ("PATCH", path, {"tags": [f"n{number}"]}),
            ("PATCH", path, {"content": f"Rewritten {number}."}),
            ("POST", "/brain/memory/supersede", {"content": f"Both {number}.", "supersedes": [one, other]}),
            ("DELETE", path, None),
            ("POST", f"{path}/restore", {}),
            ("POST", "/brain/memory", {"messages": turns, "session_id": f"s{number % 4}"}),
            ("POST", "/brain/memory", {"content": f"Because {number}.", "evidence_ids": [one]}),
            ("POST", "/brain/purge", {"memory_id": one}),
        ]
    )
    assert api.request(method, where, body).status_code < 500
