"""The documentation is what the code is: its tables are current, nothing is missing from it, and every
example is run."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from models.errors import BrainError
from service.operations import BY_NAME, OPERATIONS
from service.settings import CALLER_VARIABLES, load, names
from tests import warm
from tests.docs import cli
from tests.docs.examples import Block, Names, blocks, check_json, check_text
from tests.docs.pages import BLOCKS, DOCS, PAGES, README, ROOT, current
from tests.docs.pages import names as parts_of
from tests.processes import environment, serving_process
from tests.serving import eventually

pytest_plugins = ["tests.embedding_fixtures"]

ADDRESS = "127.0.0.1:8377"  # the pages' server
INSTALLATION = "/path/to/brain-memory"
LANGUAGES = {"", "sh", "json", "text", "yaml"}
WITH_EXAMPLES = (*PAGES, README)
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
each_with_examples = pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)

# The beginnings of the blocks that are for reading only. Each page says why.
NOT_RUN = {
    ("README.md", "make serve"),
    ("README.md", "claude mcp add"),
    ("README.md", "brain keys create"),
    ("cli.md", "brain serve"),
    ("cli.md", "brain models export"),
    ("cli.md", "brain --install-completion"),
    ("mcp.md", "claude mcp add"),
    ("security.md", ".venv/bin/python -m tests.injection.measure"),
    ("faults.md", ".venv/bin/python -m tests.schema_fixture"),
}


@each_page
def test_the_generated_parts_of_a_page_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- generated: ") == text.count("<!-- end -->") == len(parts_of(text))
    assert text == current(text), "`make docs` writes them anew"


def test_every_generated_part_stands_on_one_page() -> None:
    found = [name for page in PAGES for name in parts_of(page.read_text(encoding="utf-8"))]
    assert sorted(found) == sorted(BLOCKS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_has_a_section_with_an_example(operation: Any) -> None:
    section = _section((DOCS / "http-api.md").read_text(encoding="utf-8"), operation.name)
    assert f"<!-- generated: operation {operation.name} -->" in section
    assert re.search(r"```sh\ncurl .*?```\n\n```(json|text)\n", section, re.DOTALL)


def test_every_setting_variable_error_code_and_command_is_named() -> None:
    configuration = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert {name for name in names() if f"`{name}`" not in configuration} == set()
    assert {name for name in CALLER_VARIABLES if f"`{name}`" not in configuration} == set()
    errors = (DOCS / "errors.md").read_text(encoding="utf-8")
    tree: list[type[BrainError]] = [BrainError, *BrainError.__subclasses__()]
    codes = {error.code for error in tree}
    assert {code for code in codes if f"`{code}`" not in errors} == set()
    commands = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert {name for name in cli.commands() if not _section(commands, f"brain {name}")} == set()


@each_with_examples
def test_every_link_to_a_file_or_a_heading_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, heading = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), target
        assert not heading or heading in _headings(found.read_text(encoding="utf-8")), target


@each_with_examples
def test_every_tool_that_a_page_names_is_real(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"`(brain_(?!<)[a-z_]+)`", text)) <= set(BY_NAME)


def test_what_is_not_run_is_listed_here_and_says_why() -> None:
    found = [block for page in WITH_EXAMPLES for block in blocks(page) if block.not_run]
    listed = {
        (page, start) for page, start in NOT_RUN for b in found if b.page == page and b.text.startswith(start)
    }
    assert listed == NOT_RUN and len(found) == len(NOT_RUN)
    assert all(len(block.not_run or "") > 10 for block in found)


@each_with_examples
def test_every_block_is_of_a_language_that_is_tested(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, block
        if block.language in ("", "text"):
            assert not re.search(r"^(curl|brain|make) ", block.text, re.MULTILINE), block


@pytest.mark.skipif(not shutil.which("curl") or not shutil.which("bash"), reason="needs curl and bash")
@each_with_examples
def test_every_command_of_a_page_does_what_the_page_shows(
    page: Path, tmp_path: Path, onnx_folder: Path
) -> None:
    commands = [block for block in blocks(page) if block.language == "sh" and not block.not_run]
    needs_server = any(ADDRESS in block.text for block in commands)
    with _served(tmp_path) if needs_server else nullcontext(ADDRESS) as address:
        _run_all(commands, tmp_path, address)


@each_with_examples
def test_every_configuration_of_the_service_is_accepted(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.language == "yaml":
            file = tmp_path / "config.yaml"
            file.write_text(block.text, encoding="utf-8")
            assert yaml.safe_load(block.text)
            load(file, {})


@pytest.mark.anyio
@each_with_examples
async def test_every_configuration_of_an_mcp_client_opens_a_door_with_tools(
    page: Path, tmp_path: Path, onnx_folder: Path
) -> None:
    for block in blocks(page):
        if block.language == "json":
            [server] = json.loads(block.text)["mcpServers"].values()
            home = tmp_path / str(block.line)  # its own: the one before may still be leaving
            home.mkdir()
            async with AsyncExitStack() as stack:
                door = await _door(server, home, stack)
                client = await stack.enter_async_context(Client(door))
                tools = {tool.name for tool in (await client.list_tools()).tools}
            assert "brain_memory_search" in tools and tools <= set(BY_NAME), block


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def _door(server: dict[str, Any], home: Path, stack: AsyncExitStack) -> Any:
    """What an MCP client opens who was given this configuration, with all that it says."""
    if "url" in server:
        assert set(server) <= {"url", "headers"}
        address = stack.enter_context(_served(home))
        http: Any = httpx.AsyncClient(headers=server.get("headers"), trust_env=False, timeout=60)
        await stack.enter_async_context(http)
        return streamable_http_client(server["url"].replace(ADDRESS, address), http_client=http)
    assert set(server) <= {"command", "args", "env"}
    assert server["command"] == f"{INSTALLATION}/.venv/bin/brain"
    variables = environment(HOME=str(home), **server.get("env", {}))
    return StdioServerParameters(command=str(_bin() / "brain"), args=server["args"], env=variables)


@contextmanager
def _served(home: Path) -> Iterator[str]:
    """`brain serve` for this home, with its model loaded. Gives host and port."""
    with serving_process(home / ".brain-memory") as owner:
        with httpx.Client(base_url=owner.url, trust_env=False, timeout=60) as http:
            eventually(lambda: http.get("/readyz").json()["embedding"]["state"] == "ready")
        yield owner.url.removeprefix("http://")


def _run_all(commands: list[Block], home: Path, address: str) -> None:
    """In order: what one shows, the next may use."""
    found = Names()
    last_id = ""
    commands_of = home / "commands"
    commands_of.mkdir()
    warm.put_command(commands_of, "brain", "service.cli")
    path = os.pathsep.join(map(str, (commands_of, _bin(), os.environ["PATH"])))
    for block in commands:
        text = found.in_command(block.text).replace(ADDRESS, address).replace("MEMORY_ID", last_id)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=ROOT,
            env=environment(HOME=str(home), COLUMNS="100", PATH=path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        output = done.stdout.decode()
        for ours, theirs in ((address, ADDRESS), (str(home), "~"), (str(ROOT), INSTALLATION)):
            output = output.replace(ours, theirs)
        where = f"{block.page}:{block.line}"
        assert done.returncode == 0, f"{where}: exit code {done.returncode}\n{output}"
        if ids := re.findall(r'"memory_id":"([^"]+)"', output):
            last_id = ids[0]
        try:
            if block.shown is None:
                assert '"retryable":' not in output, f"a problem document that is not shown: {output}"
            elif block.shown.language == "json":
                check_json(block.shown.text, output, found)
            else:
                check_text(block.shown.text, output, found)
        except AssertionError as difference:
            raise AssertionError(f"{where}: {difference}") from None


def _is(block: Block, page: str, start: str) -> bool:
    return block.page == page and block.text.startswith(start)


def _bin() -> Path:
    return Path(sys.executable).parent


def _section(text: str, title: str) -> str:
    """What stands under a heading, up to the next one of its level or a higher one; empty without it."""
    match = re.search(
        rf"^(##+) `?{re.escape(title)}`?\n(.*?)(?=^##? |^\1 |\Z)", text, re.DOTALL | re.MULTILINE
    )
    return match[2] if match else ""


def _headings(text: str) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
