"""The published document: valid, complete, and true of what the server answers."""

from typing import Any

import jsonschema
import openapi_spec_validator
import pytest

from models.errors import BrainError
from service.openapi import openapi_document
from service.operations import OPERATIONS, Operation
from tests.serving import JSON, Api

pytest_plugins = ["tests.serving_fixtures"]

DOCUMENT = openapi_document()
each = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


def described(operation: Operation[Any]) -> JSON:
    found: JSON = DOCUMENT["paths"][operation.route.path][operation.route.method.lower()]
    return found


def schema_of(operation: Operation[Any], status: str) -> JSON:
    [content] = described(operation)["responses"][status]["content"].values()
    return {**content["schema"], "components": DOCUMENT["components"]}


def test_the_document_is_valid_openapi_and_the_same_over_http(api: Api) -> None:
    openapi_spec_validator.validate(DOCUMENT)
    assert api.get("/openapi.json").json() == DOCUMENT
    assert DOCUMENT["openapi"].startswith("3.1")


def test_every_operation_and_every_route_of_the_service_is_there() -> None:
    paths = DOCUMENT["paths"]
    found = {(method.upper(), path) for path, item in paths.items() for method in item}
    service = {("GET", path) for path in ("/healthz", "/readyz", "/metrics")}
    assert found == {(operation.route.method, operation.route.path) for operation in OPERATIONS} | service
    ids = [item["operationId"] for path in paths.values() for item in path.values() if "operationId" in item]
    assert sorted(ids) == sorted(operation.name for operation in OPERATIONS)


@each
def test_an_operation_lists_every_argument_once(operation: Operation[Any]) -> None:
    one = described(operation)
    body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    parameters = [parameter["name"] for parameter in one["parameters"] if parameter["in"] != "header"]
    assert sorted([*parameters, *body.get("properties", {})]) == sorted(operation.input.model_fields)
    headers = [parameter["name"] for parameter in one["parameters"] if parameter["in"] == "header"]
    assert set(headers) >= {"X-Brain-Agent", "X-Brain-User", "X-Request-Id"}
    assert ("Idempotency-Key" in headers) == ("idempotency_key" in operation.input.model_fields)


@each
def test_an_operation_lists_every_status_and_code_that_it_may_answer(operation: Operation[Any]) -> None:
    responses = described(operation)["responses"]
    for error in BrainError.__subclasses__():
        assert error.code in responses[str(error.status)]["description"]
    assert str(operation.route.status) in responses


@pytest.mark.parametrize(("name", "path", "body", "status"), [
    ("brain_memory_add", "/brain/memory", {"content": "a"}, 201),
    ("brain_memory_add", "/brain/memory", {"content": "a"}, 200),
    ("brain_memory_add", "/brain/memory", {"content": ""}, 422),
    ("brain_memory_add_batch", "/brain/memory/batch", {"items": [{"content": "a"}, {}]}, 207),
    ("brain_memory_search", "/brain/memory/search", {"query": "a", "explain": True}, 200),
    ("brain_memory_search", "/brain/memory/search", {"query": "a", "hops": 2, "context": 2}, 200),
    ("brain_memory_search", "/brain/memory/search", {}, 422),
    ("brain_context", "/brain/context", {"query": "a"}, 200),
    ("brain_context", "/brain/context", {"query": "a", "token_budget": 1}, 422),
    ("brain_consolidation", "/brain/consolidation", None, 200),
    ("brain_memory_list", "/brain/memory", None, 200),
    ("brain_memory_get", "/brain/memory/nobody", None, 404),
    ("brain_stats", "/brain/stats", None, 200),
])  # fmt: skip
def test_answers_are_as_they_are_published(api: Api, name: str, path: str, body: JSON, status: int) -> None:
    if status != 201:
        api.add("a", tags=["t"])
    answer = api.get(path) if body is None else api.post(path, body)
    assert answer.status_code == status
    [operation] = [operation for operation in OPERATIONS if operation.name == name]
    jsonschema.validate(answer.json(), schema_of(operation, str(status)))
    media_type = answer.headers["content-type"].split(";")[0]
    assert media_type in described(operation)["responses"][str(status)]["content"]


def test_the_get_answers_304_and_readyz_503_in_the_document_too() -> None:
    [get] = [operation for operation in OPERATIONS if operation.name == "brain_memory_get"]
    assert "304" in described(get)["responses"]
    assert "503" in DOCUMENT["paths"]["/readyz"]["get"]["responses"]
