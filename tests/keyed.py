"""A server with keys, and callers who hold them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.serving import JSON, Api, Server, server, succeeded

KEYS = "/internal/keys"


class Clock:
    """Epoch ms that only the test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000

    def __call__(self) -> int:
        return self.now


@dataclass(frozen=True, slots=True, eq=False)
class Keyed:
    """`owner` calls with the owner's token; `anyone` without a credential."""

    server: Server
    owner: Api
    open_clients: ExitStack

    @property
    def anyone(self) -> Api:
        return self.server.api

    def create(self, product: str, **fields: Any) -> JSON:
        """A new key, with its credential."""
        return succeeded(self.owner.post(KEYS, {"product": product} | fields))

    def bearing(self, credential: str) -> Api:
        """A caller with this credential."""
        headers = {"authorization": f"Bearer {credential}"}
        client = httpx.Client(base_url=self.server.owner.url, headers=headers, timeout=60, trust_env=False)
        return Api(self.open_clients.enter_context(client))

    def holder(self, product: str, **fields: Any) -> Api:
        """A caller with a new key."""
        return self.bearing(self.create(product, **fields)["credential"])

    def revoke(self, key_id: str) -> JSON:
        return succeeded(self.owner.request("DELETE", f"{KEYS}/{key_id}"))


@contextmanager
def keyed_server(directory: Path, **options: Any) -> Iterator[Keyed]:
    """No key exists yet."""
    with server(directory, **options) as running, ExitStack() as clients:
        nobody = Keyed(running, running.api, clients)
        yield Keyed(running, nobody.bearing(running.owner.token), clients)
