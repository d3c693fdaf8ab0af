"""Rebuilding offline: a real ledger and a real Chroma, with the tests' encoder in two sizes as two models."""

import asyncio
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.embedding import Encoder, Encoding
from models.errors import ConflictState, InvalidArgument
from models.multilingual import TWIN
from models.rebuild_order import RebuildOrder
from service import app
from service.rebuilding import Progress, Site, alone, carry_out
from service.settings import Settings
from stores.ledger import Ledger
from stores.lock import DataDirectoryLock
from stores.refill import Shards
from stores.vdb import Vdb, VdbRow, VdbUnavailable
from stores.verification import VerificationFailed
from tests import warm
from tests.equivalence import check
from tests.hash_encoder import HashEncoder
from tests.kill_rebuild import order
from tests.processes import environment
from tests.serving import JSON, Server, eventually, server
from tests.test_cli import Shell

pytest_plugins = ["tests.embedding_fixtures"]

OLD, NEW = 64, 32  # dimensions of the two models
COUNT = 130  # memories of each of two agents
AGENTS = ("north", "south")
LONG = " ".join(f"chapter{number % 40} verse{number}" for number in range(400))  # of several chunks


def load(dimensions: int) -> Callable[[str], Encoder]:
    return lambda model: HashEncoder(dimensions)


def old() -> Encoder:
    return HashEncoder(OLD)


def new() -> Encoder:
    return HashEncoder(NEW)


