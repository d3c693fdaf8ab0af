"""What the commands show: JSON for programs, tables for people, errors on stderr, exit codes.

Texts from the memory are somebody's words: they reach the terminal without control characters and without
markup, so that a memory can't move the cursor or pretend to be our output.
"""

import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from models import verbatim

REFUSED, USAGE, UNREACHABLE = 1, 2, 3  # exit codes; 0 is success
EXIT_CODES = (
    "Exit codes: 0 done; 1 the service refused it (the problem document says why); 2 a wrong option or "
    "setting; 3 the data directory is in use, or the service can't be reached."
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def give_up(message: str, code: int, hint: str | None = None) -> NoReturn:
    """Say it on stderr and exit with `code`."""
    typer.echo(f"brain: {safe(message)}", err=True)
    if hint:
        typer.echo(f"  hint: {safe(hint)}", err=True)
    raise typer.Exit(code)


def standard_input() -> str:
    """All of it. Gives up when it is not UTF-8."""
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        give_up(f"Standard input is not UTF-8: byte {error.start}.", USAGE)


def show_json(value: Any) -> None:
    """The document, whole and alone on standard output."""
    sys.stdout.buffer.write(verbatim.dump(value).encode() + b"\n")
    sys.stdout.buffer.flush()


def refuse(problem: dict[str, Any], *, as_json: bool) -> NoReturn:
    """End with the service's refusal."""
    if as_json:
        show_json(problem)
    give_up(f"{problem.get('detail')} ({problem.get('code')})", REFUSED, problem.get("hint"))


def show(*parts: Any) -> None:
    """Tables and lines on standard output: wrapped to its width, in colours on a terminal only."""
    console = Console(highlight=False, soft_wrap=False)
    for part in parts:
        console.print(part if isinstance(part, Table) else Text(safe(part)))


def table(*headings: str) -> Table:
    """An empty table; the last column takes the width that is left."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(headings))
    for heading in headings[:-1]:
        made.add_column(heading, no_wrap=True)
    made.add_column(headings[-1], overflow="fold", ratio=1)
    return made


def cells(*values: Any) -> list[Text]:
    """The cells of a row, as plain text."""
    return [Text(safe(value)) for value in values]


def safe(value: Any) -> str:
    """The text with its control characters, and those that turn its direction, made visible."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", "" if value is None else str(value))


def date(epoch_ms: int | None) -> str:
    """To the minute, UTC; empty for None."""
    if epoch_ms is None:
        return ""
    return f"{_EPOCH + timedelta(milliseconds=epoch_ms):%Y-%m-%d %H:%M}Z"
