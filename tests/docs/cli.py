"""Tables over the command line, from the typer application itself."""

from typing import Any

import typer

from service.cli import cli
from tests.docs.schemas import table


def commands() -> dict[str, Any]:
    """Every command by its full name, `keys create` for one of a group, in the order of `--help`."""
    found: dict[str, Any] = {}
    for name, command in typer.main.get_command(cli).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found |= {f"{name} {one}": it for one, it in inner.items()} if inner else {name: command}
    return found


def commands_block() -> str:
    """Every command in one line."""
    rows = [
        (f"[`brain {name}`](#brain-{name.replace(' ', '-')})", _paragraphs(command)[0])
        for name, command in commands().items()
    ]
    return table(("command", "does"), rows)


def command_block(name: str) -> str:
    """Usage, words and options of one command."""
    command = commands()[name]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join(["brain", name, *(_metavar(p) for p in arguments), "[OPTIONS]"])
    rows = [_row(parameter) for parameter in command.params if not parameter.hidden]
    parts = [f"`{usage}`", *_paragraphs(command)]
    return "\n\n".join([*parts, table(("argument or option", "variable", "default", "meaning"), rows)])


def _paragraphs(command: Any) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in command.help.split("\n\n")]


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _row(parameter: Any) -> tuple[str, ...]:
    if parameter.param_type_name == "argument":
        shown = _metavar(parameter)
    elif parameter.is_flag:
        shown = "/".join(parameter.opts)
    else:
        shown = f"{'/'.join(parameter.opts)} {_metavar(parameter)}"
    variable = f"`{parameter.envvar}`" if parameter.envvar else ""
    if parameter.required:
        default = "required"
    else:
        default = "–" if parameter.default in (None, False) else f"`{parameter.default}`"
    return f"`{shown}`", variable, default, parameter.help or ""
