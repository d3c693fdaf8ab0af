"""`brain export` and `brain import`: through the owner of the data directory, or as its owner for a while."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
import uvloop

from service.cli_options import AsJson, ConfigFile, DataDirectory, settings_of
from service.terminal import REFUSED, UNREACHABLE, USAGE, give_up, safe, show, show_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from service.imported_files import Batch
    from service.settings import Settings

MAX_SHOWN = 20  # errors on a terminal; --json has them all
TAIL = 1_024  # bytes; the last line of an export is shorter

Document = dict[str, Any]


def export(
    file: Annotated[Path, typer.Argument(help="A file that is not there yet; `-` is standard output.")],
    product: Annotated[str | None, typer.Option(help="Only this product's memories.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent's.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's.")] = None,
    layers: Annotated[str | None, typer.Option(help="Comma-separated: l0_basic_info … l7_intention.")] = None,
    kinds: Annotated[str | None, typer.Option(help="Comma-separated: memory, message, …")] = None,
    since: Annotated[
        str | None, typer.Option(help="Written or changed then or later, like 2026-01-31 or epoch ms.")
    ] = None,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Write memories as JSONL, with their history and links.

    All of the data directory, or what the options keep to; in the order of writing, as it stands when the
    export begins, beside a running server too. What was forgotten is in it, with its text; of what was purged
    only the id. Vectors and keys stay behind: `brain backup` has them."""
    filters: Document = {"product": product, "agent": agent, "user": user}
    filters |= {"layers": layers.split(",") if layers else [], "kinds": kinds.split(",") if kinds else []}
    filters["since"] = None if since is None else _time(since)
    settings = settings_of(config, {"data.directory": data}, quiet=True)
    with _output(file) as output, _progress("exporting") as advance:
        end = uvloop.run(_export(settings, filters, output, advance))
    more = f"; of {end['gone']} that were purged, the id only" if end["gone"] else ""
    typer.echo(f"Exported {end['memories']} memories and {end['links']} links{more}.", err=True)


