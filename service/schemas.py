"""The published JSON schemas of an operation, derived from its models and made plain: clients of MCP hide
what stands behind a `$ref` or an `anyOf` from their agents, so everything is written out in its place."""

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from service.operations import Operation

Schema = dict[str, Any]

_DEFS = "#/$defs/"


@cache
def input_schema(operation: Operation[Any]) -> Schema:
    """What the operation takes: a closed object without `$ref`, `anyOf` or a boolean sub-schema. Shared
    between callers: don't change it. TypeError when the model has a union that can't be said so."""
    return _published(TypeAdapter(operation.input).json_schema())


@cache
def output_schema(operation: Operation[Any]) -> Schema:
    """What the operation answers when it succeeds: a closed object, as plain as the input's schema."""
    return _published(TypeAdapter(operation.output).json_schema(mode="serialization"))


def _published(schema: Schema) -> Schema:
    return _plain(schema, schema.get("$defs", {}))


def _plain(node: Schema, defs: Schema) -> Schema:
    """The schema with references and unions written out, without pydantic's titles."""
    if "$ref" in node:
        target = defs[node["$ref"].removeprefix(_DEFS)]
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return _plain(target | beside, defs)
    if "anyOf" in node:
        return _nullable(node, defs)
    plain: Schema = {}
    for key, value in node.items():
        if key in ("title", "$defs") or (key == "additionalProperties" and value is True):
            continue
        if key == "properties":
            plain[key] = {name: _plain(part, defs) for name, part in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            plain[key] = _plain(value, defs)
        else:
            plain[key] = value
    return plain


def _nullable(node: Schema, defs: Schema) -> Schema:
    """`X | None` as X with a list of types; the words about the property win over those about X."""
    others = [_plain(branch, defs) for branch in node["anyOf"] if branch != {"type": "null"}]
    if len(others) != 1 or len(node["anyOf"]) != 2:
        raise TypeError(f"only 'X | None' can be published as a plain schema, not {node['anyOf']}")
    beside = {key: value for key, value in node.items() if key not in ("anyOf", "title")}
    plain = others[0] | beside
    plain["type"] = [others[0]["type"], "null"]
    choices = [plain.pop("const")] if "const" in plain else plain.get("enum")
    if choices is not None:
        plain["enum"] = [*choices, None]
    return plain