def rebuilt(
    data: Path,
    asked: RebuildOrder | None = None,
    *,
    load: Callable[[str], Encoder] = lambda model: HashEncoder(NEW),
    told: Callable[[Progress], None] = lambda progress: None,
) -> JSON:
    """The report of a rebuild on a directory that nobody serves."""
    settings = Settings.model_validate({"data": {"directory": str(data)}})
    with app.owning(settings):
        return asyncio.run(alone(settings, asked or order(), Progress(told=told), load=load, clock=app.now))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two agents' memories with the old model's vectors: long, equal and forgotten ones among them."""
    data = tmp_path_factory.mktemp("original")
    with server(data, old) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        for name in AGENTS:
            api = running.api.of(name)
            api.batch([{"content": f"{name} note {n} on topic{n % 9} and word{n}"} for n in range(COUNT)])
            api.add(LONG)
            for _ in range(3):
                api.add("The same words again.", on_duplicate="keep")
            forgotten = api.add("It was told in confidence.")["memory"]["memory_id"]
            assert api.request("DELETE", f"/brain/memory/{forgotten}").status_code == 200
        running.settle()
    return data


@pytest.fixture
def data(original: Path, tmp_path: Path) -> Path:
    return copied(original, tmp_path / "data")


def copied(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("lock", "owner.json"))
    return target


def read(data: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(data / "ledger.sqlite3")) as ledger:
        return ledger.execute(query).fetchall()


def vectors(data: Path, fingerprint: str) -> dict[tuple[str, int], bytes]:
    rows = read(data, f"SELECT memory_id, chunk, vector FROM vectors WHERE fingerprint = '{fingerprint}'")
    return {(memory_id, chunk): vector for memory_id, chunk, vector in rows}


def in_sight(data: Path) -> set[str]:
    return {
        memory_id
        for (memory_id,) in read(
            data,
            "SELECT memory_id FROM versions WHERE to_seq IS NULL AND status NOT IN ('forgotten', 'purged')",
        )
    }


def directories(data: Path) -> set[str]:
    return {entry.name for entry in (data / "vdb").iterdir() if entry.is_dir()}


def in_chroma(data: Path) -> dict[str, tuple[int, bytes]]:
    """All that the directories that are pointed to hold: version and digest by row."""

    async def look() -> dict[str, tuple[int, bytes]]:
        ledger = Ledger(data / "ledger.sqlite3", app.now, lambda committed: None)
        vdb = Vdb(data / "vdb")
        shards = Shards(ledger, vdb, data / "vdb")
        try:
            ledger.open()
            shards.open(tidy=False)
            rows = [row for shard in shards.scopes() for row in await vdb.rows(shards.name(shard))]
            return {row_id: (version or 0, digest) for row_id, version, digest in rows}
        finally:
            await vdb.close()
            ledger.stop_writing()
            ledger.close()

    return asyncio.run(look())


def in_step(running: Server) -> None:
    """Ledger, memory and Chroma agree, and the model takes part."""
    eventually(lambda: running.brain.meaning.fingerprint() is not None)
    running.settle()
    running.portal.call(check, running.brain)


def finds(running: Server, agent: str, number: int) -> list[str]:
    """How a note is matched that only one memory has."""
    hits = running.api.of(agent).search(f"{agent} note word{number}")["results"]
    [hit] = [hit for hit in hits if f"word{number}" in hit["content"].rstrip(".").split()]
    matched: list[str] = hit["matched_by"]
    return matched


def test_another_model_takes_over_and_the_way_back_is_open_until_it_is_pruned(data: Path) -> None:
    before = directories(data)
    report = rebuilt(data)
    assert report["embedded"] == report["placed"] == len(in_sight(data)) == 2 * (COUNT + 4)
    assert report["chunks"] > report["embedded"] and report["failed"] == {}
    assert (report["fingerprint"], report["previous"]["fingerprint"]) == ("hash:32", "hash:64")
    verified = report["verified"]
    assert verified["memories"] == report["placed"] and verified["unreached"] == []
    assert verified["lowest_cosine"] > 0.9999 and 0 < verified["overlap"] <= 1
    assert {id for id, _ in vectors(data, "hash:32")} == in_sight(data)
    kept = vectors(data, "hash:64")
    assert before < directories(data) and kept
    with server(data, new) as running:
        in_step(running)
        assert "vector" in finds(running, "north", 17)
        stats = running.api.of("north").stats()
        assert stats["last_rebuild"] > 1_700_000_000_000 and stats["fingerprint"] == "hash:32"
        late = running.api.of("north").add("north note word9999")["memory"]["memory_id"]
        running.settle()
    # Back: what was written since is brought along.
    report = rebuilt(data, order(action="rollback"), load=load(OLD))
    assert (report["fingerprint"], report["embedded"]) == ("hash:64", 1)
    assert vectors(data, "hash:64").items() >= kept.items() and (late, 0) in vectors(data, "hash:64")
    with server(data, old) as running:
        in_step(running)
        assert "vector" in finds(running, "north", 9999)
    # And forth again, to stay.
    assert rebuilt(data, order(action="rollback"))["fingerprint"] == "hash:32"
    pruned = rebuilt(data, order(action="prune"))
    assert (pruned["pruned"], pruned["directories"]) == ("hash:64", 2) and pruned["vectors"] > len(kept)
    assert vectors(data, "hash:64") == {} and len(directories(data)) == 2
    with pytest.raises(ConflictState, match="no earlier generation"):
        rebuilt(data, order(action="rollback"))
    with server(data, new) as running:
        in_step(running)


def test_killed_at_random_points_and_started_again_it_ends_as_if_nothing_had_happened(
    original: Path, tmp_path: Path
) -> None:
    whole = copied(original, tmp_path / "whole")
    steps: list[str] = []
    rebuilt(whole, told=lambda progress: steps.append(progress.stage))
    torn = copied(original, tmp_path / "torn")
    dice = random.Random(20261130)
    for point in (1, *dice.sample(range(2, len(steps)), 3), len(steps)):
        killed_at(torn, point)
        state = dict(read(torn, "SELECT name, value FROM settings"))
        assert state["embedding.fingerprint"] in ("hash:64", "hash:32")
        assert directories(torn) >= {name for key, name in state.items() if key.startswith("vdb.shard.")}
    rebuilt(torn)
    assert vectors(torn, "hash:32") == vectors(whole, "hash:32")
    assert vectors(torn, "hash:64") == vectors(whole, "hash:64") == vectors(original, "hash:64")
    assert in_chroma(torn) == in_chroma(whole)
    with server(torn, new) as running:
        in_step(running)


def killed_at(data: Path, point: int) -> None:
    """Start a rebuild and end it by SIGKILL when it has said so many steps, if it says so many."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as said:
        process = warm.start("tests.kill_rebuild", str(data), str(NEW), env=environment(), stdout=writing)
        os.close(writing)
        for _ in range(point):
            said.readline()
        process.kill()
        process.wait(60)


