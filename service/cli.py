"""The command line: `brain serve`, `brain mcp`, `brain models export`, `brain config`."""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import structlog
import typer
import uvloop
import yaml

from models.embedding import EmbeddingError, export_onnx
from service.settings import Settings, SettingsError, load

cli = typer.Typer(help="A self-hosted memory service for agents.", no_args_is_help=True, add_completion=False)
models_cli = typer.Typer(help="The embedding model.", no_args_is_help=True)
cli.add_typer(models_cli, name="models")

ConfigFile = Annotated[Path | None, typer.Option("--config", help="The configuration file.")]
DataDirectory = Annotated[str | None, typer.Option("--data", help="The data directory.")]


@cli.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Serve HTTP and MCP until SIGTERM or Ctrl-C. Exit code 0 then, 2 for a wrong setting, 3 when another
    process owns the data directory."""
    from service import app

    settings = _settings(config, {"server.host": host, "server.port": port, "data.directory": data})
    try:
        uvloop.run(app.serve(settings))
    except SettingsError as error:
        _give_up(str(error), 2)
    except app.AlreadyOwned as error:
        _give_up(str(error), 3)


@cli.command()
def mcp(
    url: Annotated[str | None, typer.Option(help="A server to go through; else the one of --data.")] = None,
    data: DataDirectory = None,
    toolsets: Annotated[str | None, typer.Option(help="Comma-separated: core, brain, …")] = None,
    config: ConfigFile = None,
) -> None:
    """Serve MCP on stdin and stdout. Goes through the owner of the data directory, and owns it when nobody
    else does. BRAIN_API_KEY, BRAIN_AGENT and BRAIN_USER say who calls; BRAIN_URL is --url."""
    from service import app
    from service.client import LocalOwner, RemoteOwner
    from service.stdio import OwnerConnection, serve_stdio
    from stores.lock import DataDirectoryLock

    chosen = toolsets.split(",") if toolsets else None
    settings = _settings(config, {"data.directory": data, "mcp.toolsets": chosen})
    address = url or os.environ.get("BRAIN_URL")

    async def run() -> None:
        source = (
            RemoteOwner(address)
            if address
            else LocalOwner(DataDirectoryLock(settings.data_directory), lambda: app.serving(settings, port=0))
        )
        await serve_stdio(OwnerConnection(source, os.environ), settings.mcp.toolsets)

    try:
        uvloop.run(run())
    except (ValueError, SettingsError) as error:
        _give_up(str(error), 2)


@cli.command("config")
def show_config(config: ConfigFile = None) -> None:
    """Print the effective settings, as YAML."""
    typer.echo(yaml.safe_dump(_settings(config, {}).model_dump(), sort_keys=False), nl=False)


@models_cli.command("export")
def export(config: ConfigFile = None) -> None:
    """Export the embedding model to ONNX and check it against the reference. Skips what is there."""
    from models.embedding import OnnxEncoder
    from service.app import export_directory

    settings = _settings(config, {})
    try:
        target = export_directory(settings)
        try:
            OnnxEncoder(settings.embedding.model, target)
            typer.echo(f"{target} is up to date.", err=True)
        except EmbeddingError:
            typer.echo(f"Exporting {settings.embedding.model}; this takes about half a minute.", err=True)
            facts = export_onnx(settings.embedding.model, target)
            typer.echo(f"Exported to {target}: {facts}", err=True)
    except EmbeddingError as error:
        _give_up(str(error), 2)


def main() -> None:
    """The `brain` command."""
    cli(prog_name="brain")


def _settings(config: Path | None, flags: dict[str, object]) -> Settings:
    try:
        settings = load(config, flags=flags)
    except SettingsError as error:
        _give_up(str(error), 2)
    _log_to_stderr(settings.log.level)
    return settings


def _log_to_stderr(level: str) -> None:
    """Standard output belongs to the command's result, over stdio to the protocol."""
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    for name in ("httpx", "alembic", "mcp", "uvicorn"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
            if sys.stderr.isatty()
            else structlog.processors.LogfmtRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _give_up(message: str, code: int) -> NoReturn:
    typer.echo(f"brain: {message}", err=True)
    raise typer.Exit(code)


if __name__ == "__main__":
    main()
