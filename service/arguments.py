"""From an HTTP request to an operation's arguments: path, query string, JSON body, and the two headers that
have an argument twin (`Idempotency-Key`, `If-Match`)."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, get_origin

from starlette.requests import Request
from starlette.types import Receive, Scope

from models import verbatim
from models.errors import NoSuchRoute, TooLarge, invalid
from service.operation import LONG_BODY, Operation

JSON_LINES = "application/x-ndjson"

_ENTITY_TAG = re.compile(r'(?:W/)?"(\d{1,15})-[a-z_]+"')


async def arguments_of(scope: Scope, receive: Receive, operation: Operation[Any]) -> tuple[Any, bool]:
    """The operation's arguments, and whether they are texts from the URL. Raises BadJson, TooLarge,
    InvalidArgument, or NoSuchRoute for a path that no id can stand in."""
    if "\0" in scope["path"]:
        raise NoSuchRoute("There is no route with a NUL in it.")
    method = operation.route.method
    if method == "GET" and not scope["query_string"]:
        return dict(scope["path_params"]), True
    request = Request(scope, receive)
    in_url = method in ("GET", "DELETE")
    if method == "GET":
        arguments = _query(request, operation)
    else:
        arguments = await _parsed(await _body(request, operation.route.max_body))
        if not isinstance(arguments, dict):
            return arguments, False
        if request.query_params and (arguments or not in_url):
            raise invalid(next(iter(request.query_params)), "belongs into the JSON body, not into the URL")
        in_url = in_url and not arguments
        arguments |= _query(request, operation)
        _take_headers(request, operation, arguments)
    for name, value in request.path_params.items():
        if arguments.setdefault(name, value) != value:
            raise invalid(name, "differs from the one in the path")
    return arguments, in_url


def streamed(
    scope: Scope, receive: Receive, operation: Operation[Any]
) -> tuple[dict[str, Any], AsyncIterator[bytes]] | None:
    """The arguments, texts from the URL, and the body as it comes, where the operation takes such a one and
    the request brings it. Raises InvalidArgument."""
    if operation.stream is None:
        return None
    request = Request(scope, receive)
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return (_query(request, operation), request.stream()) if media == JSON_LINES else None


def _take_headers(request: Request, operation: Operation[Any], arguments: dict[str, Any]) -> None:
    """The headers that mean an argument, for operations that have it: clients send them with every write."""
    fields = operation.input.model_fields
    key = request.headers.get("idempotency-key")
    if (
        key is not None
        and "idempotency_key" in fields
        and arguments.setdefault("idempotency_key", key) != key
    ):
        raise invalid("idempotency_key", "differs from the Idempotency-Key header")
    match = request.headers.get("if-match")
    if match is None or match.strip() == "*" or "expected_version" not in fields:
        return
    tag = _ENTITY_TAG.fullmatch(match.strip())
    if tag is None:
        raise invalid("If-Match", "must be the ETag that a GET of the memory gave")
    version = int(tag[1])
    if int(arguments.setdefault("expected_version", version)) != version:
        raise invalid("expected_version", "differs from the If-Match header")


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
