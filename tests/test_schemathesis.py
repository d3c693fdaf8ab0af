"""Schemathesis over the document that a running server publishes: whatever is sent, there is no 5xx, and each
answer is valid by the schema of its status."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.operations import OPERATIONS, Operation
from tests.serving import Api, Server, eventually, server

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
bounded = settings(
    max_examples=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of our own: agents are made up, and purged."""
    with server(tmp_path_factory.mktemp("fuzzed")) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        yield running


@pytest.fixture(scope="module")
def document(running: Server) -> Any:
    return schemathesis.openapi.from_url(f"{running.owner.url}/openapi.json")


def some_memory(api: Api, text: str) -> str:
    """The id of a memory that is there."""
    memory_id: str = api.add(text, on_duplicate="keep")["memory"]["memory_id"]
    return memory_id


def good_body(api: Api, operation: str, memory_id: str) -> dict[str, Any]:
    """A body that succeeds: rules that tie fields together are in no schema, so chance alone seldom does."""
    if operation == "brain_memory_restore":
        api.request("DELETE", f"/brain/memory/{memory_id}")
    return {
        "brain_memory_add": {"content": "Aimed."},
        "brain_memory_add_batch": {"items": [{"content": "Aimed."}]},
        "brain_memory_search": {"query": "Aimed."},
        "brain_memory_update": {"tags": ["aimed"]},
        "brain_memory_supersede": {"content": "Aimed.", "supersedes": [memory_id]},
        "brain_purge": {"memory_id": memory_id},
    }.get(operation, {})


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda m: m.value)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_answer_is_valid_by_the_published_schema(
    running: Server, document: Any, operation: Operation[Any], mode: GenerationMode
) -> None:
    published = document[operation.route.path][operation.route.method]
    api = running.api.of("aimed-at")

    def aim(case: Any, kept: list[int]) -> None:
        """At memories that are there, with a body that is good but for a few fields."""
        ids = [some_memory(api, text) for text in ("The first target.", "The second target.")]
        names = [name for name in case.path_parameters if name.endswith("id")]
        case.path_parameters.update(zip(names, ids, strict=False))
        case.headers = {"X-Brain-Agent": "aimed-at"}
        if isinstance(case.body, dict):
            fields = sorted(case.body)
            odd = {fields[at % len(fields)] for at in kept} if fields else set()
            case.body = good_body(api, operation.name, ids[0]) | {name: case.body[name] for name in odd}

    @bounded
    @given(
        case=published.as_strategy(generation_mode=mode),
        aimed=st.booleans(),
        kept=st.lists(st.integers(0, 30), max_size=2),
    )
    def check(case: Any, aimed: bool, kept: list[int]) -> None:
        if aimed:
            aim(case, kept)
        case.validate_response(case.call(), checks=CHECKS)

    check()
