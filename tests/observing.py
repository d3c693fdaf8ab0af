"""The observations view through either of its doors: the same calls over HTTP and over MCP. Every success is
checked against the operation's own schema, every failure against the problem document."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx
import jsonschema
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from service.operations import BY_NAME
from service.schemas import output_schema
from tests.serving import JSON, Api, Server

PROBLEM = {"type", "title", "status", "code", "detail", "hint", "retryable", "request_id", "errors"}


@dataclass
class Clock:
    """Epoch ms that goes on by a ms with each look, and further only when it is told to."""

    now: int = 1_800_000_000_000

    def __call__(self) -> int:
        self.now += 1
        return self.now

    @property
    def seconds(self) -> int:
        return self.now // 1000

    def pass_seconds(self, count: int) -> None:
        self.now += count * 1000


class Door(Protocol):
    """One way in."""

    def ask(self, name: str, arguments: JSON) -> tuple[int, JSON]:
        """The status of a call, for MCP 200 of any success, and its document."""


@dataclass(frozen=True, slots=True)
class Http:
    api: Api

    def ask(self, name: str, arguments: JSON) -> tuple[int, JSON]:
        route = BY_NAME[name].route
        path = route.path.format(**arguments)
        rest = {key: value for key, value in arguments.items() if "{" + key + "}" not in route.path}
        if route.method == "GET":
            texts = {key: str(value) for key, value in rest.items() if value is not None}
            answer = self.api.request("GET", path, params=texts)
        else:
            answer = self.api.request(route.method, path, rest)
        if answer.status_code < 300:
            assert answer.status_code == route.status
        return answer.status_code, answer.json()


@dataclass(frozen=True, slots=True)
class Mcp:
    server: Server
    client: Client

    def ask(self, name: str, arguments: JSON) -> tuple[int, JSON]:
        result = self.server.portal.call(self.client.call_tool, name, arguments)
        document = result.structured_content
        assert document is not None
        [block] = result.content
        assert httpx.Response(200, text=block.text).json() == document
        return document["status"] if result.is_error else 200, dict(document)


@contextmanager
def mcp_door(server: Server, api: Api, authorization: str | None = None) -> Iterator[Mcp]:
    """An MCP client of the same caller."""
    names = {"x-brain-agent": api.agent, "x-brain-user": api.user, "authorization": authorization}
    headers = {name: value for name, value in names.items() if value is not None}
    portal = server.portal

    async def http() -> httpx.AsyncClient:
        return httpx.AsyncClient(headers=headers, timeout=60, trust_env=False)

    connection = portal.call(http)
    url = f"{server.owner.url}/mcp"
    with portal.wrap_async_context_manager(
        Client(streamable_http_client(url, http_client=connection))
    ) as one:
        yield Mcp(server, one)
    portal.call(connection.aclose)


@dataclass(frozen=True, slots=True)
class View:
    """A caller of the view."""

    door: Door
    server: Server = field(repr=False)
    api: Api = field(repr=False)  # of the same caller, for the other views

    def call(self, name: str, **arguments: Any) -> JSON:
        """The answer of a call that must succeed."""
        status, body = self.door.ask(name, arguments)
        assert status < 300, body
        jsonschema.Draft202012Validator(output_schema(BY_NAME[name])).validate(body)
        return body

    def refused(self, name: str, status: int, code: str, field: str | None = None, **arguments: Any) -> JSON:
        """The problem of a call that must fail."""
        got, problem = self.door.ask(name, arguments)
        assert set(problem) == PROBLEM, problem
        assert (got, problem["status"], problem["code"]) == (status, status, code), problem
        if field is not None:
            assert [error["field"] for error in problem["errors"]][:1] == [field], problem
        return problem

    def save(self, text: str = "The cache is warmed at start.", **fields: Any) -> int:
        """The id of a saved memory."""
        return int(self.call("save_memory", text=text, **fields)["id"])

    def observe(self, title: str = "Cache was cold", **fields: Any) -> int:
        """The id of an observation."""
        given = {"type": "bugfix", "title": title} | fields
        return int(self.call("add_observation", **given)["id"])

    def sum_up(self, request: str = "Make the start faster", **fields: Any) -> int:
        """The id of a session summary."""
        return int(self.call("add_session_summary", request=request, **fields)["id"])

    def details(self, *ids: int, **arguments: Any) -> list[JSON]:
        """The details of a call that must succeed."""
        found: list[JSON] = self.call("get_observations", ids=list(ids), **arguments)["details"]
        return found

    def detail(self, id: int, **arguments: Any) -> JSON:
        [found] = self.details(id, **arguments)
        return found

    def missing(self, *ids: int, **arguments: Any) -> str:
        """What is said of ids that must not be found."""
        problem = self.refused("get_observations", 404, "not_found", ids=list(ids), **arguments)
        assert problem["retryable"] is False
        return str(problem["detail"])


def query(server: Server, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Rows of the ledger's file as it is."""
    path = server.brain.settings.data_directory / "ledger.sqlite3"
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def accesses(server: Server, memory_id: str) -> tuple[int, int]:
    """How often a row was fetched, and when last, epoch ms."""
    rows = query(server, "SELECT access_count, last_accessed FROM accesses WHERE memory_id = ?", memory_id)
    return rows[0] if rows else (0, 0)
