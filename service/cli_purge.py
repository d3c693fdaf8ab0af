"""`brain purge`: destroy memories, and prove that a text is in no file any more."""

import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from service.cli_memories import Caller
from service.cli_options import Agent, AsJson, ConfigFile, DataDirectory, Product, Url, User, settings_of
from service.settings import Settings
from service.terminal import REFUSED, USAGE, cells, give_up, show, show_json, standard_input, table

SHOWN = 1_000  # places of a text; beyond them they are counted only
TARGETS = ("--memory", "--session", "--user-id", "--all")

Document = dict[str, Any]


def purge(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            help="With --verify: texts that must be in no file; `-`: the lines of standard input.",
            metavar="TEXT…",
        ),
    ] = None,
    memory: Annotated[str | None, typer.Option(help="Destroy one memory, by its id.")] = None,
    session: Annotated[str | None, typer.Option(help="Destroy all memories of a session.")] = None,
    user_id: Annotated[str | None, typer.Option(help="Destroy all memories of a user of the agent.")] = None,
    everything: Annotated[
        str | None,
        typer.Option(
            "--all", metavar="AGENT", help="Destroy everything of the product and agent; name the agent."
        ),
    ] = None,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Also what was derived from it or rests on it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Search every file for the texts.")] = False,
    url: Url = None,
    agent: Agent = None,
    user: User = None,
    product: Product = None,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Destroy memories for good, or prove that a text is gone.

    Answers with a receipt once the text is out of every file, or after a minute with what is still pending.
    With --verify nothing is destroyed: every file of the data directory is searched, also beside a server,
    and the exit code is 1 when a text is found."""
    targets = {"memory_id": memory, "session_id": session, "user_id": user_id, "confirm": everything}
    given = {name: value for name, value in targets.items() if value is not None}
    if verify:
        if given or dry_run or cascade or url:
            give_up("--verify takes texts and --data only: it searches files.", USAGE)
        _verify(settings_of(config, {"data.directory": data}, quiet=True), _sought(texts or []), as_json)
        return
    if texts:
        give_up("TEXT… goes with --verify. To destroy, name " + ", ".join(TARGETS) + ".", USAGE)
    if len(given) != 1:
        give_up("Name exactly one of " + ", ".join(TARGETS) + ".", USAGE)
    caller = Caller(url, agent, user, product, data, config)
    order = given | {"cascade": cascade}
    if everything is not None:
        order["all"] = True
    if not (dry_run or yes):
        _confirm(caller, order)
    answer = caller.ask(
        "brain_purge", order | {"dry_run": dry_run, "wait": True}, as_json=as_json, with_vdb=True
    )
    if not as_json:
        _show_receipt(answer)


def _confirm(caller: Caller, order: Document) -> None:
    if not sys.stdin.isatty():
        give_up("Nobody is there to be asked: repeat with --yes, or with --dry-run first.", USAGE)
    count = caller.ask("brain_purge", order | {"dry_run": True}, as_json=False)["count"]
    if not typer.confirm(f"Destroy {count} memories for good? It can't be undone", err=True):
        give_up("Nothing was destroyed.", USAGE)


def _show_receipt(receipt: Document) -> None:
    count, dry_run, done = receipt["count"], receipt["dry_run"], receipt["done"]
    shown = table("", "")
    shown.add_row(*cells("would be destroyed" if dry_run else "destroyed", count))
    for name, ids in (("ids", receipt["purged"]), ("now due for review", receipt["review"])):
        if ids:
            shown.add_row(*cells(name, "\n".join(ids)))
    if not dry_run:
        for name, part in (("ledger", "ledger"), ("write-ahead log", "wal"), ("vector store", "vdb")):
            shown.add_row(*cells(name, done[part]))
    shown.add_row(*cells("backups", receipt["backups"]))
    show(shown)
    if not dry_run and "pending" in done.values():
        typer.echo("Pending parts follow in the background: prove it with brain purge --verify.", err=True)


def _sought(texts: list[str]) -> list[str]:
    found: list[str] = []
    for text in texts:
        if text != "-":
            found.append(text)
            continue
        found += [line for line in standard_input().splitlines() if line]
    if not found or "" in found:
        give_up("--verify needs a text that is not empty: brain purge --verify TEXT…", USAGE)
    return found


def _verify(settings: Settings, texts: list[str], as_json: bool) -> None:
    """Only files are opened: the lock and the owner don't matter."""
    from stores.traces import Search

    directory = settings.data_directory
    if not directory.is_dir():
        give_up(f"There is no data directory {directory}. Name it with --data.", USAGE)
    search = Search(directory, texts)
    places: list[Document] = []
    count = 0
    for trace in search.traces():
        count += 1
        if count > SHOWN:
            continue
        places.append(asdict(trace))
    clean = not count and not search.unread
    report = {"clean": clean, "count": count, "traces": places, "unread": search.unread}
    if as_json:
        show_json(report | {"files": search.files, "bytes": search.size})
    elif places:
        shown = table("text", "form", "byte", "file")
        for place in places:
            part = place["form"] if place["whole"] else f"{place['form']}, a piece"
            at = "in its name" if place["offset"] is None else place["offset"]
            shown.add_row(*cells(place["text"] + 1, part, at, place["file"]))
        show(shown)
    for file in search.unread:
        typer.echo(f"brain: not searched: {file}", err=True)
    if not clean:
        give_up(f"{count} traces in {search.files} files." if count else "Not everything was read.", REFUSED)
    if not as_json:
        show(f"No trace in {search.files} files, {search.size} bytes.")
