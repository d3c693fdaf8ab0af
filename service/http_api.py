"""The HTTP door: one Starlette route for each path, derived from the registry."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from models.errors import (
    BrainError,
    InternalError,
    MethodNotAllowed,
    NoSuchRoute,
    StoreUnavailable,
    TooLarge,
)
from models.scope import Caller
from service import dispatch
from service.arguments import arguments_of, streamed
from service.audit import record_refusal
from service.brain import Brain
from service.callers import Headers
from service.metrics import Metrics
from service.openapi import openapi_document
from service.operations import OPERATIONS, Operation
from service.responses import answer, document, problem

log = structlog.get_logger()


def routes(brain: Brain, metrics: Metrics) -> list[Route]:
    """Every route but `/mcp`."""
    return [
        *(Route(path, endpoint, methods=list(endpoint.operations)) for path, endpoint in _endpoints(brain)),
        *_service_routes(brain, metrics),
    ]


class Endpoint:
    """The operations of one path, by method. An ASGI application: a plain function would be wrapped in layers
    that cost a read by id a tenth of its time."""

    def __init__(self, brain: Brain, operations: dict[str, Operation[Any]]):
        self.operations = operations
        self._brain = brain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.answer(scope, receive)
        await response(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive) -> Response:
        """The response. The gate has put `caller` and `headers` into the state."""
        # HEAD is answered like GET.
        operation = self.operations.get(scope["method"]) or self.operations["GET"]
        state = scope["state"]
        caller: Caller = state["caller"]
        state["operation"] = operation.name
        try:
            body = streamed(scope, receive, operation)
            if body is not None:
                operation, arguments, texts = _reading(operation, body[1]), body[0], True
            else:
                arguments, texts = await arguments_of(scope, receive, operation)
        except BrainError as refusal:
            if isinstance(refusal, TooLarge):
                await record_refusal(self._brain, operation, caller, scope["path_params"], refusal)
            return problem(refusal, caller.request_id)
        except ClientDisconnect:  # nobody is left to answer
            return Response(status_code=400)
        except Exception as bug:  # noqa: BLE001 - `failure` logs it with its trace
            return failure(bug, caller.request_id)
        reply = await dispatch.run(self._brain, operation, caller, arguments, texts=texts)
        if reply.etag is not None and _matches(state["headers"], reply.etag):
            return Response(status_code=304, headers={"etag": reply.etag})
        return answer(reply)


def _reading(operation: Operation[Any], body: AsyncIterator[bytes]) -> Operation[Any]:
    """The operation with the body that it is to read."""
    stream = operation.stream
    assert stream is not None
    return replace(operation, run=lambda brain, caller, request: stream(brain, caller, request, body))


class Shortcuts:
    """Endpoints by look-up. The router tries its routes one by one, which costs a read by id a third of its
    time; what is not found here (other paths, other methods) is the router's to answer."""

    def __init__(self, brain: Brain):
        self._plain: dict[str, Endpoint] = {}
        self._parents: dict[str, tuple[Endpoint, str]] = {}  # of paths that end in a parameter, and its name
        for path, endpoint in _endpoints(brain):
            parent, _, last = path.rpartition("/")
            if "{" not in path:
                self._plain[path] = endpoint
            elif "{" not in parent:
                self._parents[parent] = endpoint, last.strip("{}")

    def find(self, scope: Scope) -> Endpoint | None:
        """The endpoint of an HTTP request; `path_params` are in its scope then."""
        path: str = scope["path"]
        endpoint, parameters = self._plain.get(path), {}
        if endpoint is None:
            parent, _, last = path.rpartition("/")
            if not last or parent not in self._parents:
                return None
            endpoint, name = self._parents[parent]
            parameters = {name: last}
        if scope["method"] not in endpoint.operations:
            return None
        scope["path_params"] = parameters
        return endpoint


def _endpoints(brain: Brain) -> Iterable[tuple[str, Endpoint]]:
    """Each path of the registry."""
    paths: dict[str, dict[str, Operation[Any]]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.route.path, {})[operation.route.method] = operation
    return [(path, Endpoint(brain, by)) for path, by in paths.items()]


def _matches(headers: Headers, etag: str) -> bool:
    """Weak comparison, RFC 9110, section 13.1.2."""
    given = headers.get(b"if-none-match")
    if given is None:
        return False
    if_none_match = given.decode("latin-1")
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or etag.removeprefix("W/") in tags


# Outside the scope


def _service_routes(brain: Brain, metrics: Metrics) -> Iterable[Route]:
    async def healthz(_: Request) -> Response:
        return document({"status": "ok"})

    async def readyz(_: Request) -> Response:
        status = readiness(brain)
        return document(status, 503 if status["status"] == "unavailable" else 200)

    async def openapi(_: Request) -> Response:
        return document(await asyncio.to_thread(openapi_document))

    async def metrics_text(_: Request) -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return (
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/openapi.json", openapi),
        Route("/metrics", metrics_text),
    )


def readiness(brain: Brain) -> dict[str, Any]:
    """Each store by name. `unavailable` only when reads by id can't be served; `degraded` names what lags."""
    ledger: dict[str, Any] = {"available": True, "error": None}
    lag: int | None = None
    parked: list[str] = []
    try:
        lag, parked = brain.applier.lag(), [memory_id for memory_id, _ in brain.applier.parked()]
    except StoreUnavailable as error:
        ledger = {"available": False, "error": error.detail}
    encoder = brain.embedder.encoder
    problem_of_model = brain.meaning.problem()
    vdb_error = brain.vdb.last_error or brain.applier.last_error
    healthy = problem_of_model is None and vdb_error is None and not parked
    return {
        "status": "unavailable" if not ledger["available"] else "ready" if healthy else "degraded",
        "ledger": ledger,
        "vdb": {
            "available": brain.vdb.available,
            "index_lag": lag,
            "parked": parked[:20],
            "error": vdb_error,
        },
        "graph": {"partitions": len(brain.residents), "bytes": brain.residents.size_bytes},
        "embedding": {
            # Not before the ledger knows whose vectors it holds: what is written earlier waits for its own.
            "state": "loading" if brain.meaning.stored is None and encoder else brain.embedder.state,
            "model": brain.settings.embedding.model,
            "fingerprint": None if encoder is None else encoder.fingerprint,
            "problem": problem_of_model,
        },
    }


# What Starlette itself refuses


async def refuse(request: Request, error: Exception) -> Response:
    """404 and 405 of the router as problem documents."""
    assert isinstance(error, HTTPException)
    request_id = request.state.caller.request_id
    path = request.url.path[:200]
    if error.status_code == 405:
        allow = ", ".join(_methods(request))
        detail = f"{request.method} is not allowed on {path}; use {allow}."
        return problem(MethodNotAllowed(detail), request_id, {"allow": allow})
    return problem(NoSuchRoute(f"There is no route {path}."), request_id)


def _methods(request: Request) -> list[str]:
    """Every method that some route takes at this path; the router itself names those of the first one."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in matching for method in route.methods or ()})


async def fail(request: Request, error: Exception) -> Response:
    """A bug in a route: logged with its trace, answered with an id to quote."""
    caller = getattr(request.state, "caller", None)
    return failure(error, caller.request_id if caller else "")


def failure(error: Exception, request_id: str) -> Response:
    """The response to a bug of ours."""
    log.error("request failed", request_id=request_id, exc_info=error)
    return problem(InternalError(f"The request failed: {type(error).__name__}."), request_id)
