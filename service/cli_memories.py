"""`brain add|get|search|list|stats`: operations of the registry, for a person at a terminal or a script."""

import asyncio
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer
import uvloop

from models.errors import BrainError
from service.cli_options import (
    Agent,
    AsJson,
    ConfigFile,
    DataDirectory,
    Product,
    Url,
    User,
    data_lock,
    settings_of,
)
from service.memory_tables import added_lines, hits_table, memories_table, memory_table, stats_table
from service.terminal import UNREACHABLE, USAGE, give_up, refuse, show, show_json, standard_input
from stores.lock import Owner

# Seconds before each look for the owner: one that leaves stays on its card while it closes.
PAUSES = (0.0, 0.1, 0.5, 2.0, 5.0)

Layer = Annotated[str | None, typer.Option(help="l0_basic_info … l7_intention.")]
Tag = Annotated[list[str] | None, typer.Option("--tag", help="May be repeated.")]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and where."""

    url: str | None
    agent: str | None
    user: str | None
    product: str | None
    data: str | None
    config: Path | None

    def ask(
        self,
        operation: str,
        arguments: Document,
        *,
        as_json: bool,
        with_model: bool = False,
        with_vdb: bool = False,
    ) -> Document:
        """The answer of an operation; arguments that are None are left out. Prints it already when it is
        for a program. `with_model` and `with_vdb`: what it needs when nobody serves. Gives up on a refusal,
        or when nobody answers."""
        from httpx import InvalidURL

        from service.client import OwnerUnreachable

        if self.url and self.product:
            give_up("--product goes with the data directory; a key given to --url has its own.", USAGE)
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            status, answer = uvloop.run(self._call(operation, given, with_model, with_vdb))
        except (ValueError, InvalidURL) as error:
            give_up(str(error), USAGE)
        except OwnerUnreachable as error:
            give_up(
                str(error),
                UNREACHABLE,
                "Start it with `brain serve`, or leave --url and BRAIN_URL out." if self.url else None,
            )
        if status >= 400:
            refuse(answer, as_json=as_json)
        if as_json:
            show_json(answer)
        return answer

    async def _call(
        self, operation: str, arguments: Document, with_model: bool, with_vdb: bool
    ) -> tuple[int, Document]:
        from service.client import (
            LocalOwner,
            OwnerClient,
            OwnerSource,
            OwnerUnreachable,
            RemoteOwner,
            credential_headers,
        )
        from service.operations import BY_NAME

        settings = settings_of(self.config, {"data.directory": self.data}, quiet=True)
        names = {"BRAIN_AGENT": self.agent or "", "BRAIN_USER": self.user or ""}
        headers = credential_headers({**names, "BRAIN_API_KEY": os.environ.get("BRAIN_API_KEY", "")})
        if self.product:
            headers["X-Brain-Product"] = self.product

        def visit() -> AbstractAsyncContextManager[Owner]:
            from service.visit import visiting  # the whole server: only when nobody else has it

            return visiting(settings, with_model=with_model, with_vdb=with_vdb)

        called = BY_NAME[operation]
        if not called.annotations.read_only and "idempotency_key" in called.input.model_fields:
            arguments = {"idempotency_key": uuid4().hex} | arguments  # so that a lost answer may be asked for
        twice = called.annotations.read_only or "idempotency_key" in arguments
        source: OwnerSource = RemoteOwner(self.url) if self.url else LocalOwner(data_lock(settings), visit)
        pauses = PAUSES[:1] if self.url else PAUSES  # what is named is there or not
        try:
            for look, pause in enumerate(pauses, 1):
                await asyncio.sleep(pause)
                owner = await source.find()
                token = {"Authorization": f"Bearer {owner.token}"} if owner.token else {}
                async with OwnerClient(owner.url, token | headers) as client:
                    try:
                        return await client.call(called, arguments)
                    except OwnerUnreachable as fault:
                        if look == len(pauses) or (fault.sent and not twice):
                            raise
            raise AssertionError("unreachable")
        except BrainError as refusal:  # found before it was sent
            return refusal.status, refusal.document(uuid4().hex[:16])
        finally:
            await source.leave()


def add(
    text: Annotated[str, typer.Argument(help="What to remember; `-` reads it from standard input.")],
    layer: Layer = None,
    tag: Tag = None,
    authority: Annotated[str | None, typer.Option(help="policy, official, team or informal.")] = None,
    url: Url = None,
    agent: Agent = None,
    user: User = None,
    product: Product = None,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Store a memory.

    From standard input it is taken without its last line break."""
    content = _standard_input() if text == "-" else text
    caller = Caller(url, agent, user, product, data, config)
    arguments = {"layer": layer, "tags": tag or None, "source_authority": authority}
    answer = caller.ask("brain_memory_add", {"content": content, **arguments}, as_json=as_json)
    if not as_json:
        show(*added_lines(answer))