def import_file(
    file: Annotated[Path, typer.Argument(help="The file; `-` is standard input.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from", help="Written by: mcp-memory, mem0; else by `brain export`.", metavar="FORMAT"
        ),
    ] = None,
    product: Annotated[str | None, typer.Option(help="Put them into this product.")] = None,
    agent: Annotated[str | None, typer.Option(help="Put them into this agent's memory.")] = None,
    user: Annotated[str | None, typer.Option(help="Put them into this user's.")] = None,
    authority: Annotated[
        str, typer.Option(help="With --from, how binding it is: policy, official, team, informal.")
    ] = "informal",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen, write nothing.")] = False,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Take memories in from a file.

    A second time adds nothing. What is here already is never written over, and what was forgotten or purged
    here stays so. A line that can't be taken in is named with its number; the others are. The vectors follow
    while somebody serves."""
    from service.imported_files import ImportFailed, Opened

    settings = settings_of(config, {"data.directory": data}, quiet=True)
    options = {"product": product, "agent": agent, "user": user, "dry_run": dry_run}
    try:
        with _input(file) as stream:
            opened = Opened(stream, source, options, authority)
            with _progress("importing") as advance:
                done = uvloop.run(_import(settings, _counted(opened.batches(), advance), options))
            done["errors"] += opened.errors
    except ImportFailed as error:
        give_up(f"{file}: {error}", USAGE)
    done["errors"].sort(key=lambda error: error["line"])
    if as_json:
        show_json(done)
    else:
        show(*_summary(done, dry_run))
    for one in done["errors"][:MAX_SHOWN]:
        typer.echo(f"brain: line {one['line']}: {safe(one['detail'])} ({one['code']})", err=True)
    if len(done["errors"]) > MAX_SHOWN:
        typer.echo(f"brain: and {len(done['errors']) - MAX_SHOWN} more; --json shows all.", err=True)
    if done["errors"]:
        raise typer.Exit(REFUSED)


async def _export(
    settings: Settings, filters: Document, output: BinaryIO, advance: Callable[[int], None]
) -> Document:
    """What the last line says."""
    import httpx
    import orjson

    from service.client import OwnerUnreachable
    from service.owner_door import owner_door
    from service.transfer import EXPORT

    tail = b""
    try:
        async with (
            owner_door(settings) as http,
            http.stream("POST", EXPORT, content=orjson.dumps(filters)) as answer,
        ):
            if answer.status_code != 200:
                problem = orjson.loads(await answer.aread())
                give_up(f"{problem['detail']} ({problem['code']})", REFUSED, problem["hint"])
            async for part in answer.aiter_bytes():
                output.write(part)
                advance(part.count(b"\n"))
                tail = (tail + part)[-TAIL:]
    except OwnerUnreachable as error:
        give_up(str(error), UNREACHABLE)
    except httpx.RequestError as error:
        give_up(f"The export was cut off: {type(error).__name__} {error}", UNREACHABLE, "Run it again.")
    last = tail.removesuffix(b"\n").rpartition(b"\n")[2]
    if not last.startswith(b'{"end":') or not tail.endswith(b"\n"):
        give_up("The export was cut off: the ledger could not be read on.", UNREACHABLE, "Run it again.")
    end: Document = orjson.loads(last)["end"]
    return end


async def _import(settings: Settings, batches: Iterator[Batch], options: Document) -> Document:
    """The counts of all batches together, and their errors."""
    from service.client import OwnerUnreachable
    from service.imported_files import ImportRefused, send

    try:
        return await send(settings, batches, options)
    except OwnerUnreachable as error:
        give_up(
            f"The import was cut off: {error}", UNREACHABLE, "Run it again: what is in is not added twice."
        )
    except ImportRefused as refusal:
        give_up(str(refusal), REFUSED, refusal.hint)


@contextmanager
def _progress(doing: str) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many lines more are done. Shown on a terminal only."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(doing), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as shown:
        task = shown.add_task(doing, total=None)
        yield lambda count: shown.advance(task, count)


def _counted(batches: Iterator[Batch], advance: Callable[[int], None]) -> Iterator[Batch]:
    """The batches; each counts when the next one is asked for."""
    for batch in batches:
        yield batch
        advance(len(batch))


@contextmanager
def _output(file: Path) -> Iterator[BinaryIO]:
    """Standard output, or a new file that has its name only when it is whole."""
    if str(file) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if file.exists():
        give_up(f"{file} is there already. Name a file that is not.", USAGE)
    draft = file.with_name(f".{file.name}.partial")
    try:
        with draft.open("wb") as output:
            yield output
        draft.rename(file)
    except OSError as error:
        give_up(f"{file} can't be written: {error.strerror}.", USAGE)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _input(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        give_up(f"{file} can't be read: {error.strerror}.", USAGE)
    with stream:
        yield stream


def _time(text: str) -> int:
    """Epoch ms."""
    if re.fullmatch(r"-?[0-9]{1,15}", text):
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        give_up(f"--since {text}: write a date like 2026-01-31, a time, or epoch ms.", USAGE)
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def _summary(done: Document, dry_run: bool) -> list[str]:
    said = {
        "added": "added",
        "updated": "updated",
        "present": "here already",
        "differs": "here with a history of their own, left as they are",
        "hidden": "forgotten or purged here, left so",
        "gone": "purged there, kept from coming back",
        "links": "links set",
        "links_left_out": "links left out: an end is not here",
        "conflicts": "conflicts set",
        "conflicts_left_out": "conflicts left out: a side is not here",
    }
    counts = [f"{done[name]} {text}" for name, text in said.items() if done[name] or name == "added"]
    return [("Would be: " if dry_run else "") + "; ".join(counts) + "."]


COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (("export", export), ("import", import_file))
