"""`brain ingest`: transcripts of coding agents, through the owner of the data directory or in its place."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import uvloop

from service.cli_options import Agent, AsJson, ConfigFile, DataDirectory, Product, Url, User, settings_of
from service.terminal import REFUSED, UNREACHABLE, USAGE, give_up, safe, show, show_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    import httpx

    from service.ingest_files import Advance, File, Root, Summary

EVERY_S = 2.0  # between two looks at a folder that is watched
SETTLED_S = 60  # after so long, a last line that can't be read is not being written any more
MAX_SHOWN = 20  # errors on a terminal; --json has them all
EPILOG = (
    "Exit codes: 0 done; 1 a file failed: nothing of that one was stored; 2 a wrong option, setting or path; "
    "3 the data directory is in use, or the service can't be reached."
)

Document = dict[str, Any]


def ingest(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH|HOST:LABEL=PATH]...",
            help="Files or folders; else ~/.claude/projects and ~/.codex/sessions.",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Whose: claude-code, codex-cli, cursor; else by the path.")
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="Label of the folder, part of a session's identity; else `local`.")
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="The project; else the work tree that the session was in.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is there, send nothing.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until Ctrl-C, taking in what is appended.")
    ] = False,
    url: Url = None,
    agent: Agent = None,
    user: User = None,
    product: Product = None,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Take in transcripts of Claude Code, Codex or Cursor.

    Of each file all is taken in or nothing. A second time adds only what is new, and reads on where it
    stopped. A last line that is still being written waits for the next time. The vectors follow while
    somebody serves."""
    from service.client import OwnerUnreachable, credential_headers
    from service.ingest_files import Unusable, roots_of

    if url and product:
        give_up("--product goes with the data directory; a key given to --url has its own.", USAGE)
    settings = settings_of(config, {"data.directory": data}, quiet=True)
    try:
        roots = roots_of(paths or [], host, root, Path.home())
        names = {"BRAIN_AGENT": agent or "", "BRAIN_USER": user or ""}
        headers = credential_headers({**names, "BRAIN_API_KEY": os.environ.get("BRAIN_API_KEY", "")})
    except (Unusable, ValueError) as error:
        give_up(str(error), USAGE)
    if product:
        headers["X-Brain-Product"] = product
    run = Ingestion(roots, project, lambda: _door(settings, url, headers), resume=not url, dry_run=dry_run)
    try:
        uvloop.run(run.watch(lambda done: _report(done, as_json, dry_run)) if watch else run.once())
    except OwnerUnreachable as error:
        give_up(str(error), UNREACHABLE, "Run it again: what is in is not added twice.")
    except KeyboardInterrupt:
        pass
    if not watch:
        _report(run.summary, as_json, dry_run)
    if run.summary.failed_files:
        raise typer.Exit(REFUSED)


@dataclass(slots=True)
class Ingestion:
    """Files of some roots on their way to the owner behind `door`. `now` gives epoch seconds, `sleep` waits
    seconds."""

    roots: list[Root]
    project: str | None
    door: Callable[[], Any]
    resume: bool = True
    dry_run: bool = False
    now: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    summary: Summary = field(init=False)
    _seen: dict[Path, tuple[int, int, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from service.ingest_files import Summary

        self.summary = Summary()

    async def once(self) -> None:
        """Take in what is there and was not seen as it is. Raises OwnerUnreachable."""
        from service.ingest_files import look_at, opened

        files = [file for file in opened(self.roots, self.project, self.summary) if self._is_new(file)]
        with _progress(sum(file.size for file in files)) as advance:
            if self.dry_run:
                for file in files:
                    self.summary.add(file.path, look_at(file, int(self.now())))
                    advance(file.size)
            elif files:
                async with self.door() as http:
                    for file in files:
                        await self._send(http, file, advance)

    async def watch(self, report: Callable[[Summary], None]) -> None:
        """The same again and again, until cancelled. `report` gets the counts of each round with news."""
        from service.client import OwnerUnreachable
        from service.ingest_files import Summary

        failed = 0
        while True:
            try:
                await self.once()
            except OwnerUnreachable as fault:  # it may be about to start again
                typer.echo(f"brain: {safe(fault)}", err=True)
            if self.summary.files:
                report(self.summary)
            failed += self.summary.failed_files
            self.summary = Summary(failed_files=0)
            await self.sleep(EVERY_S)

    def _is_new(self, file: File) -> bool:
        """Whether it changed since it was seen, or its last line has had its time."""
        settled = self.now() - file.modified > SETTLED_S
        looks = (file.size, file.modified, settled)
        if self._seen.get(file.path) in (looks, (*looks[:2], True)):
            return False
        self._seen[file.path] = looks
        return True

    async def _send(self, http: httpx.AsyncClient, file: File, advance: Advance) -> None:
        import httpx as client

        from service.client import OwnerUnreachable
        from service.ingest_files import Refused, send

        try:
            answer = await send(http, file, resume=self.resume, advance=advance)
        except (Refused, OSError) as fault:
            self.summary.fail(file.path, getattr(fault, "strerror", None) or str(fault))
            return
        except (client.RequestError, ValueError) as fault:
            self._seen.pop(file.path, None)
            what = f"{file.path} was cut off: {type(fault).__name__} {fault}"
            raise OwnerUnreachable(what.strip(), sent=True) from fault
        if answer["status"] != "partial":
            self._seen[file.path] = (file.size, file.modified, True)
        self.summary.add(file.path, answer)
        if answer["inserted"] and not sys.stderr.isatty():
            typer.echo(f"{safe(file.path)}: {answer['inserted']} new", err=True)


@asynccontextmanager
async def _door(settings: Any, url: str | None, headers: dict[str, str]) -> AsyncIterator[httpx.AsyncClient]:
    """A connection to the server at `url`, or to the owner of the data directory."""
    import httpx as client

    from service.owner_door import WAIT_S, owner_door

    if url is None:
        async with owner_door(settings) as http:
            http.headers.update({name: value for name, value in headers.items() if name != "Authorization"})
            yield http
        return
    limits = client.Timeout(WAIT_S, connect=5.0)
    async with client.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=limits) as http:
        yield http


@contextmanager
def _progress(size: int) -> Iterator[Advance]:
    """Give a function that is told how many bytes more are done. Shown on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("ingesting"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as shown:
        task = shown.add_task("ingesting", total=size)
        yield lambda count: shown.advance(task, count)


def _report(done: Summary, as_json: bool, dry_run: bool) -> None:
    if as_json:
        show_json(asdict(done))
        return
    counts = {
        "new messages": done.ingested_messages,
        "here already": done.duplicate_messages,
        "empty": done.empty_messages,
        "lines that are no message": done.skipped_messages,
        "files as they were": done.unchanged_files,
        "files with a last line that waits": done.partial_files,
        "files failed": done.failed_files,
    }
    said = [f"{count} {name}" for name, count in counts.items() if count or name == "new messages"]
    show(("Would be: " if dry_run else "") + f"{done.files} files: " + "; ".join(said) + ".")
    for one in done.errors[:MAX_SHOWN]:
        typer.echo(f"brain: {safe(one['file'])}: {safe(one['error'])}", err=True)
    if len(done.errors) > MAX_SHOWN:
        typer.echo(f"brain: and {len(done.errors) - MAX_SHOWN} more; --json shows all.", err=True)
