"""Settings: one file with every default and a comment on each, and nothing is taken that is not known."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import DEFAULT_CONFIG, Settings, SettingsError, load, names

TEXT = DEFAULT_CONFIG.read_text(encoding="utf-8")


def config(directory: Path, text: str) -> Path:
    path = directory / "brain.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path | None, environment: dict[str, str] | None = None, **flags: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load(path, environment or {}, flags)
    return str(caught.value)


def test_the_file_says_exactly_what_the_code_does_without_it() -> None:
    assert load(DEFAULT_CONFIG, {}) == load(None, {}) == Settings()


def test_every_setting_stands_in_the_file_in_the_order_of_the_code() -> None:
    values = yaml.safe_load(TEXT)
    assert [f"{section}.{key}" for section, keys in values.items() for key in keys] == names()


def test_every_setting_has_a_comment_above_it_or_above_its_group() -> None:
    lines = TEXT.splitlines()
    keys = [number for number, line in enumerate(lines) if re.match(r"  \w+:", line)]
    assert len(keys) == len(names())
    for number in keys:
        above = number - 1
        while re.match(r"  \w+:", lines[above]):  # a group of settings may share its comment
            above -= 1
        assert lines[above].startswith("  # "), lines[number]


def test_the_environment_goes_over_the_file_and_a_flag_over_both(tmp_path: Path) -> None:
    path = config(tmp_path, "server:\n  port: 1\n  host: localhost\nresident:\n  budget_mb: 7\n")
    environment = {"BRAIN_SERVER__PORT": "2", "BRAIN_RESIDENT__BUDGET_MB": "8", "PATH": "/bin"}
    settings = load(path, environment, {"server.port": 3, "server.host": None})
    assert (settings.server.port, settings.resident.budget_mb) == (3, 8)
    assert settings.server.host == "localhost"  # a flag that was not given changes nothing
    assert load(path, environment).server.port == 2
    assert load(path, {}).server.port == 1


def test_the_environment_names_the_file_unless_a_flag_does(tmp_path: Path) -> None:
    path = config(tmp_path, "server:\n  port: 9\n")
    assert load(None, {"BRAIN_CONFIG": str(path)}).server.port == 9
    assert load(DEFAULT_CONFIG, {"BRAIN_CONFIG": str(path)}).server.port == 8377
    assert load(None, {"BRAIN_CONFIG": ""}) == Settings()


@pytest.mark.parametrize(("variable", "text", "value"), [
    ("BRAIN_MCP__TOOLSETS", "[core, brain]", ["core", "brain"]),
    ("BRAIN_MCP__TOOLSETS", "core, brain", ["core", "brain"]),
    ("BRAIN_SEARCH__RELEVANCE_FLOOR", "0.5", 0.5),
    ("BRAIN_DATA__DIRECTORY", "~/memory", "~/memory"),
    ("BRAIN_DATA__DIRECTORY", "2026", "2026"),
    ("BRAIN_DATA__DIRECTORY", "a: b", "a: b"),
    ("BRAIN_EMBEDDING__MODEL", "null", "null"),
    ("BRAIN_EMBEDDING__EXPORT_DIRECTORY", "", ""),
])  # fmt: skip
def test_a_variable_is_read_as_its_setting_wants_it(variable: str, text: str, value: Any) -> None:
    section, key = variable.removeprefix("BRAIN_").lower().split("__")
    assert getattr(getattr(load(None, {variable: text}), section), key) == value


@pytest.mark.parametrize(("text", "message"), [
    ("servers:\n  port: 1\n", "Unknown setting servers; did you mean server?"),
    ("server:\n  prot: 1\n", "Unknown setting server.prot; did you mean server.port?"),
    ("server:\n  port: many\n", "Setting server.port: "),
    ("server:\n  port: 65536\n", "Setting server.port: "),
    ("server:\n  port: [1]\n", "Setting server.port: "),
    ("server: 5\n", "Setting server: "),
    ("search:\n  relevance_floor: 2\n", "Setting search.relevance_floor: "),
    ("log:\n  level: loud\n", "Setting log.level: "),
    ("mcp:\n  toolsets: core\n", "Setting mcp.toolsets: "),
    ("data:\n  directory: 5\n", "Setting data.directory: "),
    ("- a\n", "must hold sections"),
    ("a: [\n", "is not YAML"),
])  # fmt: skip
def test_a_wrong_file_is_refused_by_the_name_of_the_setting(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(config(tmp_path, text))


def test_every_wrong_setting_is_named_at_once(tmp_path: Path) -> None:
    message = refusal(config(tmp_path, "server:\n  port: x\n  prot: 1\nlog:\n  level: loud\n"))
    assert all(name in message for name in ("server.port", "server.prot", "log.level"))


def test_an_empty_file_and_an_empty_section_mean_the_defaults(tmp_path: Path) -> None:
    assert load(config(tmp_path, ""), {}) == Settings()
    assert load(config(tmp_path, "server:\n  # port: 1\ndata:\n"), {}) == Settings()
    assert load(config(tmp_path, "server:\n"), {"BRAIN_SERVER__PORT": "5"}).server.port == 5


@pytest.mark.parametrize(("variable", "near"), [
    ("BRAIN_SERVER__PROT", "BRAIN_SERVER__PORT"), ("BRAIN_SERVER_PORT", "BRAIN_SERVER__PORT"),
    ("BRAIN_USERS", "BRAIN_USER"), ("BRAIN_APIKEY", "BRAIN_API_KEY"),
])  # fmt: skip
def test_an_unknown_variable_is_refused_with_the_nearest_known_one(variable: str, near: str) -> None:
    assert refusal(None, {variable: "1"}) == f"Unknown variable {variable}; did you mean {near}?"


def test_a_variable_of_a_wrong_type_names_its_setting() -> None:
    assert "Setting server.port: " in refusal(None, {"BRAIN_SERVER__PORT": "many"})


def test_variables_of_the_caller_are_no_settings() -> None:
    caller = {"BRAIN_API_KEY": "k", "BRAIN_AGENT": "a", "BRAIN_USER": "u", "BRAIN_URL": "http://localhost"}
    assert load(None, caller) == Settings()


def test_a_file_that_is_named_must_be_there_and_be_text(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    assert refusal(missing) == f"There is no configuration file {missing}."
    assert refusal(None, {"BRAIN_CONFIG": str(missing)}) == f"There is no configuration file {missing}."
    assert "can't be read" in refusal(tmp_path)
    missing.write_bytes(b"\xff\xfe\x00")
    assert str(missing) in refusal(missing)


def test_the_data_directory_is_an_absolute_path(tmp_path: Path) -> None:
    assert Settings().data_directory == Path.home() / ".brain-memory"
    assert load(None, {}, {"data.directory": "here"}).data_directory == Path.cwd() / "here"
