"""The audit log: who did what and who tried, without anybody's text, in a chain that shows what was tampered
with."""

import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from sqlalchemy import select

from models.errors import Duplicate
from models.scope import Partition
from service.app import now
from service.brain import MEMORY_ID
from stores.audit_checks import audit
from stores.ledger import Ledger
from stores.lock import DataDirectoryLock
from stores.schema import chain
from stores.writer import Committed, Transaction
from tests.keyed import Keyed, keyed_server
from tests.processes import environment, serving_process
from tests.serving import JSON, Api, Server, eventually, fresh, refused, server, succeeded
from tests.test_cli import Shell
from tests.test_doctor import NOT_AT_REST
from tests.test_upgrades import opened

NOBODY = "018f3e5a-0000-7000-8000-000000000000"
CANARY = "xyzzycanary"
WRITERS = 8


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    with keyed_server(tmp_path_factory.mktemp("audit"), mcp={"toolsets": ["brain", "admin"]}) as running:
        running.create("first")
        yield running


def log(api: Api, **filters: Any) -> list[JSON]:
    """The entries, newest first; the hashes must fit them."""
    answer = succeeded(api.get("/brain/audit", params=filters))
    assert answer["verified"] is True
    entries: list[JSON] = answer["entries"]
    return entries


def add(api: Api, content: str, **fields: Any) -> str:
    memory_id: str = api.add(content, **fields)["memory"]["memory_id"]
    return memory_id


def admin(keyed: Keyed, product: str, **fields: Any) -> Api:
    """A caller with every right."""
    return keyed.holder(product, rights=["read", "write", "admin"], **fields)


def told(entries: list[JSON]) -> list[tuple[str, str | None, str | None]]:
    return [(entry["action"], entry["memory_id"], entry["refused"]) for entry in entries]


