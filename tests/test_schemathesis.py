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


def some_memory(api: Api, number: int) -> str:
    """The id of a memory that is there: its own words keep it from being united with another."""
    memory_id: str = api.add(f"Something to aim at, number {number}.", on_duplicate="keep")["memory"][
        "memory_id"
    ]
    return memory_id


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda m: m.value)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_answer_is_valid_by_the_published_schema(
    running: Server, document: Any, operation: Operation[Any], mode: GenerationMode
) -> None:
    published = document[operation.route.path][operation.route.method]
    api = running.api.of("aimed-at")

    @bounded
    @given(case=published.as_strategy(generation_mode=mode), aimed=st.booleans(), number=st.integers(0, 9))
    def check(case: Any, aimed: bool, number: int) -> None:
        if aimed:  # an id that is there, so that more is seen than 404
            ids = {name: some_memory(api, number) for name in case.path_parameters if name.endswith("id")}
            case.path_parameters.update(ids)
            case.headers = {"X-Brain-Agent": "aimed-at"}
        response = case.call()
        case.validate_response(response, checks=CHECKS)

    check()
