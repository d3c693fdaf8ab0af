"""`brain rebuild`: embed again and fill Chroma anew, on a data directory that nobody serves, or with --live
inside the server that does. The stores are imported only when the command runs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from models.errors import BrainError, InvalidArgument
from service.cli_options import AsJson, ConfigFile, DataDirectory, data_lock, settings_of
from service.cli_owner import OwnerLeft, answer_of, not_listening
from service.settings import Settings
from service.terminal import REFUSED, UNREACHABLE, USAGE, cells, give_up, refuse, show, show_json, table
from stores.lock import Owner

if TYPE_CHECKING:
    from models.rebuild_order import RebuildOrder

PATH = "/internal/rebuild"
PAUSE_S = 0.3  # between two looks at a live rebuild
LINE_S = 5.0  # between two lines where there is no terminal
INTERRUPTED = 130
EPILOG = (
    "Exit codes: 0 done; 1 it failed, was cancelled or refused, and what served before goes on serving; 2 a "
    "wrong option or setting, or a model that can't be used; 3 the data directory is in use (--live goes "
    "through its owner), or can't be reached; 130 interrupted: the same command goes on from there."
)

Document = dict[str, Any]
Draw = Callable[[Document], None]


Model = Annotated[
    str | None, typer.Option(help="Name or path of a model; else embedding.model.", metavar="NAME_OR_PATH")
]
FromVectors = Annotated[
    bool, typer.Option("--from-vectors", help="Fill Chroma from the ledger's vectors; embed nothing.")
]
Scopes = Annotated[
    list[str] | None,
    typer.Option("--scope", help="Only these scopes; may be repeated.", metavar="PRODUCT/AGENT"),
]
Layers = Annotated[str | None, typer.Option(help="Only these layers, by commas.")]
OnlyMissing = Annotated[
    bool,
    typer.Option(
        "--only-missing",
        "--token-vectors",
        help="Embed only what has no vectors of the model yet, or none of its word pieces.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Count, and estimate the time from a measured sample.")
]
Rollback = Annotated[
    bool, typer.Option("--rollback", help="Return to the generation before the last rebuild.")
]
Prune = Annotated[bool, typer.Option("--prune", help="Delete that generation: directories and vectors.")]
Live = Annotated[
    bool, typer.Option("--live", help="Inside the server that owns the directory, while it serves.")
]
Status = Annotated[bool, typer.Option("--status", help="Show the rebuild inside the server.")]
Cancel = Annotated[bool, typer.Option("--cancel", help="End the rebuild inside the server.")]


def rebuild(
    model: Model = None,
    from_vectors: FromVectors = False,
    scope: Scopes = None,
    layers: Layers = None,
    only_missing: OnlyMissing = False,
    dry_run: DryRun = False,
    rollback: Rollback = False,
    prune: Prune = False,
    live: Live = False,
    status: Status = False,
    cancel: Cancel = False,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Embed every memory again and fill Chroma anew.

    The new vectors and directories are made beside the old ones and verified; then one transaction switches
    to them. The old ones stay for --rollback until --prune."""
    if sum((rollback, prune, status, cancel)) > 1:
        give_up("--rollback, --prune, --status and --cancel: choose one.", USAGE)
    order = {
        "action": "rollback" if rollback else "prune" if prune else "rebuild",
        "model": None if model is None else _model(model),
        "from_vectors": from_vectors,
        "scope": scope or [],
        "layers": [name.strip() for name in layers.split(",")] if layers else [],
        "only_missing": only_missing,
        "dry_run": dry_run,
    }
    settings = settings_of(config, {"data.directory": data}, quiet=True)
    checked = _order(order)
    lock = data_lock(settings)
    if not lock.acquire():
        owner = lock.owner()
        if not (live or status or cancel):
            who = (
                "another process that is starting"
                if owner is None
                else f"process {owner.pid}, at {owner.url}"
            )
            give_up(
                f"{settings.data_directory} is in use by {who}.",
                UNREACHABLE,
                "Add --live to rebuild inside it while it goes on serving, or stop it first.",
            )
        if owner is None:
            not_listening(settings)
        _live(owner, order, "GET" if status else "DELETE" if cancel else "POST", as_json)
        return
    try:
        if status or cancel:
            give_up(f"Nobody serves {settings.data_directory}: there is no live rebuild.", UNREACHABLE)
        _alone(settings, checked, as_json)
    finally:
        lock.release()


