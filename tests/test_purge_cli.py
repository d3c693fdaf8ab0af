"""`brain purge`: destroys what is named, and proves that a text is in no file."""

import json
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from stores.traces import PIECE, Search, Trace
from tests.processes import serving_process
from tests.serving import eventually
from tests.test_cli import Shell

pytest_plugins = ["tests.embedding_fixtures"]

CANARY = 'Kanarienvogel «Zoë» said "hush"\tat 日暮れ'


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "data")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, onnx_folder: Path) -> Iterator[Shell]:
    directory = tmp_path_factory.mktemp("served")
    with serving_process(directory) as owner:
        yield Shell(directory, owner)


def found(directory: Path, *texts: str, **options: int) -> list[Trace]:
    search = Search(directory, texts, **options)
    traces = list(search.traces())
    assert not search.unread
    return traces


# The command


def test_beside_a_server_a_purge_is_proven(served: Shell) -> None:
    id = served.json("add", CANARY, "--agent", "zoo", "--tag", "canary-tag")["memory"]["memory_id"]
    kept = served.json("add", "The zoo opens at nine.", "--agent", "zoo")["memory"]["memory_id"]
    # Else the shard that is filled anew holds nothing yet, and has fewer files.
    eventually(lambda: served.json("stats", "--agent", "zoo")["index_lag"] == 0)
    before = json.loads(served.fails(1, "traces in", "purge", "--verify", CANARY, "canary-tag", "--json"))
    assert not before["clean"] and before["count"] >= 2
    assert {"ledger.sqlite3", "ledger.sqlite3-wal"} & {trace["file"] for trace in before["traces"]}
    assert {trace["text"] for trace in before["traces"]} == {0, 1}
    dry = served.json("purge", "--memory", id, "--agent", "zoo", "--dry-run")
    assert (dry["purged"], dry["dry_run"]) == ([id], True)
    assert served.json("get", id, "--agent", "zoo")["content"] == CANARY
    receipt = served.json("purge", "--memory", id, "--agent", "zoo", "--yes")
    assert receipt["purged"] == [id] and set(receipt["done"].values()) == {"done"}
    after = served.json("purge", "--verify", CANARY, "canary-tag", "Kanarienvogel", "日暮れ")
    assert (after["clean"], after["count"], after["unread"]) == (True, 0, [])
    assert after["files"] > 5 and after["bytes"] > 100_000
    assert served.json("get", kept, "--agent", "zoo")["content"] == "The zoo opens at nine."


def test_a_user_and_an_agent_go_by_name(served: Shell) -> None:
    def add(text: str, user: str) -> str:
        id: str = served.json("add", text, "--agent", "farm", "--user", user)["memory"]["memory_id"]
        return id

    ids = [add("Bob's plan.", "bob"), add("Eve's plan.", "eve")]
    dry = served.out("purge", "--user-id", "bob", "--agent", "farm", "--dry-run")
    assert "would be destroyed" in dry and ids[0] in dry
    of_bob = served.out("purge", "--user-id", "bob", "--agent", "farm", "--yes")
    assert ids[0] in of_bob and ids[1] not in of_bob and "vector store" in of_bob and "backups" in of_bob
    served.fails(1, "confirm", "purge", "--all", "zoo", "--agent", "farm", "--yes")
    assert served.json("purge", "--all", "farm", "--agent", "farm", "--yes", "--cascade")["count"] == 1
    served.fails(1, "(memory_not_found)", "purge", "--memory", ids[1], "--agent", "farm", "--yes")


def test_without_a_server_the_text_leaves_every_file_too_and_nothing_stays_running(alone: Shell) -> None:
    id = alone.json("add", CANARY)["memory"]["memory_id"]
    assert alone.json("add", "Something else.")["memory"]["memory_id"] != id
    shown = alone.fails(1, "traces in", "purge", "--verify", CANARY)
    assert "ledger.sqlite3" in shown and "utf-8" in shown
    receipt = alone.json("purge", "--memory", id, "--yes")
    assert set(receipt["done"].values()) == {"done"} and alone.free
    given = f"{CANARY}\nkanarienvogel\n".encode()
    assert "No trace in" in alone.out("purge", "--verify", "-", given=given)
    assert alone.json("stats")["total"] == 1


def test_what_is_wrong_is_said_with_the_next_move_and_destroys_nothing(served: Shell) -> None:
    id = served.json("add", "Stays.", "--agent", "safe")["memory"]["memory_id"]
    target = ("--memory", id, "--agent", "safe")
    for text, arguments in (
        ("Name exactly one of", (*target, "--session", "s", "--yes")),
        ("repeat with --yes", target),
        ("TEXT… goes with --verify", ("word",)),
        ("--verify needs a text", ("--verify", "")),
        ("--verify takes texts", ("--verify", "x", *target)),
        ("not UTF-8", ("--verify", "-")),
    ):
        given = b"\xff" if "-" in arguments else b""
        assert served.fails(2, text, "purge", *arguments, given=given) == ""
    nowhere = Shell(Path("/nowhere/at/all"))
    assert nowhere.fails(2, "There is no data directory", "purge", "--verify", "x") == ""
    assert not nowhere.data.exists(), "a search makes no directory"
    assert served.json("get", id, "--agent", "safe")["content"] == "Stays."


