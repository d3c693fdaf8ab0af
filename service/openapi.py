"""The OpenAPI 3.1 document, derived from the registry."""

from functools import cache
from importlib.metadata import version
from typing import Any

from models.errors import BrainError
from service.operations import OPERATIONS, Operation
from service.schemas import inline_output_schema, input_schema

_PROBLEM = {
    "type": "object",
    "description": "RFC 9457 problem document. `code` is stable; `hint` is the next move.",
    "required": ["type", "title", "status", "code", "detail", "hint", "retryable", "request_id", "errors"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "hint": {"type": "string"},
        "retryable": {"type": "boolean"},
        "request_id": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}

_BEARER = {
    "type": "http",
    "scheme": "bearer",
    "description": "`brain_<id>_<secret>`, from `brain keys create`. Until a key exists, none is needed.",
}


def _header(name: str, description: str, longest: int = 128) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string", "minLength": 1, "maxLength": longest},
    }


_HEADERS = [
    _header(name, text)
    for name, text in (
        (
            "X-Brain-Agent",
            "The agent of the scope; without it the one that the key is bound to, else `default`.",
        ),
        (
            "X-Brain-User",
            "A user inside the scope. Without it: writes to the default user, reads the whole scope.",
        ),
        ("X-Request-Id", "Echoed in the answer; letters, digits, `.`, `_` and `-`."),
    )
]
_WITHOUT_BODY = ("GET", "DELETE")
_KEY = _header("Idempotency-Key", "Another way to give `idempotency_key`.", 256)


@cache
def openapi_document() -> dict[str, Any]:
    """The whole document, as a JSON value. It takes a quarter of a second, once. Shared between callers:
    don't change it."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.route.path, {})[operation.route.method.lower()] = _operation(operation)
    for path, summary in (
        ("/healthz", "The process lives"),
        ("/readyz", "What can be served, each store by name"),
        ("/metrics", "Prometheus metrics"),
    ):
        paths[path] = {"get": {"summary": summary, "responses": {"200": {"description": summary}}}}
    paths["/readyz"]["get"]["responses"]["503"] = {"description": "Reads by id can't be served"}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "brain-memory",
            "version": version("brain-memory"),
            "description": "A self-hosted memory service for agents. Times are epoch milliseconds, UTC.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": {"Problem": _PROBLEM}, "securitySchemes": {"key": _BEARER}},
        "security": [{"key": []}, {}],  # none at all while no key exists
    }


def _operation(operation: Operation[Any]) -> dict[str, Any]:
    schema = input_schema(operation)
    in_path = {name for name in schema["properties"] if "{" + name + "}" in operation.route.path}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.title,
        "description": operation.description,
        "parameters": [
            *_parameters(schema, in_path, operation.route.method),
            *_HEADERS,
            *([_KEY] if "idempotency_key" in schema["properties"] else []),
        ],
        "responses": {
            str(operation.route.status): _json("Success", inline_output_schema(operation)),
            **{
                status: _json(text, {"$ref": "#/components/schemas/Problem"}, problem=True)
                for status, text in _refusals()
            },
        },
    }
    if operation.route.method not in _WITHOUT_BODY:
        needed = operation.route.method != "PUT"  # there the path says it all
        described["requestBody"] = {"required": needed, **_json("Arguments", _without(schema, in_path))}
        described["requestBody"].pop("description")
    if operation.name == "brain_memory_get":
        described["responses"]["304"] = {"description": "If-None-Match names the present ETag"}
    if operation.name == "brain_memory_add":
        described["responses"]["200"] = _json("United with an equal memory", inline_output_schema(operation))
    return described


def _parameters(schema: dict[str, Any], in_path: set[str], method: str) -> list[dict[str, Any]]:
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in in_path or name in required,
            "description": field.get("description", ""),
            "schema": field,
        }
        for name, field in schema["properties"].items()
        if name in in_path or method in _WITHOUT_BODY
    ]


def _without(schema: dict[str, Any], names: set[str]) -> dict[str, Any]:
    properties = {name: field for name, field in schema["properties"].items() if name not in names}
    required = [name for name in schema.get("required", []) if name not in names]
    return {**schema, "properties": properties, **({"required": required} if required else {})}


def _refusals() -> list[tuple[str, str]]:
    """Every status of the error tree with its codes."""
    codes: dict[int, list[str]] = {}
    for error in sorted(BrainError.__subclasses__(), key=lambda e: (e.status, e.code)):
        codes.setdefault(error.status, []).append(error.code)
    return [(str(status), ", ".join(names)) for status, names in sorted(codes.items())]


def _json(description: str, schema: dict[str, Any], *, problem: bool = False) -> dict[str, Any]:
    media_type = "application/problem+json" if problem else "application/json"
    return {"description": description, "content": {media_type: {"schema": schema}}}
