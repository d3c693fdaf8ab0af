"""The command line: `brain serve`, `brain mcp`, `brain add|get|search|list|stats`, `brain keys`, `brain
models`, `brain config`."""

import os
import sys
from typing import Annotated

import typer
import uvloop

from models.errors import StoreUnavailable
from service import cli_backup, cli_memories, cli_transfer
from service.cli_doctor import EPILOG, doctor
from service.cli_ingest import EPILOG as INGEST_EPILOG
from service.cli_ingest import ingest
from service.cli_keys import keys_cli
from service.cli_options import AsJson, ConfigFile, DataDirectory, data_lock, settings_of
from service.cli_purge import purge
from service.cli_rebuild import EPILOG as REBUILD_EPILOG
from service.cli_rebuild import rebuild
from service.settings import DEFAULT_CONFIG, SettingsError, load_with_origins
from service.terminal import EXIT_CODES, UNREACHABLE, USAGE, cells, give_up, show, show_json, table
from stores.lock import UnusableDirectory

cli = typer.Typer(
    help="A self-hosted memory service for agents.",
    epilog=(
        f"{EXIT_CODES} BRAIN_URL, BRAIN_API_KEY, BRAIN_AGENT and BRAIN_USER say where to call and who calls; "
        "BRAIN_CONFIG names the configuration file."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
models_cli = typer.Typer(help="The embedding model.", no_args_is_help=True)

Host = Annotated[str | None, typer.Option(help="Address to listen on; beyond loopback only with keys.")]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")]


@cli.command()
def serve(
    host: Host = None, port: Port = None, data: DataDirectory = None, config: ConfigFile = None
) -> None:
    """Serve HTTP and MCP until SIGTERM or Ctrl-C."""
    from service import app

    settings = settings_of(config, {"server.host": host, "server.port": port, "data.directory": data})
    # How long (seconds) a thread that computes may keep the event loop waiting. With Python's 5 ms, reads by
    # id have twice the p99 while a bulk ingest runs.
    sys.setswitchinterval(0.0005)
    try:
        uvloop.run(app.serve(settings))
    except (SettingsError, UnusableDirectory, StoreUnavailable) as error:
        give_up(str(error), USAGE)
    except app.AlreadyOwned as error:
        give_up(str(error), UNREACHABLE)


@cli.command()
def mcp(
    url: Annotated[str | None, typer.Option(help="A server to go through; else the one of --data.")] = None,
    data: DataDirectory = None,
    toolsets: Annotated[str | None, typer.Option(help="Comma-separated: core, brain, …")] = None,
    config: ConfigFile = None,
) -> None:
    """Serve MCP on stdin and stdout.

    Goes through the owner of the data directory, and owns it when nobody
    else does. BRAIN_API_KEY, BRAIN_AGENT and BRAIN_USER say who calls; BRAIN_URL is --url."""
    from service import app
    from service.client import LocalOwner, RemoteOwner
    from service.stdio import OwnerConnection, serve_stdio

    chosen = toolsets.split(",") if toolsets else None
    settings = settings_of(config, {"data.directory": data, "mcp.toolsets": chosen})
    address = url or os.environ.get("BRAIN_URL")

    async def run() -> None:
        source = (
            RemoteOwner(address)
            if address
            else LocalOwner(data_lock(settings), lambda: app.serving(settings, port=0))
        )
        await serve_stdio(OwnerConnection(source, os.environ), settings.mcp.toolsets)

    try:
        uvloop.run(run())
    except (ValueError, SettingsError, UnusableDirectory) as error:
        give_up(str(error), USAGE)


for name, command in (*cli_memories.COMMANDS, *cli_backup.COMMANDS, *cli_transfer.COMMANDS):
    cli.command(name, epilog=EXIT_CODES)(command)
cli.command("ingest", epilog=INGEST_EPILOG)(ingest)
cli.command("purge", epilog=EXIT_CODES)(purge)
cli.command("doctor", epilog=EPILOG)(doctor)
cli.command("rebuild", epilog=REBUILD_EPILOG)(rebuild)
cli.add_typer(keys_cli, name="keys")
cli.add_typer(models_cli, name="models")


@cli.command("config")
def show_config(
    host: Host = None,
    port: Port = None,
    data: DataDirectory = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show each effective setting and its origin.

    The origin is default, file, environment or flag, each over the one before."""
    flags = {"server.host": host, "server.port": port, "data.directory": data}
    try:
        settings, origins = load_with_origins(config, flags=flags)
    except SettingsError as error:
        give_up(str(error), USAGE)
    sections = settings.model_dump()
    found = {
        f"{section}.{key}": {"value": value, "origin": origins[f"{section}.{key}"]}
        for section, keys in sections.items()
        for key, value in keys.items()
    }
    if as_json:
        show_json(found)
        return
    shown = table("setting", "from", "value")
    for setting, one in found.items():
        shown.add_row(*cells(setting, one["origin"], one["value"]))
    show(shown, f"File: {config or os.environ.get('BRAIN_CONFIG') or DEFAULT_CONFIG}")


@models_cli.command("export")
def export(config: ConfigFile = None) -> None:
    """Export the embedding model to ONNX.

    It is checked against the reference; what is there already is skipped."""
    from models.embedding import EmbeddingError
    from models.exporting import export_model
    from models.multilingual import open_encoder
    from service.app import export_directory

    settings = settings_of(config, {})
    try:
        target = export_directory(settings)
        try:
            open_encoder(settings.embedding.model, target)
            typer.echo(f"{target} is up to date.", err=True)
        except EmbeddingError:
            typer.echo(f"Exporting {settings.embedding.model}; this takes about a minute.", err=True)
            facts = export_model(settings.embedding.model, target)
            typer.echo(f"Exported to {target}: {facts}", err=True)
    except EmbeddingError as error:
        give_up(str(error), USAGE)


def main() -> None:
    """The `brain` command. What it writes is for its user alone."""
    os.umask(0o077)
    cli(prog_name="brain")


if __name__ == "__main__":
    main()