# The search


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("utf-8", CANARY.encode()),
        ("utf-16", CANARY.encode("utf-16-le")),
        ("json", json.dumps({"record": CANARY}).encode()),
        ("json", json.dumps({"record": CANARY}, ensure_ascii=False).encode()),
        ("json", re.sub(r"\\u(.{4})", lambda m: f"\\u{m[1].upper()}", json.dumps(CANARY)).encode()),
        ("lower case", CANARY.lower().encode()),
    ],
)
def test_every_form_of_a_text_is_found_with_its_place(tmp_path: Path, form: str, content: bytes) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(bytes(1_000) + content + bytes(10))
    [trace] = found(tmp_path, CANARY)
    assert (trace.file, trace.form, trace.text, trace.whole) == ("a/b/file", form, 0, True)
    assert trace.offset is not None
    assert 1_000 <= trace.offset < 1_000 + len(content)
    assert found(tmp_path, "Wellensittich") == []


@pytest.mark.parametrize("block", [64, 100, 256])
def test_a_text_across_the_border_of_two_blocks_is_found_once(tmp_path: Path, block: int) -> None:
    text = b"canarycanary"
    for start in range(3 * block):
        (tmp_path / "file").write_bytes(b"." * start + text + b"." * (4 * block))
        whole = [trace.offset for trace in found(tmp_path, text.decode(), "x" * block, block=block)]
        assert whole == [start]
    (tmp_path / "file").write_bytes(text * 100)
    offsets = [trace.offset for trace in found(tmp_path, "canary", block=block)]
    assert offsets == list(range(0, 1_200, 6))


def test_names_of_files_folders_and_links_count(tmp_path: Path) -> None:
    (tmp_path / "of-canary").mkdir()
    (tmp_path / "of-canary" / "canary.txt").touch()
    (tmp_path / "link").symlink_to("/somewhere/canary")
    traces = found(tmp_path, "canary")
    assert [(trace.file, trace.offset) for trace in traces] == [
        ("link", None), ("of-canary", None), ("of-canary/canary.txt", None),
    ]  # fmt: skip


def test_a_long_text_is_found_by_any_piece_of_it(tmp_path: Path) -> None:
    text = " ".join(f"sentence {number} of the letter." for number in range(400))
    (tmp_path / "file").write_bytes(b"..." + text.encode()[PIECE * 3 : PIECE * 4 + 10] + b"...")
    [trace] = found(tmp_path, text)
    assert (trace.offset, trace.whole) == (3, False)


@pytest.mark.parametrize("log", [False, True])
def test_a_text_that_sqlite_has_cut_into_two_pages_is_found(tmp_path: Path, log: bool) -> None:
    """At every place where the border may fall: in the page that begins a value, and in those behind."""
    texts = [f"canary-{number:04d}-bird" for number in range(1_100)]
    database = sqlite3.connect(tmp_path / "x.sqlite3", isolation_level=None)
    database.execute("PRAGMA page_size=1024")
    database.execute(f"PRAGMA journal_mode={'WAL' if log else 'DELETE'}")
    database.execute("PRAGMA wal_autocheckpoint=0")
    database.execute("CREATE TABLE t (value TEXT)")
    # SQLite fills the pages from the end: the first border moves with the length.
    starts = (600 + 1_020 * (number % 2) for number in range(1_100))
    values = [
        ("." * start + text + "!" * (3_000 + number),)
        for number, (start, text) in enumerate(zip(starts, texts, strict=True))
    ]
    database.execute("BEGIN")
    database.executemany("INSERT INTO t VALUES (?)", values)
    database.execute("COMMIT")
    try:
        [file] = [path for path in tmp_path.iterdir() if path.name.endswith("-wal" if log else ".sqlite3")]
        content = file.read_bytes()
        cut = [text for text in texts if text.encode() not in content]
        assert len(cut) > 5, "next to none of them was cut: the test shows nothing"
        sought = [*cut, *texts[::200]]
        traces = found(tmp_path, *sought)
        assert sorted(trace.text for trace in traces) == list(range(len(sought)))
        for trace in traces:
            assert (trace.file, trace.whole) == (file.name, True)
            assert trace.offset is not None and content[trace.offset :].startswith(b"c")
        assert found(tmp_path, "canary-1100-bird", "canary-00000-bird") == []
    finally:
        database.close()


def test_what_cannot_be_read_is_named_and_is_no_proof(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    os.mkfifo(tmp_path / "pipe")  # nothing to search, and nothing to wait for
    assert found(tmp_path, "canary") == []
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tmp_path / "secret").write_bytes(b"canary")
    (tmp_path / "secret").chmod(0)
    search = Search(tmp_path, ["canary"])
    assert list(search.traces()) == [] and "secret: Permission denied" in search.unread[0]
    Shell(tmp_path).fails(1, "not searched", "purge", "--verify", "canary")