def link(entry: JSON) -> str:
    """The hash of an entry, as docs/security.md says that anybody can compute it."""
    names = ("seq", "at", "product", "agent_id", "user_id", "action", "memory_id", "key_id", "request_id")
    covered = [*(entry[name] for name in names), entry["refused"], entry["fields"], entry["digest"]]
    text = json.dumps(covered, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(bytes.fromhex(entry["previous"]) + text.encode()).hexdigest()


# What it says


def test_each_write_is_an_entry_with_its_key_its_reason_and_its_place_in_the_chain(keyed: Keyed) -> None:
    product = fresh("product")
    key = keyed.create(product, authority="policy", rights=["read", "write"])
    writer, auditor = keyed.bearing(key["credential"]), keyed.holder(product, rights=["admin"])
    memory_id = add(writer, "It stands.")
    writer.request("PATCH", f"/brain/memory/{memory_id}", {"tags": ["a"]})
    writer.request("DELETE", f"/brain/memory/{memory_id}", {"reason": "It fell."})
    deleted, changed, added, *keys = log(auditor)
    assert [entry["action"] for entry in (deleted, changed, added)] == [
        "brain_memory_delete", "brain_memory_update", "brain_memory_add",
    ]  # fmt: skip
    assert [entry["action"] for entry in keys] == ["key_create", "key_create"]
    assert (deleted["reason"], changed["reason"], added["reason"]) == ("It fell.", None, None)
    assert (deleted["fields"], changed["fields"], added["fields"]) == (["status"], ["tags"], [])
    assert deleted["previous"] == changed["hash"] and changed["previous"] == added["hash"]
    for entry in (deleted, changed, added):
        assert (entry["key_id"], entry["memory_id"]) == (key["key_id"], memory_id)
        assert (entry["agent_id"], entry["user_id"]) == ("default", product)
        assert entry["digest"] is not None and entry["refused"] is None
        assert link(entry | {"product": product}) == entry["hash"]


def test_a_refused_write_is_an_entry_and_is_no_part_of_the_history(keyed: Keyed) -> None:
    product = fresh("product")
    boss = admin(keyed, product, authority="policy")
    memory_id = add(boss, "A policy.", source_authority="policy")
    forgotten = add(boss, "Forgotten.")
    succeeded(boss.request("DELETE", f"/brain/memory/{forgotten}"))
    low = keyed.create(product, authority="informal", rights=["read", "write"])
    reader = keyed.create(product, rights=["read"])
    informal, reading = keyed.bearing(low["credential"]), keyed.bearing(reader["credential"])
    before = log(boss)[0]["seq"]
    path = f"/brain/memory/{memory_id}"
    refused(reading.request("DELETE", path), 403, "forbidden")
    refused(informal.try_add(CANARY, source_authority="policy"), 403, "authority_not_allowed")
    refused(
        informal.request("PATCH", path, {"tags": [CANARY], "expected_version": 9}), 412, "version_conflict"
    )
    refused(informal.request("DELETE", f"/brain/memory/{forgotten}"), 410, "memory_forgotten")
    refused(informal.request("DELETE", f"/brain/memory/{NOBODY}"), 404, "memory_not_found")
    refused(informal.request("DELETE", f"/brain/memory/{CANARY}"), 404, "memory_not_found")
    refused(informal.get("/brain/audit"), 403, "forbidden")
    tried = [entry for entry in log(boss) if entry["seq"] > before][::-1]
    assert told(tried) == [
        ("brain_memory_delete", memory_id, "forbidden"),
        ("brain_memory_add", None, "authority_not_allowed"),
        ("brain_memory_update", memory_id, "version_conflict"),
        ("brain_memory_delete", forgotten, "memory_forgotten"),
        ("brain_memory_delete", NOBODY, "memory_not_found"),
        ("brain_memory_delete", None, "memory_not_found"),
        ("brain_audit", None, "forbidden"),
    ]
    assert [entry["key_id"] for entry in tried] == [reader["key_id"], *[low["key_id"]] * 6]
    history = succeeded(boss.get(f"{path}/history"))
    assert [event["action"] for event in history["events"]] == ["brain_memory_add"]


def test_what_was_not_judged_and_reads_that_found_nothing_are_no_entries(keyed: Keyed) -> None:
    api = admin(keyed, fresh("product"))
    before = len(log(api))
    refused(api.try_add(""), 422, "invalid_argument")
    refused(api.post("/brain/memory", b"{"), 400, "bad_json")
    refused(api.get(f"/brain/memory/{NOBODY}"), 404, "memory_not_found")
    assert len(log(api)) == before


@pytest.mark.anyio
async def test_a_refusal_by_mcp_is_an_entry_too(keyed: Keyed) -> None:
    product = fresh("product")
    auditor = admin(keyed, product)
    low = keyed.create(product, authority="informal", rights=["write"])
    headers = {"authorization": f"Bearer {low['credential']}"}
    async with (
        httpx.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
        Client(streamable_http_client(f"{keyed.server.owner.url}/mcp", http_client=http)) as client,
    ):
        over = {"content": "Ordered.", "source_authority": "policy"}
        assert (await client.call_tool("brain_memory_add", over)).is_error
        assert (await client.call_tool("brain_memory_search", {"query": "anything"})).is_error
        assert (await client.call_tool("brain_purge", {"memory_id": NOBODY})).is_error
    assert told(log(auditor, key_id=low["key_id"], refused=True)) == [
        ("brain_purge", NOBODY, "forbidden"),
        ("brain_memory_search", None, "forbidden"),
        ("brain_memory_add", None, "authority_not_allowed"),
    ]


def test_each_refused_item_of_a_batch_is_an_entry_once(keyed: Keyed) -> None:
    api = admin(keyed, fresh("product"), authority="team")
    old = add(api, "Said.", frame="elsewhere")
    items = [
        {"content": "Good."},
        {"content": "Over.", "source_authority": "policy"},
        {"content": "Replaced.", "supersedes": [old]},
        {"content": ""},
    ]
    for _ in range(2):  # with the key, the second is only a replay
        answer = api.batch(items, idempotency_key="k")
        assert [result["status"] for result in answer["results"]][1:] == [403, 409, 422]
    assert told(log(api, refused=True)) == [
        ("brain_memory_add", old, "conflict_state"),
        ("brain_memory_add", None, "authority_not_allowed"),
    ]
    refused(
        api.post("/brain/memory/batch", {"items": items[:2], "atomic": True}), 403, "authority_not_allowed"
    )
    assert told(log(api, action="brain_memory_add_batch")) == [
        ("brain_memory_add_batch", None, "authority_not_allowed")
    ]


def test_a_refusal_stays_what_it_is_when_the_ledger_takes_no_writes(tmp_path: Path) -> None:
    with keyed_server(tmp_path) as running:
        reader = running.holder("acme", rights=["read"])
        running.server.brain.ledger.stop_writing()
        refused(reader.try_add("Not mine to write."), 403, "forbidden")


# Who sees it, and how


def test_the_log_is_of_the_callers_scope_and_user(keyed: Keyed) -> None:
    product = fresh("product")
    bound, free = admin(keyed, product, agent="smith"), admin(keyed, product)
    mine = add(bound.of(user="ada"), "Ada's.")
    other = add(bound.of(user="eve"), "Eve's.")
    elsewhere = add(free.of(agent="jones"), "Elsewhere.")

    def seen(api: Api) -> list[str]:
        return [entry["memory_id"] or entry["action"] for entry in log(api)]

    assert seen(bound) == [other, mine]
    assert seen(bound.of(user="ada")) == [mine]
    assert log(bound.of(user="ada"), memory_id=other) == log(bound.of(user="ada"), memory_id=NOBODY) == []
    assert seen(free.of(agent="jones")) == [elsewhere, "key_create", "key_create"]
    assert seen(admin(keyed, fresh("product"))) == ["key_create"]


def test_the_log_is_filtered_and_read_in_pages(keyed: Keyed) -> None:
    api = admin(keyed, fresh("product"), agent="smith")
    ids = [add(api, f"Number {number}.") for number in range(5)]
    succeeded(api.request("DELETE", f"/brain/memory/{ids[0]}"))
    refused(api.request("DELETE", f"/brain/memory/{ids[0]}"), 410, "memory_forgotten")
    assert told(log(api, memory_id=ids[0])) == [
        ("brain_memory_delete", ids[0], "memory_forgotten"),
        ("brain_memory_delete", ids[0], None),
        ("brain_memory_add", ids[0], None),
    ]
    assert len(log(api, memory_id=ids[0], refused=False)) == 2
    assert len(log(api, action="brain_memory_add")) == 5
    everything = log(api)
    at = everything[3]["at"]
    assert log(api, since=at) == [entry for entry in everything if entry["at"] >= at]
    assert log(api, until=at) == [entry for entry in everything if entry["at"] <= at]
    pages: list[JSON] = []
    cursor: dict[str, Any] = {}
    while True:
        answer = succeeded(api.get("/brain/audit", params={"limit": 3, **cursor}))
        pages += answer["entries"]
        if answer["next_cursor"] is None:
            break
        cursor = {"cursor": answer["next_cursor"]}
    assert pages == everything
    refused(api.get("/brain/audit", params={"refused": True, **cursor}), 422, "invalid_argument", "cursor")
    refused(api.get("/brain/audit", params={"cursor": "x"}), 422, "invalid_argument", "cursor")


def test_no_text_stands_in_the_log_and_a_purge_takes_the_reason_and_the_salt(tmp_path: Path) -> None:
    with server(tmp_path) as running:
        api = running.api
        old = add(api, f"{CANARY} content", tags=[CANARY], metadata={CANARY: 1}, session_id=CANARY)
        new = {"content": "New.", "supersedes": [old], "reason": f"{CANARY} reason"}
        succeeded(api.post("/brain/memory/supersede", new))
        refused(api.request("DELETE", f"/brain/memory/{old}", {"reason": CANARY, "expected_version": 9}), 412,
                "version_conflict")  # fmt: skip
        kept = rows(tmp_path, "SELECT * FROM events") + rows(tmp_path, "SELECT * FROM chain")
        reasons = rows(tmp_path, "SELECT reason FROM events WHERE reason IS NOT NULL")
        assert reasons == [(f"{CANARY} reason",)] * 2 and str(kept).count(CANARY) == 2
        salts = [
            salt for (salt,) in rows(tmp_path, "SELECT salt FROM events WHERE memory_id = ?", old) if salt
        ]
        assert len(salts) == 2
        succeeded(api.post("/brain/purge", {"memory_id": old, "wait": True}))
        assert (
            rows(tmp_path, "SELECT reason, salt FROM events WHERE memory_id = ?", old) == [(None, None)] * 4
        )
        files = [path for path in tmp_path.rglob("ledger.sqlite3*") if path.is_file()]
        content = b"".join(path.read_bytes() for path in files)
        assert not any(salt in content for salt in salts)
        assert rows(tmp_path, "SELECT count(*) FROM events WHERE reason IS NOT NULL") == [(0,)]
        assert log(api) and verify_running(running) == {}


# The chain


def rows(directory: Path, query: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect(directory / "ledger.sqlite3")) as connection:
        return connection.execute(query, values).fetchall()


def verify(shell: Shell, *options: str) -> dict[str, list[str]]:
    """What `brain doctor --audit` finds in the log, and of which entries."""
    done = shell.run("doctor", "--audit", "--json", *options)
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["clean"] else 1), done.stderr
    return in_log(report)


