"""Callers of the operations on raw messages, through either door."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import jsonschema
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from service.operations import BY_NAME
from service.schemas import output_schema
from tests.serving import JSON, Api, Server, fresh

Said = tuple[str, str, int]  # role, text, epoch seconds
Put = Callable[["Door", Any], int]


@dataclass(frozen=True, slots=True)
class Door:
    """A caller with an agent of its own."""

    running: Server
    agent: str
    by_mcp: bool

    @property
    def api(self) -> Api:
        return self.running.api.of(self.agent)

    def ask(self, name: str, **arguments: Any) -> JSON:
        """The answer of a call that must succeed, checked against the tool's own schema."""
        status, answer = self.call(name, arguments)
        assert status < 300, answer
        jsonschema.validate(answer, output_schema(BY_NAME[name]))
        return answer

    def refused(self, status: int, name: str, **arguments: Any) -> JSON:
        """The problem document of a call that must be refused."""
        given, problem = self.call(name, arguments)
        assert (given, problem["status"]) == (status, status), problem
        return problem

    def call(self, name: str, arguments: JSON) -> tuple[int, JSON]:
        if self.by_mcp:
            return self.running.portal.call(self._over_mcp, name, arguments)
        route = BY_NAME[name].route
        if route.method == "GET":
            answer = self.api.get(route.path, params=arguments)
        else:
            answer = self.api.request(route.method, route.path, arguments)
        return answer.status_code, answer.json()

    async def _over_mcp(self, name: str, arguments: JSON) -> tuple[int, JSON]:
        url = f"{self.running.owner.url}/mcp"
        async with (
            httpx.AsyncClient(headers={"X-Brain-Agent": self.agent}, trust_env=False, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            result = await client.call_tool(name, arguments)
        document = dict(result.structured_content or {})
        [block] = result.content
        assert json.loads(getattr(block, "text", "")) == document
        return document["status"] if result.is_error else 200, document

    # What most tests do

    def add(self, session_id: str = "s1", *said: Said, **more: Any) -> JSON:
        given = [{"role": role, "content": text, "created_at": at} for role, text, at in said]
        names: JSON = {"host": "codex-cli", "project": "/repo", "session_id": session_id, "messages": given}
        return self.ask("add_raw_messages", **names | more)

    def transcript(self, session_id: str, transcript_id: str, *said: Said, **more: Any) -> JSON:
        """The same with an identity, the ordinals counting from 0."""
        return self.add(session_id, *said, transcript_id=transcript_id, **more)

    def listing(self, **arguments: Any) -> JSON:
        return self.ask("list_raw_sessions", **arguments)

    def sessions(self, **arguments: Any) -> list[JSON]:
        found: list[JSON] = self.listing(**arguments)["sessions"]
        return found

    def ids(self, **arguments: Any) -> list[str]:
        return [session["session_id"] for session in self.sessions(**arguments)]

    def page(self, session_id: str, **more: Any) -> JSON:
        names = {"host": "codex-cli", "project": "/repo", "session_id": session_id}
        return self.ask("get_raw_messages", **names | more)


def door(running: Server, *, by_mcp: bool) -> Door:
    return Door(running, fresh("raw"), by_mcp)


def lines(records: Sequence[JSON]) -> str:
    """A transcript."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