def get(
    memory_id: Annotated[str, typer.Argument(help="Its id.", metavar="ID")],
    url: Url = None,
    agent: Agent = None,
    user: User = None,
    product: Product = None,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Show a memory by its id."""
    caller = Caller(url, agent, user, product, data, config)
    answer = caller.ask("brain_memory_get", {"memory_id": memory_id}, as_json=as_json)
    if not as_json:
        show(memory_table(answer))


def search(
    query: Annotated[str, typer.Argument(help="What to look for, as you would say it.")],
    limit: Annotated[int, typer.Option(help="How many at the most, 1 to 100.")] = 10,
    layer: Layer = None,
    tag: Tag = None,
    url: Url = None,
    agent: Agent = None,
    user: User = None,
    product: Product = None,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Search by meaning, words and identifiers.

    Best first. Without a server the model is loaded for it, which takes seconds; after half a minute the
    search goes on by words alone, and says so."""
    caller = Caller(url, agent, user, product, data, config)
    arguments = {"query": query, "limit": limit, "layers": None if layer is None else [layer]}
    answer = caller.ask(
        "brain_memory_search", arguments | {"tags": tag or None}, as_json=as_json, with_model=True
    )
    if not as_json:
        show(hits_table(answer) if answer["results"] else "Nothing relevant is stored.")
        if answer["degraded"]:
            typer.echo(f"brain: not everything took part: {answer.get('degraded_reason')}", err=True)


def list_memories(
    layer: Layer = None,
    status: Annotated[str | None, typer.Option(help="The lifecycle status; default active.")] = None,
    tag: Annotated[str | None, typer.Option(help="A tag, whole.")] = None,
    authority: Annotated[str | None, typer.Option(help="policy, official, team or informal.")] = None,
    kind: Annotated[str | None, typer.Option(help="memory, message, observation, session_summary.")] = None,
    session: Annotated[str | None, typer.Option(help="A session's id.")] = None,
    order: Annotated[str | None, typer.Option(help="newest (default) or oldest first.")] = None,
    limit: Annotated[int, typer.Option(help="How many on a page, 1 to 100.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="Where the page before ended.")] = None,
    url: Url = None,
    agent: Agent = None,
    user: User = None,
    product: Product = None,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """List memories in the order of writing."""
    caller = Caller(url, agent, user, product, data, config)
    arguments = {"layer": layer, "status": status, "tag": tag, "authority": authority, "kind": kind}
    arguments |= {"session_id": session, "order": order, "cursor": cursor}
    answer = caller.ask("brain_memory_list", {**arguments, "limit": limit}, as_json=as_json)
    if not as_json:
        shown = memories_table(answer["memories"]) if answer["memories"] else "Nothing is stored here."
        more = answer["next_cursor"]
        show(shown, f"{len(answer['memories'])} of {answer['total']}.")
        if more:
            typer.echo(f"More: repeat with --cursor {more}")


def stats(
    url: Url = None,
    agent: Agent = None,
    user: User = None,
    product: Product = None,
    as_json: AsJson = False,
    data: DataDirectory = None,
    config: ConfigFile = None,
) -> None:
    """Count memories."""
    caller = Caller(url, agent, user, product, data, config)
    answer = caller.ask("brain_stats", {}, as_json=as_json)
    if not as_json:
        show(stats_table(answer))


COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("add", add),
    ("get", get),
    ("search", search),
    ("list", list_memories),
    ("stats", stats),
)


def _standard_input() -> str:
    return standard_input().removesuffix("\n").removesuffix("\r")
