"""Whatever is sent to a route, the answer is a document of ours and never a 5xx."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.layers import LAYERS
from service.operations import OPERATIONS, Operation
from tests.serving import Api

pytest_plugins = ["tests.serving_fixtures"]

POSTS = [operation for operation in OPERATIONS if operation.route.method == "POST"]
GETS = [operation for operation in OPERATIONS if operation.route.method == "GET"]
bounded = settings(
    max_examples=150,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

# All of them: surrogates, NUL, integers of any size, floats that are not finite.
texts = st.text(max_size=12) | st.sampled_from(
    ["", " ", "\0", "\ud800", "a" * 70_000, *LAYERS, "merge", "user"]
)
numbers = (
    st.integers() | st.floats() | st.sampled_from([2**53, 2**63 - 1, 2**63, -(2**63), 10**30, 0, 1, -0.0])
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
NOBODY = "018f0000-0000-7000-8000-000000000000"
GOOD = {
    "brain_memory_add": {"content": "a", "metadata": {}, "tags": ["t"], "session_id": "s"},
    "brain_memory_add_batch": {"items": [{"content": "a"}, {"content": "b"}]},
    "brain_memory_search": {"query": "a b", "limit": 3, "hops": 1, "context": 1, "as_of": 10**13},
    "brain_context": {"query": "a b", "token_budget": 100},
    "brain_memory_supersede": {"content": "a", "supersedes": ["018f0000-0000-7000-8000-000000000000"]},
    "brain_memory_restore": {},
    "brain_purge": {"session_id": "s", "dry_run": True},
    "brain_conflict_resolve": {"adopted": None},
    "brain_memory_feedback": {"verdict": "useful"},
    "get_observations": {"ids": [1], "source": "observation", "project": "/p", "include_suppressed": True},
    "add_observation": {"type": "change", "title": "a", "facts": ["b"], "created_at_epoch": 1},
    "compress_observations": {"ids": [1], "replacement": {"type": "change", "title": "a"}},
    "add_session_summary": {"request": "a", "topic_key": "k", "covered_from_event_id": 1},
    "save_memory": {"text": "a", "topic_key": "k", "evidence_ids": ["x"], "expires_at_epoch": 1},
    "govern_memory": {"ids": [1], "action": "stale", "expected_versions": {"1": 1}},
    "suppress_memory": {"target": "pattern:a b c"},
    "add_raw_messages": {
        "host": "cursor",
        "project": "/p",
        "session_id": "s",
        "transcript_id": "t",
        "messages": [{"role": "user", "content": "a", "created_at": 1, "ordinal": 0}],
    },
    "ingest_transcript": {
        "host": "claude-code",
        "session_id": "s",
        "first_line": 1,
        "modified_at_epoch": 1,
        "content": '{"type": "user", "message": {"content": "a"}}',
    },
    "remember": {"content": "a", "session_id": "s", "frame": "f", "event_at": "2025-03-01T10:00:00Z"},
    "recall": {"query": "a b", "frame": "f", "limit": 3},
    "review": {"id": NOBODY, "verdict": "confirm", "note": "x"},
    "mark_conflict": {"a": NOBODY, "b": "x", "reason": "x"},
    "resolve_conflict": {"id": NOBODY, "adopted": None, "reason": "x"},
    "set_frame": {"id": NOBODY, "frame": "f"},
    "set_history_context": {"id": NOBODY, "event_at": None, "session_id": "s", "session_position": 1},
}
ACTS = ("promote", "pin", "unpin", "forget", "restore", "flag_sensitive", "clear_sensitive")
GOOD |= {name: {"id": NOBODY, "reason": "x"} for name in ACTS}
GOOD |= {name: {"id": NOBODY, "source": "x"} for name in ("corroborate", "retract_corroboration")}


def bodies(operation: Operation[Any]) -> st.SearchStrategy[Any]:
    """Arguments of the right names with any values, mostly over a good body; or anything at all."""
    names = st.sampled_from(sorted(operation.input.model_fields)) | st.text(max_size=5)
    over_good = st.dictionaries(names, values, max_size=4).map(lambda given: GOOD[operation.name] | given)
    items = st.fixed_dictionaries(
        {"items": st.lists(over_good | values, max_size=3), "atomic": st.booleans()}
    )
    keyed = items.map(lambda body: body | {"idempotency_key": "k"})
    return over_good | (items | keyed if operation.name == "brain_memory_add_batch" else values)


@pytest.mark.parametrize("operation", POSTS, ids=lambda operation: operation.name)
def test_no_body_of_a_post_makes_a_server_error(api: Api, operation: Operation[Any]) -> None:
    @bounded
    @given(bodies(operation))
    def check(body: Any) -> None:
        answer = api.post(operation.route.path, json.dumps(body).encode())
        assert answer.status_code < 500, (body, answer.text)
        assert answer.headers["x-request-id"] and isinstance(answer.json(), dict)

    check()


@pytest.mark.parametrize("operation", POSTS, ids=lambda operation: operation.name)
def test_no_bytes_make_a_server_error(api: Api, operation: Operation[Any]) -> None:
    good = json.dumps(GOOD[operation.name]).encode()

    @bounded
    @given(st.binary(max_size=40), st.integers(0, len(good)), st.integers(0, len(good)))
    def check(noise: bytes, start: int, end: int) -> None:
        answer = api.post(operation.route.path, good[:start] + noise + good[end:])
        assert answer.status_code < 500, answer.text

    check()


@pytest.mark.parametrize("operation", GETS, ids=lambda operation: operation.name)
def test_no_query_string_makes_a_server_error(api: Api, operation: Operation[Any]) -> None:
    names = st.sampled_from(["include", *operation.input.model_fields]) | st.text(max_size=5)
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.integers().map(str)

    @bounded
    @given(texts, st.dictionaries(names, texts | st.lists(texts, max_size=2), max_size=3))
    def check(memory_id: str, params: dict[str, Any]) -> None:
        path = operation.route.path.replace("{memory_id}", quote(memory_id, safe="") or "x")
        answer = api.get(path, params=params)
        assert answer.status_code < 500, answer.text

    check()
