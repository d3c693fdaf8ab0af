"""`brain doctor`: through the owner of the data directory when there is one, else on its files directly. The
stores are imported only when the command runs: `--help` should answer at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli_options import AsJson, ConfigFile, DataDirectory, settings_of
from service.cli_owner import answer_of, ask_or_do
from service.terminal import cells, show, show_json, table

if TYPE_CHECKING:
    from service.settings import Settings
    from stores.lock import Owner

PATH = "/internal/doctor"
FOUND = 1
EPILOG = (
    "Exit codes: 0 nothing is wrong, or everything was repaired; 1 something is; 2 a wrong option or "
    "setting; 3 the data directory is in use, or its owner can't be reached."
)
ANSWER_S = 3_600.0  # a large store takes minutes to look at, and a repair fills shards anew

Document = dict[str, Any]


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be derived again.")] = False,
    audit: Annotated[bool, typer.Option("--audit", help="Verify the whole audit log as well.")] = False,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Prove that ledger, graph and Chroma agree.

    Names what does not, and whether it can be repaired. A repair never
    loses a memory: it derives again what can be derived from the ledger."""
    settings = settings_of(config, {"data.directory": data}, quiet=True)
    report = _ask(settings, as_json, repair, audit)
    if as_json:
        show_json(report)
    else:
        _show(report, repair)
    if not report["clean"]:
        raise typer.Exit(FOUND)


def _ask(settings: Settings, as_json: bool, repair: bool, audit: bool) -> Document:
    """The report of the owner, or our own when there is none."""

    def do() -> Document:
        from service.examination import examine

        return asyncio.run(examine(settings, repair=repair, audit=audit))

    def ask(owner: Owner) -> Document:
        order = {"repair": repair, "audit": audit}
        return answer_of(owner, as_json, "POST", PATH, order, timeout=ANSWER_S)

    return ask_or_do(settings, ask, do)


def _show(report: Document, repair: bool) -> None:
    if report["repaired"]:
        show("Repaired:", _table(report["repaired"]))
    if report["findings"]:
        show("Found:", _table(report["findings"]))
        if not repair and any(one["repairable"] for one in report["findings"]):
            typer.echo("  hint: `brain doctor --repair` mends what can be mended.", err=True)
        return
    counts = report["counts"]
    held = f"memories {counts['memories']}, partitions {counts['partitions']}"
    show("Nothing is wrong: ledger, graph and Chroma agree.", f"{held}, tasks waiting {report['waiting']}")
    if log := report.get("audit"):
        show(f"Audit log: entries {log['entries']}, the last is {log['seq']} and has the hash", log["hash"])


def _table(findings: list[Document]) -> Any:
    shown = table("check", "count", "what, which and what to do")
    for one in findings:
        subjects = ", ".join(one["subjects"][:3]) + (", …" if one["count"] > 3 else "")
        shown.add_row(*cells(one["check"], one["count"], f"{one['what']}: {subjects}\n→ {one['move']}"))
    return shown
