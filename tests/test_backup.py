"""Backup and restore as real processes: of a server under load, of a directory that nobody owns, and of what
is damaged."""

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import httpx
import pytest

from stores.backup import BackupDamaged, verify
from stores.lock import DataDirectoryLock, Owner
from tests import warm
from tests.equivalence import check
from tests.processes import environment
from tests.serving import eventually, server
from tests.test_cli import Shell

CLIENTS = 3
BEFORE = 40  # writes that are acknowledged before the backup begins


@contextmanager
def serving(data: Path) -> Iterator[Owner]:
    """A server process with the small encoder."""
    process = warm.start("tests.kill_server", str(data), env=environment())
    try:
        lock = DataDirectoryLock(data)
        eventually(lambda: process.poll() is not None or lock.owner())
        owner = lock.owner()
        assert owner is not None, "the server did not start"
        yield owner
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_a_backup_under_load_has_every_write_that_was_acknowledged_before_it_began(tmp_path: Path) -> None:
    acknowledged: list[str] = []
    stop = Event()

    def write(client: int) -> None:
        with httpx.Client(base_url=owner.url, trust_env=False, timeout=60) as http:
            number = 0
            while not stop.is_set():
                number += 1
                answer = http.post("/brain/memory", json={"content": f"Note {number} of client {client}."})
                assert answer.status_code == 201, answer.text
                acknowledged.append(answer.json()["memory"]["memory_id"])

    source, target = Shell(tmp_path / "source"), tmp_path / "backups" / "one"
    with serving(source.data) as owner, ThreadPoolExecutor(CLIENTS) as pool:
        writing = [pool.submit(write, client) for client in range(CLIENTS)]
        try:
            eventually(lambda: len(acknowledged) >= BEFORE or any(one.done() for one in writing))
            before = list(acknowledged)
            manifest = source.json("backup", str(target))
            after = len(acknowledged)
        finally:
            stop.set()
        for one in writing:
            one.result()
    assert len(before) >= BEFORE and after > len(before), "it was under load"
    assert {path.name for path in target.iterdir()} == {"ledger.sqlite3", "manifest.json"}
    modes = [target.stat().st_mode & 0o777, *(path.stat().st_mode & 0o777 for path in target.iterdir())]
    assert modes == [0o700, 0o600, 0o600]
    assert [path.name for path in target.parent.iterdir()] == ["one"]
    there = Shell(tmp_path / "there")
    done = there.run("restore", str(target))
    assert done.returncode == 0 and "What was purged after" in done.stderr, done.stderr
    with server(there.data) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        eventually(lambda: not running.brain.shards.due())
        running.settle()
        running.portal.call(check, running.brain)
        found = running.api.stats()["total"]
        assert found == manifest["counts"]["memories"] >= len(before)
        for memory_id in before:
            assert running.api.memory(memory_id)["memory_id"] == memory_id
        last = running.api.memory(before[-1])
        assert running.api.search(last["content"])["results"][0]["memory_id"] == before[-1]


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a directory that nobody owns."""
    directory = tmp_path_factory.mktemp("backup")
    with server(directory / "data") as running:
        for number in range(30):
            running.api.add(f"Memory number {number} is here.")
    shown = Shell(directory / "data").out("backup", str(directory / "whole"))
    assert "memories" in shown and "Backed up to" in shown
    return directory / "whole"


def test_a_backup_is_restored_into_an_empty_directory_only(backup: Path, tmp_path: Path) -> None:
    data = backup.parent / "data"
    shell = Shell(data)
    shell.fails(2, "is there already", "backup", str(backup))
    Shell(tmp_path / "none").fails(2, "holds no memories", "backup", str(tmp_path / "x"))
    before = (data / "ledger.sqlite3").read_bytes()
    shell.fails(2, "is not empty", "restore", str(backup))
    assert (data / "ledger.sqlite3").read_bytes() == before
    there = Shell(tmp_path / "there")
    assert there.json("restore", str(backup))["counts"]["memories"] == 30
    (tmp_path / "there" / "ledger.sqlite3.partial").write_bytes(b"")
    there.fails(2, "is not empty: ledger.sqlite3", "restore", str(backup))
    assert (there.data / "ledger.sqlite3").stat().st_mode & 0o777 == 0o600


def test_whatever_is_damaged_is_found_and_not_restored(backup: Path, tmp_path: Path) -> None:
    whole = Shell(tmp_path / "data")
    assert "is whole" in whole.out("backup", str(backup), "--verify")

    def ruined(name: str) -> Path:
        return Path(shutil.copytree(backup, tmp_path / name))

    flipped = ruined("flipped") / "ledger.sqlite3"
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    cut = ruined("cut") / "ledger.sqlite3"
    cut.write_bytes(cut.read_bytes()[:-4096])
    (ruined("gone") / "ledger.sqlite3").unlink()
    (ruined("bare") / "manifest.json").unlink()
    (ruined("text") / "manifest.json").write_text("{", encoding="utf-8")
    fewer = ruined("fewer") / "ledger.sqlite3"
    with sqlite3.connect(fewer) as connection:
        connection.execute("DELETE FROM tokens")
        connection.execute("DELETE FROM vectors WHERE rowid IN (SELECT rowid FROM vectors LIMIT 1)")
        nothing = ", NULL" * 4
        connection.execute(f"INSERT INTO events VALUES (99999, 0, '', '', '', '', '', '', '', '[]'{nothing})")
    kinds = {
        "flipped": "another SHA-256", "cut": "bytes instead of", "gone": "can't be read",
        "bare": "manifest.json can't be read", "text": "manifest.json can't be read",
    }  # fmt: skip
    for kind, says in kinds.items():
        with pytest.raises(BackupDamaged, match=says):
            verify(tmp_path / kind)
    whole.fails(1, "nothing was written", "restore", str(tmp_path / "fewer"))
    assert not (whole.data / "ledger.sqlite3").exists()


def test_a_backup_of_a_later_version_is_left_to_the_brain_that_wrote_it(backup: Path, tmp_path: Path) -> None:
    for name, change in (("format", {"version": 2}), ("schema", {"schema": "9999"})):
        later = Path(shutil.copytree(backup, tmp_path / name))
        manifest = json.loads((later / "manifest.json").read_text(encoding="utf-8"))
        if name == "schema":
            with sqlite3.connect(later / "ledger.sqlite3") as connection:
                connection.execute("UPDATE alembic_version SET version_num = '9999'")
            manifest["files"]["ledger.sqlite3"] = described(later / "ledger.sqlite3")
        (later / "manifest.json").write_text(json.dumps(manifest | change), encoding="utf-8")
        says = "Use a newer one" if name == "format" else "newer brain"
        Shell(tmp_path / "data").fails(2, says, "restore", str(later))
    assert not (tmp_path / "data" / "ledger.sqlite3").exists()


def described(path: Path) -> dict[str, object]:
    return {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
