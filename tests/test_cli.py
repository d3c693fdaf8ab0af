"""The command line, as real processes: with an owner of the data directory and without one."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from stores.lock import DataDirectoryLock, Owner
from tests import warm
from tests.processes import BRAIN, environment, serving_process
from tests.serving import JSON

pytest_plugins = ["tests.embedding_fixtures"]

ESCAPE = "\x1b"
NOWHERE = "http://127.0.0.1:9"  # the discard port: nobody listens


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs `brain` on one data directory."""

    data: Path
    owner: Owner | None = None
    cold: bool = False  # with all its imports, as users start it; else see tests/warm.py

    def run(
        self, *arguments: str, given: bytes = b"", anywhere: bool = False, **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        """`anywhere`: the command takes no data directory."""
        command = [*arguments, *([] if anywhere else ["--data", str(self.data)])]
        env = environment(COLUMNS="100", **variables)
        if self.cold:
            done = subprocess.run([*BRAIN, *command], env=env, input=given, capture_output=True, timeout=120)
        else:
            done = warm.run("service.cli", *command, env=env, given=given, timeout=120)
        return subprocess.CompletedProcess(
            command, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def out(self, *arguments: str, **options: Any) -> str:
        """What a command that must succeed prints."""
        done = self.run(*arguments, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str, **options: Any) -> JSON:
        found: JSON = json.loads(self.out(*arguments, "--json", **options))
        return found

    def fails(self, code: int, text: str, *arguments: str, **options: Any) -> str:
        """What a command that must fail prints on standard output; `text` stands on standard error."""
        done = self.run(*arguments, **options)
        assert done.returncode == code, (done.stdout, done.stderr)
        assert text in " ".join(done.stderr.split()), done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    @property
    def free(self) -> bool:
        """Whether nobody owns the data directory."""
        lock = DataDirectoryLock(self.data)
        taken = lock.acquire()
        lock.release()
        return taken


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """Without an owner."""
    return Shell(tmp_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, onnx_folder: Path) -> Iterator[Shell]:
    """With `brain serve` as the owner."""
    directory = tmp_path_factory.mktemp("served")
    with serving_process(directory) as owner:
        yield Shell(directory, owner)


def test_a_first_try_without_a_server_stores_and_finds_and_leaves_nothing_running(
    tmp_path: Path, onnx_folder: Path
) -> None:
    alone = Shell(tmp_path, cold=True)
    added = alone.json("add", "Deploys happen on Tuesday.", "--tag", "deploy", "--authority", "team")
    id = added["memory"]["memory_id"]
    assert added["memory"]["tags"] == ["deploy"] and added["indexed"] is False  # nobody waited for the model
    assert alone.free and not (alone.data / "owner.json").exists()
    found = alone.json("search", "on which weekday do we release?")
    assert [hit["memory_id"] for hit in found["results"]] == [id]
    assert "vector" in found["results"][0]["matched_by"] and not found["degraded"]
    assert id in alone.out("list") and "1 of 1." in alone.out("list", "--tag", "deploy")
    assert alone.free
    log = alone.run("get", id, BRAIN_LOG__LEVEL="info")
    assert log.returncode == 0 and log.stderr == "" and "Deploys happen on Tuesday." in log.stdout


def test_commands_that_start_at_once_without_a_server_all_get_their_turn(alone: Shell) -> None:
    with ThreadPoolExecutor(4) as pool:
        added = list(pool.map(lambda number: alone.json("add", f"Note {number}."), range(4)))
    assert len({one["memory"]["memory_id"] for one in added}) == 4
    assert alone.json("stats")["total"] == 4 and alone.free


def test_through_the_owner_a_program_gets_exactly_the_http_document(served: Shell) -> None:
    assert served.owner is not None
    added = served.json("add", "The gauge reads 2.50 bar.", "--layer", "l5_knowledge", BRAIN_AGENT="plant")
    id = added["memory"]["memory_id"]
    url, headers = f"{served.owner.url}/brain/memory/{id}", {"x-brain-agent": "plant"}
    answer = httpx.get(url, headers=headers, trust_env=False, timeout=60).json()
    got = served.json("get", id, "--agent", "plant")
    of_the_call = {"elapsed_ms", "request_id", "source"}
    assert list(got) == list(answer) and len(got) == 20
    assert {name: got[name] for name in got if name not in of_the_call} == {
        name: answer[name] for name in answer if name not in of_the_call
    }
    assert served.json("stats", BRAIN_AGENT="plant")["total"] == 1
    assert served.json("list", "--layer", "l5_knowledge", "--agent", "plant")["total"] == 1
    assert served.json("list", "--layer", "l2_fact", "--agent", "plant")["total"] == 0
    hits = served.json("search", "gauge", "--limit", "1", "--url", served.owner.url, BRAIN_AGENT="plant")
    assert hits["results"][0]["memory_id"] == id
    served.fails(1, "memory_not_found", "get", id)  # of another agent


def test_people_read_tables_without_colours_or_anybodys_control_characters(served: Shell) -> None:
    evil = f"Harmless{ESCAPE}[2J [bold red]markup[/] \u202eback \x9b31m"
    added = served.out("add", "-", "--agent", "evil", given=evil.encode())
    assert added.startswith("Stored ")
    id = added.split()[1]
    for command in (("get", id), ("list",), ("search", "harmless")):
        shown = served.out(*command, "--agent", "evil")
        assert "Harmless\\u001b[2J [bold red]markup[/]" in " ".join(shown.split()), shown
        assert not {ESCAPE, "\u202e", "\x9b"} & set(shown)
        assert max(len(line) for line in shown.splitlines()) <= 100
    assert served.json("get", id, "--agent", "evil")["content"] == evil
    assert "United with" in served.out("add", evil.replace(" ", "  "), "--agent", "evil")
    assert "memories" in served.out("stats", "--agent", "evil")
    assert "Nothing is stored here." in served.out("list", "--agent", "nobody")
    assert "Nothing relevant is stored." in served.out("search", "harmless", "--agent", "nobody")


def test_standard_input_is_taken_as_it_is_but_for_its_last_line_break(served: Shell) -> None:
    for given, kept in ((b"caf\xc3\xa9\n\n  x\n", "café\n\n  x"), (b"a\r\n", "a"), (b" b", " b")):
        stored = served.json("add", "-", "--agent", "stdin", given=given)
        assert stored["memory"]["content"] == kept
    served.fails(2, "not UTF-8: byte 1", "add", "-", given=b"a\xff")
    served.fails(1, "(invalid_argument)", "add", "-")


def test_a_long_list_is_read_page_by_page(served: Shell) -> None:
    assert served.owner is not None
    items = {"items": [{"content": text} for text in ("one", "two", "three")]}
    headers = {"x-brain-agent": "pages"}
    httpx.post(
        f"{served.owner.url}/brain/memory/batch", json=items, headers=headers, trust_env=False, timeout=60
    )
    page = ("list", "--limit", "2", "--agent", "pages", "--order", "oldest")
    first = served.json(*page)
    assert [memory["content"] for memory in first["memories"]] == ["one", "two"]
    assert f"--cursor {first['next_cursor']}" in served.out(*page)
    rest = served.out(*page, "--cursor", first["next_cursor"])
    assert "three" in rest and "two" not in rest and "--cursor" not in rest


@pytest.mark.parametrize(("code", "text", "arguments"), [
    (1, "(memory_not_found)", ["get", "nope"]), (1, "hint: ", ["get", ".."]),
    (1, "memory_id", ["get", ""]), (1, "content", ["add", ""]), (1, "layer", ["add", "a", "--layer", "l9"]),
    (1, "limit", ["search", "a", "--limit", "101"]), (1, "cursor", ["list", "--cursor", "x"]),
    (1, "X-Brain-Agent", ["stats", "--agent", "x" * 129]),
    (2, "BRAIN_AGENT must be printable ASCII", ["stats", "--agent", "café"]),
    (2, "--limit", ["search", "a", "--limit", "many"]), (2, "No such option", ["stats", "--colour"]),
    (2, "text", ["add"]), (2, "No such command", ["ad"]),
    (2, "--product goes with the data directory", ["stats", "--url", NOWHERE, "--product", "acme"]),
    (3, "did not answer", ["stats", "--url", NOWHERE]), (3, "did not answer", ["stats", "--url", "nonsense"]),
    (2, "no configuration file", ["stats", "--config", "/nowhere.yaml"]),
    (2, "--product", ["keys", "create"]),
    (1, "rights[0]", ["keys", "create", "--product", "a", "--rights", ""]),
    (2, "--acts-for takes only 'user'", ["keys", "create", "--product", "a", "--acts-for", "me"]),
    (2, "--expires 0d", ["keys", "create", "--product", "a", "--expires", "0d"]),
    (1, "expires_in_ms", ["keys", "create", "--product", "a", "--expires", "999999999w"]),
    (1, "(key_not_found)", ["keys", "revoke", "a/../b"]), (2, "", ["keys", "revoke"]),
], ids=str)  # fmt: skip
def test_wrong_input_is_refused_with_its_exit_code_and_the_next_move(
    served: Shell, code: int, text: str, arguments: list[str]
) -> None:
    assert served.fails(code, text, *arguments, anywhere=arguments == ["ad"]) == ""


def test_a_refusal_is_a_problem_document_for_a_program(served: Shell) -> None:
    problem = json.loads(served.fails(1, "hint: ", "get", "nope", "--json"))
    assert (problem["status"], problem["code"]) == (404, "memory_not_found")
    problem = json.loads(served.fails(1, "", "keys", "revoke", "nope", "--json"))
    assert (problem["status"], problem["code"]) == (404, "key_not_found")


def test_a_data_directory_that_is_in_use_or_impossible_has_its_exit_code(served: Shell) -> None:
    served.fails(3, "in use by process", "serve", "--port", "0")
    assert Shell(Path("/proc/nowhere")).fails(2, "data.directory", "stats") == ""
    assert Shell(Path("/proc/nowhere")).fails(2, "data.directory", "keys", "list") == ""


def test_help_documents_every_command_and_the_exit_codes(alone: Shell) -> None:
    for command in ([], ["add"], ["get"], ["search"], ["list"], ["stats"]):
        text = " ".join(alone.out(*command, "--help", anywhere=True).split())
        assert "Exit codes: 0 done; 1 the service refused it" in text
        assert ESCAPE not in text
    # Inside a shell, which is what it looks for: the tests themselves may run without one.
    show = f"{shlex.join(map(str, BRAIN))} --show-completion; exit $?"
    shown = subprocess.run(
        ["bash", "-c", show], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert "_BRAIN_COMPLETE" in shown.stdout, shown.stderr


def test_config_tells_where_each_setting_came_from(alone: Shell, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("server:\n  port: 9000\nresident:\n  budget_mb: 64\n", encoding="utf-8")
    options = ("config", "--config", str(file), "--host", "localhost")
    found = alone.json(*options, BRAIN_RESIDENT__BUDGET_MB="128")
    assert found["server.port"] == {"value": 9000, "origin": "file"}
    assert found["server.host"] == {"value": "localhost", "origin": "flag"}
    assert found["resident.budget_mb"] == {"value": 128, "origin": "environment"}
    assert found["data.directory"] == {"value": str(alone.data), "origin": "flag"}
    assert found["log.level"] == {"value": "info", "origin": "default"}
    plain = alone.json("config", anywhere=True)
    assert {one["origin"] for one in plain.values()} == {"default"}  # the file that comes with the code
    assert "mine.yaml" in alone.out(*options)
    alone.fails(2, "did you mean BRAIN_SERVER__PORT?", "config", BRAIN_SERVER_PORT="1")