class Interrupted(Exception):
    """What stands for a power cut inside one process."""


def interrupt_after(steps: int, stage: str) -> Callable[[Progress], None]:
    def told(progress: Progress) -> None:
        nonlocal steps
        steps -= progress.stage == stage and progress.done > 0
        if steps < 0:
            raise Interrupted

    return told


def test_embedding_again_with_the_same_model_goes_on_where_it_was_interrupted(data: Path) -> None:
    with pytest.raises(Interrupted):
        rebuilt(data, load=load(OLD), told=interrupt_after(0, "embedding"))
    assert len(directories(data)) == 2 and "rebuild.progress" in dict(read(data, "SELECT * FROM settings"))
    report = rebuilt(data, load=load(OLD))
    assert 0 < report["embedded"] < report["placed"] == len(in_sight(data))
    assert "rebuild.progress" not in dict(read(data, "SELECT * FROM settings"))
    assert rebuilt(data, load=load(OLD))["embedded"] == report["placed"]  # the next one is a new one


def test_what_is_interrupted_while_chroma_fills_leaves_the_old_generation_and_no_litter(data: Path) -> None:
    before = directories(data)
    with pytest.raises(Interrupted):
        rebuilt(data, told=interrupt_after(1, "filling"))
    assert directories(data) == before
    with server(data, old) as running:
        in_step(running)


def test_a_changed_model_serves_by_words_names_the_command_and_is_mended_by_it(data: Path) -> None:
    with server(data, new) as running:
        eventually(lambda: running.brain.embedder.state == "ready" and running.brain.meaning.stored)
        api = running.api.of("north")
        command = f"brain rebuild --data {data} --live"
        readiness = api.readyz()
        assert readiness["status"] == "degraded" and command in readiness["embedding"]["problem"]
        found = api.search("north note word17")
        reason = found["degraded_reason"]
        assert found["degraded"] and command in reason and "hash:64" in reason
        assert found["results"][0]["content"].endswith(" word17")
        assert {name for hit in found["results"] for name in hit["matched_by"]} <= {"words", "identifier"}
        added = api.add("north note word7777")
        assert added["indexed"] is False
        assert api.memory(added["memory"]["memory_id"])["content"] == "north note word7777"
    assert vectors(data, "hash:32") == {}  # nothing was mixed in
    with pytest.raises(Interrupted):
        rebuilt(data, told=interrupt_after(0, "embedding"))
    half = len(vectors(data, "hash:32"))
    assert 0 < half < len(in_sight(data))
    with server(data, old) as running:  # the old model serves on, whatever was made beside it
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        assert "vector" in finds(running, "north", 17)
    report = rebuilt(data)
    assert report["embedded"] < report["placed"] == len(in_sight(data))
    with server(data, new) as running:
        in_step(running)
        assert running.api.readyz()["status"] == "ready"
        assert "vector" in finds(running, "north", 17) and "vector" in finds(running, "north", 7777)


def test_chroma_is_filled_from_vectors_alone_whole_or_for_one_scope(data: Path) -> None:
    def no_model(model: str) -> Encoder:
        raise AssertionError("nothing is embedded")

    shutil.rmtree(data / "vdb")
    report = rebuilt(data, order(from_vectors=True), load=no_model)
    assert (report["embedded"], report["placed"], report["shards"]) == (0, len(in_sight(data)), 2)
    report = rebuilt(data, order(from_vectors=True, scope=["default/north"]), load=no_model)
    assert (report["placed"], report["shards"]) == (COUNT + 4, 1)
    with server(data, old) as running:
        in_step(running)