def _model(given: str) -> str:
    """The same model wherever the owner runs."""
    return str(Path(given).absolute()) if (Path(given) / "tokenizer.json").is_file() else given


def _order(order: Document) -> RebuildOrder:
    from models.rebuild_order import RebuildOrder
    from service.validation import validate

    try:
        checked = validate(RebuildOrder, order)
        checked.check()
    except InvalidArgument as error:
        _wrong(error.document(""))
    return checked


def _wrong(problem: Document) -> None:
    """An argument's name as the option that it was given by."""
    texts = [
        f"--{one['field'].split('[')[0].replace('_', '-')} {one['message']}." for one in problem["errors"]
    ]
    give_up(" ".join(texts) or problem["detail"], USAGE)


def _alone(settings: Settings, order: RebuildOrder, as_json: bool) -> None:
    from service import app
    from service.rebuilding import Progress, alone
    from stores.embedding_run import ModelUseless
    from stores.vdb import VdbUnavailable
    from stores.verification import VerificationFailed

    load = app.model_loader(settings)
    try:
        with _drawing() as draw:
            progress = Progress(told=lambda now: draw(now.document()))
            done = asyncio.run(alone(settings, order, progress, load=load, clock=app.now))
    except InvalidArgument as error:
        _wrong(error.document(""))
    except BrainError as error:
        refuse(error.document(""), as_json=as_json)
    except (VerificationFailed, VdbUnavailable, ModelUseless) as error:
        give_up(f"The rebuild failed: {error}", REFUSED, "What served before goes on serving.")
    except KeyboardInterrupt:
        give_up("Interrupted. The same command goes on from here.", INTERRUPTED)
    else:
        _report(done, as_json)


# Through the owner


def _live(owner: Owner, order: Document, method: str, as_json: bool) -> None:
    found = _ask(owner, method, order if method == "POST" else None, as_json)
    if method != "POST":
        _report(found, as_json)
        return
    try:
        with _drawing() as draw:
            while found["state"] == "running":
                draw(found)
                time.sleep(PAUSE_S)
                found = _ask(owner, "GET", None, as_json)
    except KeyboardInterrupt:
        give_up("It goes on in the server. --status shows it, --cancel ends it.", INTERRUPTED)
    if found["state"] == "done":
        _report(found["report"], as_json)
        return
    if found["state"] == "cancelled":
        give_up("The rebuild was cancelled.", REFUSED, "What served before goes on serving.")
    problem = found.get("problem")
    if problem is not None and problem["code"] == InvalidArgument.code:
        _wrong(problem)
    if problem is not None:
        refuse(problem, as_json=as_json)
    give_up(f"The rebuild failed: {found.get('error')}", REFUSED, "What served before goes on serving.")


def _ask(owner: Owner, method: str, body: Document | None, as_json: bool) -> Document:
    def refused(status: int, problem: Document) -> None:
        if status == InvalidArgument.status:
            _wrong(problem)

    try:
        return answer_of(owner, as_json, method, PATH, body, refused=refused)
    except OwnerLeft as left:
        give_up(str(left), UNREACHABLE)


# What is shown


@contextmanager
def _drawing() -> Iterator[Draw]:
    """A bar on a terminal, lines elsewhere; on stderr, because standard output is the report's."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (
        TextColumn("{task.description:10}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None, pace="")

        def draw(now: Document) -> None:
            total = now["total"] or None
            bar.update(task, description=now["stage"], completed=now["done"], total=total, pace=_pace(now))

        yield draw


def _lines() -> Draw:
    last, shown = "", 0.0

    def draw(now: Document) -> None:
        nonlocal last, shown
        ended = now["done"] == now["total"]
        if now["stage"] != last or ended or time.monotonic() - shown >= LINE_S:
            last, shown = now["stage"], time.monotonic()
            typer.echo(f"{now['stage']} {now['done']} of {now['total']} {_pace(now)}".rstrip(), err=True)

    return draw


def _pace(now: Document) -> str:
    if not now["rate"]:
        return ""
    left = now["seconds_left"]
    return f"{now['rate']:,.0f} a second" + ("" if left is None else f", {left // 60}:{left % 60:02d} left")


def _report(found: Document, as_json: bool) -> None:
    if as_json:
        show_json(found)
        return
    shown = table("", "")
    for name, value in found.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {_text(one)}" for key, one in value.items())
        if name != "next":
            shown.add_row(*cells(name.replace("_", " "), _text(value)))
    show(shown)
    if found.get("next"):
        typer.echo(found["next"], err=True)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "–" if value is None or value == "" else str(value)
