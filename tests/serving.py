"""A whole server for tests: real HTTP on a free port, a real ledger, a real Chroma child, a small injected
encoder. `tests.serving_fixtures` has one that is shared."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from models.embedding import Encoder
from models.scope import Caller, Scope
from service import app
from service.brain import Brain
from service.callers import PRODUCT
from service.settings import Settings
from stores.lock import Owner
from tests.hash_encoder import HashEncoder

JSON = dict[str, Any]
_numbers = itertools.count()


def eventually(condition: Callable[[], Any], within: float = 60.0) -> Any:
    """The condition's value as soon as it is true. Fails when it stays false for `within` seconds."""
    end = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {within} s: {condition}"
        time.sleep(0.01)
    return value


def fresh(prefix: str = "agent") -> str:
    """A name that no other test has."""
    return f"{prefix}-{next(_numbers)}"


@dataclass(frozen=True, slots=True, eq=False)
class Api:
    """One caller: a scope's agent, a user in it or none, and a connection."""

    http: httpx.Client
    agent: str | None = None
    user: str | None = None

    def of(self, agent: str | None = None, user: str | None = None) -> "Api":
        """Another caller of the same server; the same agent where none is named."""
        return Api(self.http, agent or self.agent, user)

    def request(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        """`body` is sent as it is when it is bytes, else as JSON, all escaped."""
        names = {"x-brain-agent": self.agent, "x-brain-user": self.user}
        headers = httpx.Headers({name: value for name, value in names.items() if value is not None})
        headers.update(options.pop("headers", None))
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.request(method, path, content=content, headers=headers, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return self.request("POST", path, body, **options)

    def try_add(self, content: str | None = None, **fields: Any) -> httpx.Response:
        return self.post("/brain/memory", fields if content is None else {"content": content} | fields)

    def add(self, content: str | None = None, **fields: Any) -> JSON:
        """The answer of an add that must succeed."""
        return succeeded(self.try_add(content, **fields))

    def batch(self, items: list[Any], **fields: Any) -> JSON:
        return succeeded(self.post("/brain/memory/batch", {"items": items} | fields))

    def memory(self, memory_id: str, **params: Any) -> JSON:
        return succeeded(self.get(f"/brain/memory/{memory_id}", params=params))

    def search(self, query: str, **fields: Any) -> JSON:
        return succeeded(self.post("/brain/memory/search", {"query": query} | fields))

    def list(self, **params: Any) -> JSON:
        return succeeded(self.get("/brain/memory", params=params))

    def stats(self) -> JSON:
        return succeeded(self.get("/brain/stats"))

    def readyz(self) -> JSON:
        found: JSON = self.get("/readyz").json()
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Server:
    """A running server, with the brain behind it for what no door shows: eviction and the outbox."""

    brain: Brain
    owner: Owner
    api: Api
    portal: BlockingPortal

    def settle(self) -> None:
        """Wait until Chroma holds everything."""
        eventually(lambda: self.brain.applier.lag() == 0)

    def evict(self, api: Api) -> None:
        """Let everything leave memory. Loads what the caller reaches first, so that no load is under way
        that would bring it back."""
        caller = Caller(Scope(PRODUCT, api.agent or "default"), api.user, frozenset(), "evict")

        async def evict() -> None:
            await self.brain.reach(caller)
            self.brain.residents.evict_all()

        self.portal.call(evict)


@contextmanager
def server(
    directory: Path,
    load_encoder: Callable[[], Encoder] = HashEncoder,
    clock: Callable[[], int] = app.now,
    load_model: Callable[[str], Encoder] | None = None,
    **sections: JSON,
) -> Iterator[Server]:
    """Own the directory and serve from a thread. Cold reads and vectors may take their time: the machine is
    shared. Chroma gets each row at once, which tests wait for."""
    values = {
        "data": {"directory": str(directory)},
        "vdb": {"read_deadline_ms": 60_000, "gather_ms": 0},
        "write": {"embed_wait_ms": 60_000},
        **sections,
    }
    settings = Settings.model_validate(values)
    brain = app.build_brain(settings, load_encoder=load_encoder, clock=clock, load_model=load_model)
    uvloop = {"use_uvloop": True}  # as `brain serve` does
    with app.owning(settings), start_blocking_portal(backend_options=uvloop) as portal:
        running = app.serving(settings, port=0, brain=brain)
        with (
            portal.wrap_async_context_manager(running) as owner,
            httpx.Client(base_url=owner.url, timeout=60, trust_env=False) as http,
        ):
            yield Server(brain, owner, Api(http), portal)


def succeeded(response: httpx.Response) -> JSON:
    assert response.status_code < 300, response.text
    body: JSON = response.json()
    return body


def refused(response: httpx.Response, status: int, code: str, field: str | None = None) -> JSON:
    """The problem document of a refusal, checked in full; `field` is the first argument that it names."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: JSON = response.json()
    assert set(problem) == {
        "type", "title", "status", "code", "detail", "hint", "retryable", "request_id", "errors",
    }  # fmt: skip
    assert (problem["status"], problem["code"]) == (status, code), problem
    assert problem["request_id"] == response.headers["x-request-id"]
    assert problem["title"] and problem["detail"] and problem["hint"].endswith(".")
    if field is not None:
        assert [error["field"] for error in problem["errors"]][:1] == [field], problem
    return problem
