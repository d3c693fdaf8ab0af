"""What is refused, and how: each refusal is a problem document that names the argument and the next move."""

from typing import Any

import pytest

from models.layers import LAYERS
from service.operation import Operation
from service.operations import OPERATIONS
from service.schemas import input_schema
from tests.serving import JSON, Api, refused

pytest_plugins = ["tests.serving_fixtures"]

ADD, BATCH, SEARCH = "/brain/memory", "/brain/memory/batch", "/brain/memory/search"
FIT = 65_536  # bytes of content that are taken


def total(api: Api) -> int:
    count: int = api.stats()["total"]
    return count


@pytest.mark.parametrize(
    "body",
    [b"{", b"\xff\xfe", b'{"content": NaN}', b'{"confidence": -Infinity}', b'{"content": "a"} x',
     b"\xef\xbb\xbf{}", b"{'content': 'a'}", b'{"a":' * 100_000, b"[" * 100_000, b"not json", b"\0"],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("path", [ADD, BATCH, SEARCH])
def test_a_body_that_is_not_json_is_400(api: Api, path: str, body: bytes) -> None:
    refused(api.post(path, body[:400_000]), 400, "bad_json")


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"null", b"1", b"true", b'[{"content": "a"}]'])
@pytest.mark.parametrize("path", [ADD, BATCH, SEARCH])
def test_a_body_that_is_not_an_object_is_422(api: Api, path: str, body: bytes) -> None:
    refused(api.post(path, body), 422, "invalid_argument", "body")


@pytest.mark.parametrize(("path", "given", "known"), [
    (ADD, "contents", "content"), (ADD, "tag", "tags"), (ADD, "idempotencyKey", "idempotency_key"),
    (SEARCH, "top_limit", "limit"), (SEARCH, "layer", "layers"), (BATCH, "atomics", "atomic"),
])  # fmt: skip
def test_an_unknown_argument_is_answered_with_the_nearest_known_one(
    api: Api, path: str, given: str, known: str
) -> None:
    problem = refused(api.post(path, {given: "x"}), 422, "invalid_argument")
    messages = {error["field"]: error["message"] for error in problem["errors"]}
    assert messages[given] == f"unknown argument; did you mean '{known}'?"
    assert all(error["field"] for error in problem["errors"])


NESTED = [
    (operation, name)
    for operation in OPERATIONS
    for name, schema in input_schema(operation)["properties"].items()
    if schema.get("items", schema).get("additionalProperties") is False
]


@pytest.mark.parametrize(("operation", "name"), NESTED, ids=lambda part: getattr(part, "name", part))
def test_inside_an_object_too(api: Api, operation: Operation[Any], name: str) -> None:
    outer = input_schema(operation)["properties"][name]
    inner = outer.get("items", outer)
    known = next(iter(inner["properties"]))
    wrong: Any = {f"{known}s": "x"}
    path, body = (
        operation.route.path.format(memory_id="m", id="m"),
        {name: [wrong] if "items" in outer else wrong},
    )
    problem = refused(api.request(operation.route.method, path, body), 422, "invalid_argument")
    messages = {error["field"]: error["message"] for error in problem["errors"]}
    place = f"{name}[0]" if "items" in outer else name
    assert messages[f"{place}.{known}s"] == f"unknown argument; did you mean '{known}'?"


def test_and_inside_the_items_of_a_batch(api: Api) -> None:
    assert {name for _, name in NESTED} >= {"facts", "messages", "replacement"}
    item = {"content": "a", "facts": [{"subject": "a", "predicate": "b", "object": "c", "zzz": 1}]}
    [result] = api.post(BATCH, {"items": [item]}).json()["results"]
    [error] = result["error"]["errors"]
    assert error["field"].endswith("facts[0].zzz")
    assert error["message"].startswith("unknown argument; known: subject, predicate, object")


def test_an_argument_that_is_like_no_other_is_answered_with_all_that_are_known(api: Api) -> None:
    problem = refused(api.post(SEARCH, {"query": "a", "zzz": 1}), 422, "invalid_argument", "zzz")
    assert "known: layers, kinds, tags" in problem["detail"]


