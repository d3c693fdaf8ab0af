"""Every setting, read once. Command line > `BRAIN_…` environment > `config.yaml` > the defaults here.

A setting `resident.budget_mb` is `BRAIN_RESIDENT__BUDGET_MB` in the environment. Unknown keys and variables
are refused with the nearest known one.
"""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from service.weights import names as weight_names

PREFIX = "BRAIN_"
# Read elsewhere: who calls and where, rather than how the service runs.
CALLER_VARIABLES = frozenset({"BRAIN_API_KEY", "BRAIN_AGENT", "BRAIN_USER", "BRAIN_URL", "BRAIN_CONFIG"})
DEFAULT_CONFIG = Path(__file__).resolve().parent.parent / "config.yaml"


class SettingsError(Exception):
    """A setting that is unknown or wrong. The text names it and the next move."""


def _known_weights(weights: dict[str, float]) -> dict[str, float]:
    known = weight_names()
    unknown = next((name for name in weights if name not in known), None)
    if unknown is not None:
        raise ValueError(f"has no weight {unknown!r}; there are {', '.join(known)}")
    return weights


def _known_timezone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"is no time zone: {name!r}; write one like Europe/Berlin or UTC") from None
    return name


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(ge=0)]


class Server(_Section):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8377
    allowed_hosts: list[Annotated[str, Field(min_length=1)]] = []
    keep_alive_s: Positive = 75
    shutdown_s: Positive = 20


class Data(_Section):
    directory: Annotated[str, Field(min_length=1)] = "~/.brain-memory"


class Embedding(_Section):
    model: str = "all-MiniLM-L6-v2+multilingual-e5-small"
    export_directory: str = ""


class Write(_Section):
    embed_wait_ms: NotNegative = 2000


class Resident(_Section):
    budget_mb: Positive = 1024


class VectorStore(_Section):
    read_deadline_ms: Positive = 20
    gather_ms: NotNegative = 500


class Doctor(_Section):
    interval_s: NotNegative = 3600


class Search(_Section):
    relevance_floor: Annotated[float, Field(ge=0, le=1)] = 0.08
    weights: Annotated[dict[str, float], AfterValidator(_known_weights)] = {}


class Observations(_Section):
    label_timezone: Annotated[str, AfterValidator(_known_timezone)] = "Asia/Shanghai"


class Mcp(_Section):
    toolsets: list[str] = ["core"]


class Limits(_Section):
    requests_per_second: Weight = 0
    burst: Positive = 50


class Log(_Section):
    level: Literal["debug", "info", "warning", "error"] = "info"


class Settings(_Section):
    """All of them, by section."""

    server: Server = Server()
    data: Data = Data()
    embedding: Embedding = Embedding()
    write: Write = Write()
    resident: Resident = Resident()
    vdb: VectorStore = VectorStore()
    doctor: Doctor = Doctor()
    search: Search = Search()
    observations: Observations = Observations()
    mcp: Mcp = Mcp()
    limits: Limits = Limits()
    log: Log = Log()

    @property
    def data_directory(self) -> Path:
        return Path(self.data.directory).expanduser().absolute()


Origin = Literal["default", "file", "environment", "flag"]


def load(
    config: Path | None, environment: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None
) -> Settings:
    """The effective settings. `config` None means `BRAIN_CONFIG`, else the `config.yaml` that comes with the
    code, if it is there. `flags` are dotted names. Raises SettingsError."""
    return load_with_origins(config, environment, flags)[0]


def load_with_origins(
    config: Path | None, environment: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None
) -> tuple[Settings, dict[str, Origin]]:
    """The same, and where each setting, by its dotted name, came from."""
    named = config or (Path(environment["BRAIN_CONFIG"]) if environment.get("BRAIN_CONFIG") else None)
    values = _from_file(named or DEFAULT_CONFIG, must_exist=named is not None)
    defaults = {name: _value(Settings(), name) for name in names()}
    origins: dict[str, Origin] = {name: "file" if _has(values, name) else "default" for name in defaults}
    for name, text in _from_environment(environment).items():
        _put(values, name, _from_text(name, text))
        origins[name] = "environment"
    for name, value in (flags or {}).items():
        if value is not None:
            _put(values, name, value)
            origins[name] = "flag"
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError("; ".join(_explain(e) for e in error.errors())) from None
    if named in (None, DEFAULT_CONFIG):  # that file says what the code does without it, unless it was edited
        for name, default in defaults.items():
            if origins[name] == "file" and _value(settings, name) == default:
                origins[name] = "default"
    return settings, origins


def names() -> list[str]:
    """Every setting's dotted name, in the order of the file."""
    return [f"{section}.{key}" for section, keys in Settings().model_dump().items() for key in keys]


def _from_file(path: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if must_exist:
            raise SettingsError(f"There is no configuration file {path}.") from None
        return {}
    except OSError as error:
        raise SettingsError(f"{path} can't be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is not UTF-8: byte {error.start}.") from None
    try:
        values = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is not YAML: {error}") from None
    if not isinstance(values, dict):
        raise SettingsError(f"{path} must hold sections, like `server:`.")
    return {section: keys for section, keys in values.items() if keys is not None}  # all commented out


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    known = {PREFIX + name.replace(".", "__").upper(): name for name in names()}
    found: dict[str, str] = {}
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in CALLER_VARIABLES:
            if variable not in known:
                raise SettingsError(
                    f"Unknown variable {variable}{_near(variable, [*known, *CALLER_VARIABLES])}"
                )
            found[known[variable]] = environment[variable]
    return found


def _value(settings: Settings, name: str) -> Any:
    section, key = name.split(".")
    return getattr(getattr(settings, section), key)


def _has(values: dict[str, Any], name: str) -> bool:
    section, key = name.split(".")
    return isinstance(values.get(section), dict) and key in values[section]


def _put(values: dict[str, Any], name: str, value: Any) -> None:
    section, key = name.split(".")
    block = values.setdefault(section, {})
    if isinstance(block, dict):
        block[key] = value


def _from_text(name: str, text: str) -> Any:
    """A variable's text: as it is for a setting that is a text, between commas for a list, else as YAML
    would read it."""
    default = _value(Settings(), name)
    if isinstance(default, str):
        return text
    if isinstance(default, list) and not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return yaml.safe_load(text) if text.strip() else text
    except yaml.YAMLError:
        return text


def _explain(error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        known = list(Settings.model_fields) if len(error["loc"]) == 1 else names()
        return f"Unknown setting {name}{_near(name, known)}"
    return f"Setting {name}: {error['msg']}"


def _near(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