def test_memories_from_before_there_were_word_pieces_get_them(data: Path) -> None:
    pieces = "SELECT memory_id, chunk, codes, scales FROM token_vectors ORDER BY memory_id, chunk"
    before = read(data, pieces)
    with closing(sqlite3.connect(data / "ledger.sqlite3")) as ledger, ledger:
        ledger.execute(
            "DELETE FROM token_vectors WHERE memory_id IN (SELECT memory_id FROM memories LIMIT 3)"
        )
    assert rebuilt(data, order(only_missing=True), load=load(OLD))["embedded"] == 3
    assert read(data, pieces) == before


def test_scopes_and_layers_narrow_it_and_another_model_takes_all_or_nothing(data: Path) -> None:
    report = rebuilt(data, order(scope=["default/south"]), load=load(OLD))
    assert (report["embedded"], report["shards"]) == (COUNT + 4, 1)
    assert rebuilt(data, order(layers=["l4_identity"]), load=load(OLD))["embedded"] == 0
    for asked in (order(scope=["default/south"]), order(layers=["l2_fact"])):
        with pytest.raises(InvalidArgument, match="two models never meet"):
            rebuilt(data, asked)
    with pytest.raises(InvalidArgument, match="has no memories"):
        rebuilt(data, order(scope=["default/nobody"]), load=load(OLD))
    assert vectors(data, "hash:32") == {}
    previous = read(data, "SELECT value FROM settings WHERE name = 'rebuild.previous'")
    assert rebuilt(data, order(only_missing=True), load=load(OLD))["shards"] == 0
    assert read(data, "SELECT value FROM settings WHERE name = 'rebuild.previous'") == previous


def test_a_dry_run_counts_and_estimates_and_changes_nothing(data: Path) -> None:
    before = dict(read(data, "SELECT * FROM settings"))
    report = rebuilt(data, order(dry_run=True))
    assert report["embed"] == report["place"] == len(in_sight(data)) and report["shards"] == 2
    assert report["rate"] > 0 and report["estimate_seconds"] > 0
    report = rebuilt(data, order(dry_run=True, from_vectors=True))
    assert (report["embed"], report["place"], report["rate"]) == (0, len(in_sight(data)), None)
    assert dict(read(data, "SELECT * FROM settings")) == before and vectors(data, "hash:32") == {}


class Poisoned(HashEncoder):
    """Raises on whatever has one word."""

    def encode(self, chunks: Sequence[Sequence[int]]) -> list[Encoding]:
        if any(self._piece("word17") in chunk for chunk in chunks):
            raise RuntimeError("the encoder was told to fail")
        return super().encode(chunks)


def test_a_text_that_cannot_be_embedded_is_named_and_holds_up_nobody(data: Path) -> None:
    report = rebuilt(data, load=lambda model: Poisoned(NEW))
    assert len(report["failed"]) == 2 and set(report["failed"].values()) == {"RuntimeError"}
    assert report["embedded"] == len(in_sight(data)) - 2
    with server(data, new) as running:  # the outbox tries again, with a better encoder
        in_step(running)
        assert "vector" in finds(running, "north", 17)


class BrokenVdb(Vdb):
    """Loses a row of each batch, or puts vectors that are not the memories'."""

    def __init__(self, root: Path, *, loses: bool):
        super().__init__(root)
        self._loses = loses

    async def put(self, shard: str, rows: Sequence[VdbRow], **within: float) -> None:
        if self._loses:
            return await super().put(shard, rows[1:], **within)
        wrong = [
            VdbRow(
                row.memory_id,
                row.scope,
                row.user,
                row.layer,
                row.kind,
                row.version,
                row.record,
                -np.ascontiguousarray(row.vectors),
            )
            for row in rows
        ]
        return await super().put(shard, wrong, **within)