def test_a_thousand_wrong_arguments_are_refused_with_some_of_them(api: Api) -> None:
    wrong = {f"wrong_{number}": number for number in range(10_000)}
    problem = refused(api.try_add("a", **wrong), 422, "invalid_argument", "wrong_0")
    assert len(problem["errors"]) <= 20
    long = refused(api.try_add("a", **{"x" * 100_000: 1}), 422, "invalid_argument")
    assert len(str(long)) < 5_000


WRONG_ADDS: list[tuple[JSON, str]] = [
    ({"content": ""}, "content"),
    ({"content": " \n\t\u2003"}, "content"),
    ({"content": 5}, "content"),
    ({"content": ["a"]}, "content"),
    ({"content": "a" * (FIT + 1)}, "content"),
    ({"content": "é" * (FIT // 2) + "a"}, "content"),
    ({"content": "🦊" * (FIT // 4) + "a"}, "content"),
    ({"layer": "l9"}, "layer"),
    ({"layer": "L2_FACT"}, "layer"),
    ({"layer": 2}, "layer"),
    ({"kind": "observation"}, "kind"),
    ({"tags": "a,b"}, "tags"),
    ({"tags": [""]}, "tags[0]"),
    ({"tags": ["a", 1]}, "tags[1]"),
    ({"tags": ["t" * 129]}, "tags[0]"),
    ({"tags": [str(n) for n in range(65)]}, "tags"),
    ({"metadata": []}, "metadata"),
    ({"metadata": "{}"}, "metadata"),
    ({"metadata": None}, "metadata"),
    ({"metadata": {"k": "v" * 16_384}}, "metadata"),
    ({"metadata": {"n": 2**63}}, "metadata.n"),
    ({"metadata": {"n": [-(2**63) - 1]}}, "metadata.n[0]"),
    ({"memory_at": 1.5}, "memory_at"),
    ({"memory_at": "2026-01-01"}, "memory_at"),
    ({"memory_at": True}, "memory_at"),
    ({"memory_at": 10**15}, "memory_at"),
    ({"valid_from": 2, "valid_until": 2}, "body"),
    ({"confidence": 1.01}, "confidence"),
    ({"confidence": -0.1}, "confidence"),
    ({"confidence": "high"}, "confidence"),
    ({"source_authority": "root"}, "source_authority"),
    ({"source_raw_memory_id": "nobody"}, "source_raw_memory_id"),
    ({"evidence_ids": ["nobody"]}, "evidence_ids[0]"),
    ({"session_position": 1}, "body"),
    ({"session_id": "s", "session_position": -1}, "session_position"),
    ({"session_id": "s", "session_position": 2**63 - 1}, "session_position"),
    ({"session_id": " "}, "session_id"),
    ({"on_duplicate": "replace"}, "on_duplicate"),
    ({"idempotency_key": ""}, "idempotency_key"),
    ({"messages": [{"role": "user", "content": "b"}]}, "body"),
]


@pytest.mark.parametrize(("fields", "field"), WRONG_ADDS, ids=lambda value: str(value)[:40])
def test_a_wrong_argument_of_an_add_is_named_and_nothing_is_stored(
    api: Api, fields: JSON, field: str
) -> None:
    refused(api.try_add(**{"content": "a"} | fields), 422, "invalid_argument", field)
    assert total(api) == 0


@pytest.mark.parametrize(("body", "field"), [
    (rb'{"content": "a\u0000b"}', "content"),
    (rb'{"content": "half \ud83d of a pair"}', "content"),
    (rb'{"content": "a", "metadata": {"a": {"b": 1, "b": 1}}}', "metadata.a.b"),
    (rb'{"content": "a", "content": "b"}', "content"),
    (rb'{"content": "a", "metadata": {"\ud800": 1}}', "metadata"),
    (rb'{"content": "a", "metadata": {"n": 1e999}}', "metadata.n"),
    (rb'{"content": "a", "tags": ["\u0000"]}', "tags[0]"),
    (rb'{"content": "a", "metadata": ' + b'{"n":' * 70 + b"1" + b"}" * 71, "metadata" + ".n" * 63),
    (rb'{"content": "a", "\u0000": 1}', "body"),
])  # fmt: skip
def test_what_could_not_be_kept_verbatim_is_refused(api: Api, body: bytes, field: str) -> None:
    refused(api.post(ADD, body), 422, "invalid_argument", field)
    assert total(api) == 0


@pytest.mark.parametrize("text", ["a" * FIT, "é" * (FIT // 2), "🦊" * (FIT // 4), "x", " .", "\u200b"])
def test_content_of_up_to_65536_bytes_is_kept_as_it_is(api: Api, text: str) -> None:
    added = api.add(text)["memory"]
    assert api.memory(added["memory_id"])["content"] == text


def test_metadata_of_exactly_16_kib_and_64_levels_are_kept(api: Api) -> None:
    full = {"k": "v" * (16_384 - len('{"k":""}'))}
    assert api.add("full", metadata=full)["memory"]["custom"] == full
    deep = b'{"n":' * 62 + b"1" + b"}" * 62
    body = b'{"content": "deep", "metadata": ' + deep + b"}"
    assert deep in api.post(ADD, body).content


WRONG_SEARCHES: list[tuple[JSON, str]] = [
    *(({"limit": limit}, "limit") for limit in (0, -1, "5", 101, 10**6, 5.0, None, True)),
    ({"query": ""}, "query"),
    ({"query": " \u3000"}, "query"),
    ({"query": "q" * 8193}, "query"),
    ({"query": None}, "query"),
    ({"layers": "l2_fact"}, "layers"),
    ({"layers": ["l9"]}, "layers[0]"),
    ({"layers": [*LAYERS, "l2_fact"]}, "layers"),
    ({"statuses": []}, "statuses"),
    ({"tags": "a,b"}, "tags"),
    ({"tags_match": "some"}, "tags_match"),
    ({"min_confidence": 2}, "min_confidence"),
    ({"min_authority": "king"}, "min_authority"),
    ({"metadata": {"n": 2**64}}, "metadata.n"),
    ({"memory_at_from": "yesterday"}, "memory_at_from"),
]


@pytest.mark.parametrize(("fields", "field"), WRONG_SEARCHES, ids=lambda value: str(value)[:40])
def test_a_wrong_argument_of_a_search_is_named(api: Api, fields: JSON, field: str) -> None:
    refused(api.post(SEARCH, {"query": "a"} | fields), 422, "invalid_argument", field)


@pytest.mark.parametrize("params", [
    {"limit": "0"}, {"limit": "101"}, {"limit": "five"}, {"layer": "l9"}, {"order": "best"},
    {"status": "dead"}, {"updated_since": "soon"}, {"authority": ""}, {"tag": ""}, {"limits": "5"},
    {"cursor": "x" * 513},
    {"limit": ["5", "6"]}, {"layer": ["l1_raw", "l2_fact"]}, {"tag": ["a", "a"]}, {"tag": "a\0b"},
])  # fmt: skip
def test_a_wrong_parameter_of_a_list_is_named(api: Api, params: dict[str, Any]) -> None:
    refused(api.get("/brain/memory", params=params), 422, "invalid_argument", next(iter(params)))


@pytest.mark.parametrize("items", [[], None, "a", {}, [{"content": "a"}] * 1001])
def test_a_batch_takes_one_to_a_thousand_items(api: Api, items: Any) -> None:
    refused(api.post(BATCH, {"items": items}), 422, "invalid_argument", "items")
    assert total(api) == 0


def test_arguments_of_a_post_do_not_stand_in_the_url(api: Api) -> None:
    problem = refused(api.post(f"{ADD}?layer=l1_raw", {"content": "a"}), 422, "invalid_argument", "layer")
    assert "body" in problem["detail"]


def test_an_empty_body_is_an_object_without_arguments(api: Api) -> None:
    refused(api.post(SEARCH, b""), 422, "invalid_argument", "query")


def test_the_header_of_the_idempotency_key_is_another_name_for_the_argument(api: Api) -> None:
    header = {"idempotency-key": "k-1"}
    first = api.post(ADD, {"content": "a"}, headers=header).json()
    second = api.add("a", idempotency_key="k-1")
    assert (first["memory_ids"], second["replayed"]) == (second["memory_ids"], True)
    both = api.post(ADD, {"content": "a", "idempotency_key": "k-2"}, headers=header)
    refused(both, 422, "invalid_argument", "idempotency_key")
    refused(api.post(ADD, {"content": "b"}, headers=header), 409, "idempotency_key_reused")
    refused(api.post(ADD, {"content": "b"}, headers={"idempotency-key": ""}), 422, "invalid_argument")
    # A client may send it with every POST; one that writes nothing has no use for it.
    assert api.post(SEARCH, {"query": "a"}, headers=header).status_code == 200
