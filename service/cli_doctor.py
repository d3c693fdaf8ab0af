"""`brain doctor`: through the owner of the data directory when there is one, else on its files directly. The
stores are imported only when the command runs: `--help` should answer at once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli_options import AsJson, ConfigFile, DataDirectory, data_lock, settings_of
from service.terminal import UNREACHABLE, cells, give_up, refuse, show, show_json, table

if TYPE_CHECKING:
    from service.settings import Settings
    from stores.lock import Owner

PATH = "/internal/doctor"
FOUND = 1
EPILOG = (
    "Exit codes: 0 nothing is wrong, or everything was repaired; 1 something is; 2 a wrong option or "
    "setting; 3 the data directory is in use, or its owner can't be reached."
)
POLLS, PAUSE_S = 600, 0.05  # an owner that is still starting is waited for
ANSWER_S = 3_600.0  # a large store takes minutes to look at, and a repair fills shards anew

Document = dict[str, Any]


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be derived again.")] = False,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Prove that ledger, graph and Chroma agree.

    Names what does not, and whether it can be repaired. A repair never
    loses a memory: it derives again what can be derived from the ledger."""
    settings = settings_of(config, {"data.directory": data}, quiet=True)
    report = _ask(settings, as_json, repair)
    if as_json:
        show_json(report)
    else:
        _show(report, repair)
    if not report["clean"]:
        raise typer.Exit(FOUND)


def _ask(settings: Settings, as_json: bool, repair: bool) -> Document:
    """The report of the owner, or our own when there is none."""
    lock = data_lock(settings)
    for _ in range(POLLS):
        if lock.acquire():
            from service.examination import examine

            try:
                return asyncio.run(examine(settings, repair=repair))
            finally:
                lock.release()
        owner = lock.owner()
        report = None if owner is None else _through(owner, as_json, repair)
        if report is not None:
            return report
        time.sleep(PAUSE_S)
    return give_up(f"{settings.data_directory} is in use by a process that does not listen.", UNREACHABLE)


def _through(owner: Owner, as_json: bool, repair: bool) -> Document | None:
    """None when the owner has just left."""
    import httpx

    headers = {"Authorization": f"Bearer {owner.token}"}
    timeout = httpx.Timeout(ANSWER_S, connect=5.0)
    try:
        with httpx.Client(base_url=owner.url, headers=headers, trust_env=False, timeout=timeout) as http:
            response = http.post(PATH, json={"repair": repair})
            answer: Document = response.json()
    except httpx.ConnectError:
        return None
    except (httpx.RequestError, ValueError) as error:
        give_up(f"{owner.url} gave no answer: {type(error).__name__} {error}", UNREACHABLE)
    return answer if response.status_code < 400 else refuse(answer, as_json=as_json)


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


def _table(findings: list[Document]) -> Any:
    shown = table("check", "count", "what, which and what to do")
    for one in findings:
        subjects = ", ".join(one["subjects"][:3]) + (", …" if one["count"] > 3 else "")
        shown.add_row(*cells(one["check"], one["count"], f"{one['what']}: {subjects}\n→ {one['move']}"))
    return shown