def verify_running(running: Server) -> dict[str, list[str]]:
    """The same, of a server in this process, as the command asks it."""
    token = {"authorization": f"Bearer {running.owner.token}"}
    order = {"repair": False, "audit": True}
    return in_log(succeeded(running.api.http.post("/internal/doctor", json=order, headers=token)))


def in_log(report: JSON) -> dict[str, list[str]]:
    assert report["audit"]["entries"] > 0 and len(report["audit"]["hash"]) == 64
    found = {one["what"]: one["subjects"] for one in report["findings"] if one["check"] == "audit"}
    assert len(found) == report["checks"]["audit"]
    return found


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory at rest with entries 1 to 9, the fifth of them refused."""
    directory = tmp_path_factory.mktemp("chain") / "template"
    directory.mkdir(mode=0o700)
    with server(directory) as running:
        for number in range(4):
            add(running.api, f"Number {number}.")
        refused(running.api.request("DELETE", f"/brain/memory/{NOBODY}"), 404, "memory_not_found")
        for number in range(4, 8):
            add(running.api, f"Number {number}.")
        running.settle()
    assert rows(directory, "SELECT seq FROM chain") == [(seq,) for seq in range(1, 10)]
    return directory


TAMPERED = {
    "an entry is changed": ("UPDATE events SET key_id = 'somebody' WHERE seq = 4", "were changed", ["4"]),
    "a refusal is whitewashed": ("UPDATE events SET refused = NULL WHERE seq = 5", "were changed", ["5"]),
    "fields are no list": ("UPDATE events SET fields = 'x' WHERE seq = 4", "were changed", ["4"]),
    "a link is changed": ("UPDATE chain SET hash = zeroblob(32) WHERE seq = 4", "were changed", ["4", "5"]),
    "an entry is deleted": ("DELETE FROM events WHERE seq = 5", "are gone", ["5"]),
    "an entry and its link are deleted": (
        "DELETE FROM events WHERE seq = 5; DELETE FROM chain WHERE seq = 5", "were changed", ["6"],
    ),
    "the last ones are deleted": (
        "DELETE FROM events WHERE seq > 7; DELETE FROM chain WHERE seq > 7", "ends before", ["9"],
    ),
    "a link is deleted": ("DELETE FROM chain WHERE seq = 4", "have no link", ["4"]),
    "two entries are swapped": (
        "UPDATE events SET seq = 99 WHERE seq = 3; UPDATE events SET seq = 3 WHERE seq = 4;"
        "UPDATE events SET seq = 4 WHERE seq = 99", "were changed", ["3", "4"],
    ),
    "one is forged at the end": (
        "INSERT INTO events SELECT 10, at, product, agent, user, 'forged', memory_id, key_id, request_id,"
        " fields, NULL, NULL, NULL, NULL FROM events WHERE seq = 9", "have no link", ["10"],
    ),
    "nothing names the last": ("DELETE FROM settings WHERE name = 'audit.head'", "nothing names", ["9"]),
    "a text is changed": (
        "UPDATE memories SET content = 'Number 9.' WHERE seq = 4", "another text", None,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(template: Path) -> Iterator[Server]:
    """Over a copy of it, for damage that is undone by the end of a test. It never heals by itself."""
    directory = shutil.copytree(template, template.parent / "whole", ignore=NOT_AT_REST)
    with server(directory, doctor={"interval_s": 0}) as running:
        eventually(lambda: running.brain.in_step)
        yield running


def alter(directory: Path, statements: str, **attached: Path) -> None:
    """Run SQL as somebody would who knows the file: beside the service, without foreign keys."""
    with closing(sqlite3.connect(directory / "ledger.sqlite3", timeout=30)) as connection:
        for name, path in attached.items():
            connection.execute(f"ATTACH ? AS {name}", (str(path),))
        connection.executescript(statements)


UNDO = (
    "".join(
        f"DELETE FROM {table}; INSERT INTO {table} SELECT * FROM was.{table};"
        for table in ("chain", "events", "memories")
    )
    + "INSERT OR REPLACE INTO settings SELECT * FROM was.settings WHERE name = 'audit.head';"
)


@pytest.mark.parametrize("how", TAMPERED)
def test_whatever_is_tampered_with_is_found(whole: Server, template: Path, how: str) -> None:
    statements, says, subjects = TAMPERED[how]
    directory = whole.brain.settings.data_directory
    assert verify_running(whole) == {}
    alter(directory, statements)
    try:
        found = verify_running(whole)
    finally:
        alter(directory, UNDO, was=template / "ledger.sqlite3")
    assert len(found) == 1
    [(what, named)] = found.items()
    assert says in what
    assert named == subjects if subjects else MEMORY_ID.fullmatch(named[0])


def test_a_lost_end_is_found_beside_the_writes_that_came_after_it(template: Path, tmp_path: Path) -> None:
    shutil.copy(template / "ledger.sqlite3", tmp_path)
    alter(tmp_path, "DELETE FROM events WHERE seq > 7; DELETE FROM chain WHERE seq > 7")
    with server(tmp_path) as running:
        add(running.api, "Written after.")
        [(what, named)] = verify_running(running).items()
        assert "taken away" in what and named == ["10"]
        assert succeeded(running.api.get("/brain/audit", params={"limit": 1}))["verified"] is False


def test_the_command_finds_it_too_with_an_owner_and_without(template: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(template, tmp_path / "data", ignore=NOT_AT_REST))
    [(last,)] = rows(directory, "SELECT lower(hex(hash)) FROM chain WHERE seq = 9")
    with serving_process(directory) as owner:
        said = Shell(directory, owner).out("doctor", "--audit")
        assert "entries 9, the last is 9" in said and last in said
        alter(directory, "DELETE FROM chain WHERE seq = 4")
        assert [*verify(Shell(directory, owner)).values()] == [["4"]]
    assert [*verify(Shell(directory), "--repair").values()] == [["4"]]  # and no repair hides it


def test_entries_of_a_schema_without_a_chain_are_chained_when_it_is_opened(tmp_path: Path) -> None:
    opened(tmp_path, "0003")
    count = rows(tmp_path, "SELECT count(*) FROM events")
    with server(tmp_path) as running:
        assert rows(tmp_path, "SELECT count(*) FROM chain") == count
        assert verify_running(running) == {}


@contextmanager
def ledger(directory: Path) -> Iterator[Ledger]:
    """Nothing but the ledger, for writes that no door makes."""

    def publish(committed: list[Committed]) -> None:
        for done in committed:
            done.future.set_result(done.value)

    opened_ledger = Ledger(directory / "ledger.sqlite3", now, publish)
    opened_ledger.open()
    try:
        yield opened_ledger
    finally:
        opened_ledger.stop_writing()
        opened_ledger.close()


def record(transaction: Transaction) -> int:
    return transaction.event("test", Partition("p", "a", "u"), None, key_id=None, request_id="r")


def test_what_is_undone_leaves_no_gap(tmp_path: Path) -> None:
    def partly(transaction: Transaction) -> None:
        record(transaction)
        with suppress(Duplicate), transaction.savepoint():
            record(transaction)
            raise Duplicate("There is one.")
        record(transaction)

    def wholly(transaction: Transaction) -> None:
        record(transaction)
        raise Duplicate("There is one.")

    with ledger(tmp_path) as opened_ledger:
        for write in (partly, wholly, record):
            with suppress(Duplicate):
                opened_ledger.submit(write).result()
        with opened_ledger.snapshot() as connection:
            assert list(connection.scalars(select(chain.c.seq))) == [1, 3, 5]
            assert list(audit(connection)) == []


def test_the_chain_holds_with_many_writers_and_after_kill_9(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o700)
    acknowledged: list[str] = []

    def write(url: str, number: int) -> None:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
            try:
                for count in range(10_000):
                    items = [{"content": f"w{number}n{count}"}, {"content": "x", "supersedes": [NOBODY]}]
                    answer = http.post("/brain/memory/batch", json={"items": items})
                    acknowledged.extend(answer.json()["results"][0]["memory_ids"])
                    http.delete(f"/brain/memory/{NOBODY}")
            except httpx.TransportError:
                return

    command = [sys.executable, "-m", "tests.kill_server", str(directory)]
    with subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL) as process:
        with ThreadPoolExecutor(WRITERS) as pool:
            try:
                owner = eventually(DataDirectoryLock(directory).owner, within=60)
                writers = [pool.submit(write, owner.url, number) for number in range(WRITERS)]
                eventually(lambda: len(acknowledged) > 100, within=60)
            finally:
                process.kill()
        for writer in writers:
            writer.result()
    with server(directory) as running:
        assert verify_running(running) == {}
    written = {id for (id,) in rows(directory, "SELECT memory_id FROM events JOIN chain USING (seq)")}
    assert set(acknowledged) <= written
    refusals = rows(directory, "SELECT count(*) FROM events WHERE refused = 'memory_not_found'")
    assert refusals[0][0] >= len(acknowledged)
