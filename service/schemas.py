"""The published JSON schemas of an operation, derived from its models and made plain: clients of MCP hide
what stands behind a `$ref` or an `anyOf` from their agents, so everything is written out in its place."""

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from service.operations import Operation

Schema = dict[str, Any]

_DEFS = "#/$defs/"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@cache
def input_schema(operation: Operation[Any]) -> Schema:
    """What the operation takes: a closed object without `$ref`, `anyOf` or a boolean sub-schema. Shared
    between callers: don't change it. TypeError when the model has a union that can't be said so."""
    return _published(TypeAdapter(operation.input).json_schema())


@cache
def output_schema(operation: Operation[Any]) -> Schema:
    """What the operation answers when it succeeds: a closed object, as plain as the input's schema; or, where
    a contract publishes the schema (`timed` false), in that one's form."""
    schema = TypeAdapter(operation.output).json_schema(mode="serialization")
    return _published(schema) if operation.timed else {"$schema": _DIALECT, **_contracted(schema, root=True)}


@cache
def inline_output_schema(operation: Operation[Any]) -> Schema:
    """The same with what stands behind a `$ref` in its place, so that it can be part of another document."""
    schema = output_schema(operation)
    inlined: Schema = _inlined(schema, schema.get("$defs", {}))
    return inlined


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


def _contracted(node: Schema, *, root: bool = False) -> Schema:
    """The schema as the contracts write theirs: with `$defs`, null as one of a list of types, no words."""
    left_out = {"description"} if root else {"description", "title"}
    kept: Schema = {key: value for key, value in node.items() if key not in left_out}
    branches = [_contracted(branch) for branch in kept.pop("anyOf", ())]
    values = [branch for branch in branches if branch != {"type": "null"}]
    if len(values) == 1 and len(branches) == 2:
        kept = values[0] | kept | {"type": [values[0]["type"], "null"]}
    elif branches:
        kept["anyOf"] = branches
    for name in ("properties", "$defs"):
        if name in kept:
            kept[name] = {key: _contracted(part) for key, part in kept[name].items()}
    if "items" in kept:
        kept["items"] = _contracted(kept["items"])
    return {key: value for key, value in kept.items() if key != "default"}


def _inlined(node: Any, defs: Schema) -> Any:
    if isinstance(node, list):
        return [_inlined(part, defs) for part in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(defs[node["$ref"].removeprefix(_DEFS)], defs)
    return {key: _inlined(part, defs) for key, part in node.items() if key not in ("$defs", "$schema")}