@pytest.mark.parametrize(
    ("loses", "fault", "text"),
    [(True, VdbUnavailable, "does not hold"), (False, VerificationFailed, "not found by their own")],
)
def test_what_is_not_verified_never_serves(
    data: Path, loses: bool, fault: type[Exception], text: str
) -> None:
    before = directories(data)
    with pytest.raises(fault, match=text):
        asyncio.run(rebuilt_with(BrokenVdb(data / "vdb", loses=loses), data))
    assert directories(data) == before
    with server(data, old) as running:
        in_step(running)


async def rebuilt_with(vdb: Vdb, data: Path) -> JSON:
    """A rebuild with a Chroma of the test's own."""
    ledger = Ledger(data / "ledger.sqlite3", app.now, acknowledged)
    shards = Shards(ledger, vdb, data / "vdb")
    try:
        ledger.open()
        shards.open()

        async def loaded(model: str) -> Encoder:
            return HashEncoder(NEW)

        return await carry_out(Site(ledger, vdb, shards, "hash", loaded), order(), Progress())
    finally:
        await vdb.close()
        ledger.stop_writing()
        ledger.close()


def acknowledged(committed: list[Any]) -> None:
    for write in committed:
        write.future.set_result(write.value)


# The command


def test_the_command_embeds_with_the_real_model_and_says_what_it_did(
    tmp_path: Path, onnx_folder: Path
) -> None:
    shell = Shell(tmp_path / "data")
    shell.json("add", "Deploys happen on Tuesday.")
    done = shell.run("rebuild", "--json")
    assert done.returncode == 0, done.stderr
    assert "embedding 1 of 1" in done.stderr and "verifying 1 of 1" in done.stderr
    assert '"embedded":1' in done.stdout and f"{TWIN}:384" in done.stdout
    assert shell.json("rebuild", "--from-vectors")["placed"] == 1
    assert "rollback" in shell.out("rebuild", "--rollback") and shell.free


def test_the_command_says_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    shell = Shell(tmp_path / "data")
    shell.fails(2, "--layers", "rebuild", "--layers", "l9")
    shell.fails(2, "--model no-such-model can't be used", "rebuild", "--model", "no-such-model")
    shell.fails(1, "no earlier generation", "rebuild", "--rollback")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"from_vectors": True, "model": "m"}, "model"),
        ({"from_vectors": True, "only_missing": True}, "only_missing"),
        ({"action": "rollback", "scope": ["a/b"]}, "scope"),
        ({"action": "prune", "dry_run": True}, "dry_run"),
    ],
)
def test_options_that_contradict_each_other_are_refused_by_name(fields: JSON, named: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        order(**fields).check()
    assert [error.field for error in refusal.value.errors] == [named]


@pytest.fixture
def owned(data: Path) -> Iterator[Server]:
    """A server that other processes find."""
    with server(data, old, load_model=load(NEW)) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        DataDirectoryLock(data).publish(running.owner)
        yield running


def test_beside_a_server_it_refuses_and_names_the_way_through_it(owned: Server, data: Path) -> None:
    shell = Shell(data)
    shell.fails(3, "Add --live to rebuild inside it", "rebuild")
    assert shell.json("rebuild", "--live", "--status") == {"state": "idle"}
    report = shell.json("rebuild", "--live", "--model", "another")
    assert (report["fingerprint"], report["placed"]) == ("hash:32", len(in_sight(data)))
    assert "embedding.model to another" in report["next"]
    in_step(owned)
    assert owned.api.of("north").stats()["fingerprint"] == "hash:32"
    assert "vector" in finds(owned, "north", 17)
    shell.fails(2, "--scope", "rebuild", "--live", "--scope", "nobody/here")
    assert shell.json("rebuild", "--live", "--prune")["pruned"] == "hash:64"
    in_step(owned)
