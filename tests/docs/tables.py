"""Tables over the registry, the settings and the error tree."""

import re
from typing import Any

import yaml

from models.errors import BrainError, InternalError
from models.keys import RIGHTS
from service.mcp_tools import TOOLSETS, choose
from service.operations import OPERATIONS, Operation
from service.settings import DEFAULT_CONFIG, PREFIX, Settings, names
from tests.docs.schemas import bounds, kind, table


def operations() -> str:
    """Every operation in one line, linked to its section."""
    rows = [
        (
            f"[`{o.name}`](#{o.name})",
            f"`{o.route.method} {o.route.path}`",
            str(o.route.status),
            f"`{o.right}`",
            o.title,
        )
        for o in OPERATIONS
    ]
    return table(("operation", "route", "status", "right", "does"), rows)


def rights() -> str:
    """What each right opens."""
    rows = [
        (f"`{right}`", ", ".join(f"`{o.name}`" for o in OPERATIONS if o.right == right)) for right in RIGHTS
    ]
    return table(("right", "operations"), rows)


def toolsets() -> str:
    """What each toolset shows."""
    rows = []
    for name in TOOLSETS:
        chosen = choose([name])
        rows.append((f"`{name}`", str(len(chosen)), ", ".join(f"`{o.name}`" for o in chosen) or "none yet"))
    return table(("toolset", "tools", "which"), rows)


def tools() -> str:
    """Every tool with its hints."""
    rows = [
        (f"`{o.name}`", o.title, ", ".join(sorted(o.toolsets)), f"`{o.right}`", _hints(o), _first_sentence(o))
        for o in OPERATIONS
    ]
    return table(("tool", "title", "toolsets", "right", "hints", "does"), rows)


def _hints(operation: Operation[Any]) -> str:
    hints = operation.annotations
    said = {"read-only": hints.read_only, "destructive": hints.destructive, "idempotent": hints.idempotent}
    return ", ".join(name for name, value in said.items() if value) or "–"


def _first_sentence(operation: Operation[Any]) -> str:
    return operation.description.partition(". ")[0] + "."


def errors() -> str:
    """Every code: status → retryable → meaning → next move."""
    tree: set[type[BrainError]] = {BrainError, *BrainError.__subclasses__()}
    classes = sorted(tree - {InternalError}, key=_by_status)
    rows = [
        (f"`{e.code}`", str(e.status), "yes" if e.retryable else "no", f"{e.title}.", e.hint) for e in classes
    ]
    return table(("code", "status", "retryable", "what it means", "next move"), rows)


def _by_status(error: type[BrainError]) -> tuple[int, str, str]:
    return error.status, error.code, error.title


def settings() -> str:
    """Every setting, with the words of config.yaml."""
    comments = comments_of(DEFAULT_CONFIG.read_text(encoding="utf-8"))
    schema = Settings.model_json_schema()
    defaults = Settings().model_dump()
    rows = []
    for name in names():
        section, key = name.split(".")
        field = schema["$defs"][schema["properties"][section]["$ref"].rpartition("/")[2]]["properties"][key]
        limits = "".join(f" {phrase[0].upper()}{phrase[1:]}." for phrase in bounds(field))
        variable = PREFIX + name.replace(".", "__").upper()
        default = yaml.safe_dump(defaults[section][key], default_flow_style=True).partition("\n")[0]
        rows.append((f"`{name}`", f"`{variable}`", kind(field), f"`{default}`", comments[name] + limits))
    return table(("setting", "variable", "type", "default", "meaning"), rows)


def comments_of(text: str) -> dict[str, str]:
    """The comment above each setting of a configuration file, or above its group."""
    found: dict[str, str] = {}
    section, words, ended = "", "", False
    for line in text.splitlines():
        if heading := re.match(r"(\w+):", line):
            section, words, ended = heading[1], "", False
        elif comment := re.match(r"  # (.*)", line):
            words = comment[1] if ended else f"{words} {comment[1]}".strip()
            ended = False
        elif key := re.match(r"  (\w+):", line):
            found[f"{section}.{key[1]}"] = words
            ended = True
    return found
