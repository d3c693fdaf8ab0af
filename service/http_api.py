"""The HTTP door: one Starlette route for each path, derived from the registry."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, get_origin

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from models import verbatim
from models.errors import (
    BrainError,
    InternalError,
    MethodNotAllowed,
    NoSuchRoute,
    StoreUnavailable,
    TooLarge,
    invalid,
)
from models.scope import Caller
from service import dispatch
from service.brain import Brain
from service.metrics import Metrics
from service.openapi import openapi_document
from service.operations import LONG_BODY, OPERATIONS, Operation
from service.responses import answer, document, problem

log = structlog.get_logger()

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


def routes(brain: Brain, metrics: Metrics) -> list[Route]:
    """Every route but `/mcp`. The hot one, a memory by its id, stands first: Starlette tries in order."""
    paths: dict[str, dict[str, Operation[Any]]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.route.path, {})[operation.route.method] = operation
    return [
        *(Route(path, _endpoint(brain, by), methods=list(by)) for path, by in paths.items()),
        *_service_routes(brain, metrics),
    ]


def _endpoint(brain: Brain, operations: dict[str, Operation[Any]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        operation = operations.get(request.method) or operations["GET"]  # HEAD is answered like GET
        state = request.scope["state"]
        caller: Caller = state["caller"]
        state["operation"] = operation.name
        try:
            arguments, texts = await _arguments(request, operation)
        except BrainError as refusal:
            return problem(refusal, caller.request_id)
        reply = await dispatch.run(brain, operation, caller, arguments, texts=texts)
        if reply.etag is not None and _matches(request, reply.etag):
            return Response(status_code=304, headers={"etag": reply.etag})
        return answer(reply)

    return endpoint


async def _arguments(request: Request, operation: Operation[Any]) -> tuple[Any, bool]:
    """The operation's arguments, and whether they are texts from the URL. Raises BadJson, TooLarge,
    InvalidArgument, or NoSuchRoute for a path that no id can stand in."""
    if "\0" in request.scope["path"]:
        raise NoSuchRoute("There is no route with a NUL in it.")
    if operation.route.method == "GET":
        query = _query(request, operation) if request.scope["query_string"] else {}
        return {**query, **request.path_params}, True
    body = await _body(request, operation.route.max_body)
    arguments = await _parsed(body)
    if not isinstance(arguments, dict):
        return arguments, False
    if request.query_params:
        raise invalid(next(iter(request.query_params)), "belongs into the JSON body, not into the URL")
    for name, value in request.path_params.items():
        if arguments.setdefault(name, value) != value:
            raise invalid(name, "differs from the one in the path")
    key = request.headers.get("idempotency-key")
    writes_once = "idempotency_key" in operation.input.model_fields  # clients send it with every POST
    if key is not None and writes_once and arguments.setdefault("idempotency_key", key) != key:
        raise invalid("idempotency_key", "differs from the Idempotency-Key header")
    return arguments, False


async def _parsed(body: bytes) -> Any:
    if len(body) > LONG_BODY:
        return await asyncio.to_thread(verbatim.parse, body)
    return verbatim.parse(body) if body else {}


def _query(request: Request, operation: Operation[Any]) -> dict[str, Any]:
    """The query string as arguments; what takes a list may be repeated or separated by commas."""
    arguments: dict[str, Any] = {}
    for name in dict.fromkeys(request.query_params):
        values = request.query_params.getlist(name)
        field = operation.input.model_fields.get(name)
        if name in request.path_params:
            raise invalid(name, "stands in the path already")
        if field is not None and get_origin(field.annotation) is list:
            arguments[name] = [part for value in values for part in value.split(",")]
        elif len(values) > 1:
            raise invalid(name, "is given twice")
        else:
            arguments[name] = values[0]
    return arguments


async def _body(request: Request, limit: int) -> bytes:
    """The body, or TooLarge as soon as it is known to be over the limit."""
    refusal = TooLarge(f"The body is over the limit of {limit} bytes for this operation.")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise refusal
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise refusal
        parts.append(part)
    return b"".join(parts)


def _matches(request: Request, etag: str) -> bool:
    """Weak comparison, RFC 9110, section 13.1.2."""
    if_none_match = request.headers.get("if-none-match")
    if if_none_match is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or etag.removeprefix("W/") in tags


# Outside the scope


def _service_routes(brain: Brain, metrics: Metrics) -> Iterable[Route]:
    published = openapi_document()

    async def healthz(_: Request) -> Response:
        return document({"status": "ok"})

    async def readyz(_: Request) -> Response:
        status = readiness(brain)
        return document(status, 503 if status["status"] == "unavailable" else 200)

    async def openapi(_: Request) -> Response:
        return document(published)

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
    problem_of_model = brain.not_embedding()
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
            "state": brain.embedder.state,
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
    """A bug outside an operation: logged with its trace, answered with an id to quote."""
    caller = getattr(request.state, "caller", None)
    request_id = caller.request_id if caller else ""
    log.error("request failed", request_id=request_id, exc_info=error)
    return problem(InternalError(f"The request failed: {type(error).__name__}."), request_id)
