"""What an operation is: one name, one route, its models, its right and its use case. The registry of all
of them is `service.operations`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal

from models.answers import Reply
from models.scope import Caller
from service.brain import Brain
from service.validation import In

KIB = 1024
LONG_BODY = 1024 * KIB  # bytes; operations that take more have their arguments parsed in a thread


@dataclass(frozen=True, slots=True)
class Route:
    """One method and one path; `status` is that of a plain success."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    status: int = 200
    max_body: int = 512 * KIB


@dataclass(frozen=True, slots=True)
class Annotations:
    """The MCP hints, all explicit. Nothing here reaches outside: openWorldHint is always false."""

    read_only: bool
    destructive: bool
    idempotent: bool


@dataclass(frozen=True, slots=True)
class Operation(Generic[In]):
    name: str  # MCP tool, OpenAPI operationId, metric label and audit action
    title: str
    description: str
    input: type[In]
    output: type[Any]
    route: Route
    right: Literal["read", "write", "admin"]
    annotations: Annotations
    toolsets: frozenset[str]
    run: Callable[[Brain, Caller, In], Awaitable[Reply]]
    # The same with a body that comes bit by bit, and the other arguments in the query string.
    stream: Callable[[Brain, Caller, In, AsyncIterator[bytes]], Awaitable[Reply]] | None = None
    timed: bool = True  # false where a contract closes the answer's object and publishes its very schema


READS = Annotations(read_only=True, destructive=False, idempotent=True)
ADDS = Annotations(read_only=False, destructive=False, idempotent=False)
CORE = frozenset({"core", "brain"})
BRAIN = frozenset({"brain"})
