"""The checklist of a tool's description and the rules of its published schemas, over every operation."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from models.requests import Request
from service.mcp_tools import TOOLSETS, tools
from service.operations import BY_NAME, OPERATIONS, Operation
from service.schemas import input_schema, output_schema

each = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
Schema = dict[str, Any]


def schemas(node: Schema) -> Iterator[Schema]:
    """The schema and every schema inside it, booleans included."""
    yield node
    if not isinstance(node, dict):
        return
    inside = [*node.get("properties", {}).values()]
    inside += [node[key] for key in ("items", "not", "if", "then", "else") if key in node]
    inside += [part for key in ("anyOf", "oneOf", "allOf", "prefixItems") for part in node.get(key, [])]
    if isinstance(node.get("additionalProperties"), dict):
        inside.append(node["additionalProperties"])
    for part in inside:
        yield from schemas(part)


def properties(node: Schema) -> Iterator[tuple[str, Schema]]:
    for schema in schemas(node):
        yield from schema.get("properties", {}).items()


def sentence(operation: Operation[Any]) -> str:
    return operation.description.split(". ")[0]


def test_first_sentences_differ_from_every_siblings() -> None:
    sentences = [sentence(operation).lower() for operation in OPERATIONS]
    assert len(set(sentences)) == len(sentences)


def test_titles_differ_from_every_siblings() -> None:
    assert len({operation.title for operation in OPERATIONS}) == len(OPERATIONS)


@each
def test_a_description_says_when_to_use_the_tool_and_when_another(operation: Operation[Any]) -> None:
    assert operation.description.count("Use when ") == 1
    others = re.findall(r"use `(\w+)` instead when ", operation.description)
    assert len(others) == 1
    assert others[0] in BY_NAME and others[0] != operation.name


@each
def test_a_description_has_50_to_110_words_and_no_headings(operation: Operation[Any]) -> None:
    assert 50 <= len(operation.description.split()) <= 110
    assert "\n" not in operation.description
    assert not re.search(r"(^|\s)#|\*\*", operation.description)


@each
def test_every_tool_that_a_description_names_is_real(operation: Operation[Any]) -> None:
    assert set(re.findall(r"`(brain_\w+)`", operation.description)) <= set(BY_NAME)


@each
def test_the_annotations_are_explicit_and_agree_with_the_right(operation: Operation[Any]) -> None:
    [tool] = [tool for tool in tools(operation.toolsets) if tool.name == operation.name]
    assert tool.title == operation.title
    assert tool.annotations is not None
    hints = tool.annotations.model_dump(by_alias=True, exclude_none=True)
    assert set(hints) == {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
    assert hints["openWorldHint"] is False
    assert not hints["readOnlyHint"] or (operation.right != "write" and not hints["destructiveHint"])


@each
def test_every_toolset_of_an_operation_is_a_known_one(operation: Operation[Any]) -> None:
    assert operation.toolsets and operation.toolsets <= set(TOOLSETS)


@each
def test_an_input_is_a_plain_closed_schema(operation: Operation[Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(input_schema(operation))
    for schema in schemas(input_schema(operation)):
        assert isinstance(schema, dict), "a boolean sub-schema"
        assert not {"$ref", "$defs", "anyOf", "oneOf", "allOf", "nullable", "title"} & set(schema)
        assert schema.get("additionalProperties", False) is False
        assert ("properties" in schema) == ("additionalProperties" in schema), "an object is open"


@each
def test_every_property_of_an_input_has_a_description_and_bounds(operation: Operation[Any]) -> None:
    for name, schema in properties(input_schema(operation)):
        assert schema.get("description"), f"{name} has no description"
        kinds = {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
        if f"{{{name}}}" in operation.route.path or {"enum", "const"} & set(schema):
            continue  # in a path every text is just an id that may not exist
        if "string" in kinds:
            assert "maxLength" in schema, f"{name} has no bound"
        if "array" in kinds:
            assert "maxItems" in schema, f"{name} has no bound"
        if kinds & {"integer", "number"}:
            assert {"minimum", "exclusiveMinimum"} & set(schema), f"{name} has no lower bound"
            assert {"maximum", "exclusiveMaximum"} & set(schema), f"{name} has no upper bound"


@each
def test_an_input_takes_no_product_agent_or_user(operation: Operation[Any]) -> None:
    names = {name for name, _ in properties(input_schema(operation))}
    if operation.name == "brain_purge":
        names.remove("user_id")  # an administrator's target inside the scope, not who calls
    assert not names & {"product", "product_id", "agent", "agent_id", "user", "user_id"}


@pytest.mark.parametrize(
    "operation",
    [operation for operation in OPERATIONS if operation.timed],  # the others' schemas are their contracts'
    ids=lambda operation: operation.name,
)
def test_an_output_is_a_plain_closed_object(operation: Operation[Any]) -> None:
    schema = output_schema(operation)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    for part in schemas(schema):
        assert not {"$ref", "$defs", "anyOf", "nullable", "title"} & set(part)
        assert "properties" not in part or part["additionalProperties"] is False


def test_a_nullable_choice_is_published_with_null_among_the_choices() -> None:
    layer = input_schema(BY_NAME["brain_memory_list"])["properties"]["layer"]
    assert layer["type"] == ["string", "null"]
    assert layer["enum"][0] == "l0_basic_info" and layer["enum"][-1] is None
    assert layer["description"] == "Only this layer."


def test_a_published_schema_accepts_and_refuses_what_the_model_does() -> None:
    operation = BY_NAME["brain_memory_add"]
    validator = jsonschema.Draft202012Validator(input_schema(operation))
    for arguments, good in (
        ({"content": "x", "layer": None, "metadata": {"title": 1}}, True),
        ({"content": None, "messages": [{"role": "user", "content": "hi", "at": None}]}, True),
        ({"content": "x", "layer": "l9"}, False),
        ({"content": "x", "colour": "red"}, False),
        ({"messages": [{"role": "user", "content": "hi", "mood": "good"}]}, False),
    ):
        assert validator.is_valid(arguments) is good, arguments


def test_a_union_that_cannot_be_said_plainly_is_refused() -> None:
    class Ambiguous(Request):
        value: int | str

    with pytest.raises(TypeError, match=r"only 'X | None'"):
        input_schema(dataclasses.replace(OPERATIONS[0], input=Ambiguous))
