"""Options that several commands share, and the settings that they lead to."""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from service.settings import Settings, SettingsError, load
from service.terminal import USAGE, give_up
from stores.lock import DataDirectoryLock, UnusableDirectory

ConfigFile = Annotated[Path | None, typer.Option("--config", help="The configuration file.")]
DataDirectory = Annotated[str | None, typer.Option("--data", help="The data directory.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the JSON document and nothing else.")]
Url = Annotated[
    str | None,
    typer.Option(envvar="BRAIN_URL", help="A server to go through; else the one of --data, or none at all."),
]
Agent = Annotated[str | None, typer.Option(envvar="BRAIN_AGENT", help="The agent whose memories they are.")]
User = Annotated[str | None, typer.Option(envvar="BRAIN_USER", help="A user of the agent.")]
Product = Annotated[
    str | None, typer.Option(help="The product, for the owner of the data directory; a key has its own.")
]


def settings_of(config: Path | None, flags: Mapping[str, object], *, quiet: bool = False) -> Settings:
    """The effective settings, with logging set up by them; `quiet` keeps to errors. Gives up when one is
    wrong."""
    try:
        settings = load(config, flags=flags)
    except SettingsError as error:
        give_up(str(error), USAGE)
    level = settings.log.level
    log_to_stderr("error" if quiet and level != "debug" else level)
    return settings


def data_lock(settings: Settings) -> DataDirectoryLock:
    """The lock of the data directory, not taken yet. Gives up when there can't be such a directory."""
    try:
        return DataDirectoryLock(settings.data_directory)
    except UnusableDirectory as error:
        give_up(str(error), USAGE)


def log_to_stderr(level: str) -> None:
    """Standard output belongs to the command's result, over stdio to the protocol."""
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=number, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    for name in ("httpx", "alembic", "mcp", "uvicorn"):
        logging.getLogger(name).setLevel(max(logging.WARNING, number))
    renderer: Any = structlog.processors.LogfmtRenderer()
    if sys.stderr.isatty():
        renderer = structlog.dev.ConsoleRenderer(colors=True)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
