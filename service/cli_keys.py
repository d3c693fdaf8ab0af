"""`brain keys`: through the owner of the data directory when there is one, else on its ledger directly. The
stores are imported only when a command needs them: `--help` and completion should answer at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote
from uuid import uuid4

import typer

from models.errors import BrainError
from service.cli_options import AsJson, ConfigFile, DataDirectory, settings_of
from service.cli_owner import answer_of, ask_or_do
from service.settings import Settings
from service.terminal import USAGE, cells, date, give_up, refuse, show, show_json, table

if TYPE_CHECKING:
    from stores.keys import KeyRing

keys_cli = typer.Typer(help="API keys: who may call.", no_args_is_help=True)

PATH = "/internal/keys"
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhdw])")

Document = dict[str, Any]


@keys_cli.command("create")
def create(
    product: Annotated[str, typer.Option(help="The product whose memories it opens.")],
    agent: Annotated[str | None, typer.Option(help="Bind it to one agent; else it serves any.")] = None,
    rights: Annotated[str, typer.Option(help="Comma-separated: read, write, admin.")] = "read,write",
    authority: Annotated[
        str, typer.Option(help="The highest authority it may claim: policy, official, team, informal.")
    ] = "official",
    acts_for: Annotated[
        str | None, typer.Option(help="`user`: a person stands behind its calls.", metavar="user")
    ] = None,
    expires: Annotated[str | None, typer.Option(help="After so long, like 90d, 12h or 30m.")] = None,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Make a key.

    Its credential is shown now and never again. Once there is a key, every call needs one."""
    from service import keys

    if acts_for not in (None, "user"):
        give_up("--acts-for takes only 'user'.", USAGE)
    order: Document = {
        "product": product,
        "agent": agent,
        "rights": rights.split(","),
        "authority": authority,
        "acts_for_user": acts_for == "user",
        "expires_in_ms": None if expires is None else _duration(expires),
    }
    settings = settings_of(config, {"data.directory": data}, quiet=True)
    made = _ask(settings, as_json, "POST", PATH, order, lambda ring, id: keys.create(ring, order, id))
    if as_json:
        show_json(made)
        return
    show(_table([made]))
    typer.echo(made["credential"])
    typer.echo("Keep it: it is shown only now. Send it as Authorization: Bearer <it>.", err=True)


@keys_cli.command("list")
def list_keys(as_json: AsJson = False, data: DataDirectory = None, config: ConfigFile = None) -> None:
    """Show every key, never its credential.

    The expired and the revoked ones too."""
    from service import keys

    settings = settings_of(config, {"data.directory": data}, quiet=True)
    found = _ask(settings, as_json, "GET", PATH, None, lambda ring, _: keys.listing(ring))
    if as_json:
        show_json(found)
    else:
        show(
            _table(found["keys"]) if found["keys"] else "No key yet: this machine only, without credentials."
        )


@keys_cli.command("revoke")
def revoke(
    key_id: Annotated[str, typer.Argument(help="Its id, as `brain keys list` shows it.", metavar="ID")],
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Make a key worthless, at once.

    Revoking the last one opens nothing: calls go on to need a key."""
    from service import keys

    settings = settings_of(config, {"data.directory": data}, quiet=True)
    path = f"{PATH}/{quote(key_id, safe='').replace('.', '%2E')}"
    revoked = _ask(settings, as_json, "DELETE", path, None, lambda ring, id: keys.revoke(ring, key_id, id))
    if as_json:
        show_json(revoked)
    else:
        show(f"Key {revoked['key_id']} is revoked.")


def _ask(
    settings: Settings,
    as_json: bool,
    method: str,
    path: str,
    body: Document | None,
    alone: Callable[[KeyRing, str], Document],
) -> Document:
    """The answer of the owner, or of `alone` (keys, request id) when there is none."""

    def do() -> Document:
        from service.visit import key_ring

        request_id = uuid4().hex[:16]
        try:
            with key_ring(settings) as ring:
                return alone(ring, request_id)
        except BrainError as refusal:
            return refuse(refusal.document(request_id), as_json=as_json)

    return ask_or_do(settings, lambda owner: answer_of(owner, as_json, method, path, body), do)


def _duration(text: str) -> int:
    """Milliseconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        give_up(f"--expires {text}: write a number and s, m, h, d or w, like 90d.", USAGE)
    return int(match[1]) * _UNITS_MS[match[2]]


def _table(found: list[Document]) -> Any:
    shown = table("id", "product", "agent", "rights", "authority", "until")
    for key in found:
        until = f"revoked {date(key['revoked_at'])}" if key["revoked_at"] else date(key["expires_at"]) or "–"
        rights = ",".join(key["rights"]) + (" for user" if key["acts_for_user"] else "")
        shown.add_row(
            *cells(key["key_id"], key["product"], key["agent"] or "any", rights, key["authority"], until)
        )
    return shown
