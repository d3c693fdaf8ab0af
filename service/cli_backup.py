"""`brain backup` and `brain restore`: copies of the ledger, taken beside whoever serves it."""

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli_options import AsJson, ConfigFile, DataDirectory, data_lock, settings_of
from service.terminal import REFUSED, UNREACHABLE, USAGE, cells, date, give_up, show, show_json, table


def back_up(
    target: Annotated[Path, typer.Argument(help="A directory that is not there yet; it becomes the backup.")],
    verify: Annotated[bool, typer.Option("--verify", help="Check the backup that TARGET is.")] = False,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Copy the ledger, beside a running server too.

    The backup holds every write that was acknowledged before it began. Chroma is not copied: a restore has
    it filled from the ledger's vectors."""
    from stores import backup

    settings = settings_of(config, {"data.directory": data}, quiet=True)
    try:
        if verify:
            manifest = backup.verify(target)
        else:
            manifest = backup.back_up(settings.data_directory, target.absolute(), time.time_ns() // 1_000_000)
    except backup.BackupRefused as error:
        give_up(str(error), USAGE)
    except backup.BackupDamaged as error:
        give_up(str(error), REFUSED, "Take another backup; do not restore this one.")
    _show(manifest, f"{target} is whole." if verify else f"Backed up to {target}.", as_json)


def restore(
    source: Annotated[Path, typer.Argument(help="The backup.", metavar="BACKUP")],
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Make an empty data directory what a backup holds.

    The backup is verified first. The next start fills Chroma from the ledger's vectors."""
    from stores import backup

    settings = settings_of(config, {"data.directory": data}, quiet=True)
    lock = data_lock(settings)
    if not lock.acquire():
        give_up(f"{settings.data_directory} is in use; restore into a new directory.", UNREACHABLE)
    try:
        manifest = backup.restore(source, settings.data_directory)
    except backup.BackupRefused as error:
        give_up(str(error), USAGE)
    except backup.BackupDamaged as error:
        give_up(str(error), REFUSED, "Restore another backup; nothing was written.")
    finally:
        lock.release()
    _show(manifest, f"Restored into {settings.data_directory}.", as_json)
    typer.echo(
        f"What was purged after {date(manifest.created_at)} is back: purge it again if it has to be gone.",
        err=True,
    )


def _show(manifest: Any, done: str, as_json: bool) -> None:
    if as_json:
        show_json(asdict(manifest))
        return
    shown = table("", "")
    shown.add_row(*cells("taken", date(manifest.created_at)))
    for name, count in manifest.counts.items():
        shown.add_row(*cells(name, count))
    shown.add_row(*cells("bytes", sum(file["bytes"] for file in manifest.files.values())))
    shown.add_row(*cells("model", manifest.fingerprint or "–"))
    show(shown, done)


COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (("backup", back_up), ("restore", restore))
