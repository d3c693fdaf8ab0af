"""Arguments and answers of an operation as Markdown tables, from its published schemas."""

from collections.abc import Iterator, Sequence
from typing import Any

from models.answers import MemoryDetails, MemoryFields, Timed
from service.operation import KIB, Operation
from service.operations import BY_NAME
from service.schemas import Schema, input_schema, output_schema

MEMORY = frozenset(MemoryFields.__annotations__)
EVERY_ANSWER = frozenset(Timed.__annotations__)  # told once for all
EARLIEST = -62_135_596_800_000  # the year 1: the bound of times

_TYPES = {"array": "list", "boolean": "bool", "integer": "int"}


def table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """Without what Markdown would take for a column's end or for HTML; code spans show `<` as it is."""
    parts = text.replace("|", r"\|").split("`")
    return "`".join(part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(parts))


def operation_block(operation: Operation[Any]) -> str:
    """All that is to be known of an operation over HTTP but an example."""
    route = operation.route
    body = route.max_body
    size = f"{body // KIB} KiB" if body < KIB * KIB else f"{body // KIB // KIB} MiB"
    facts = f"`{route.method} {route.path}` → {route.status} · right `{operation.right}`"
    if route.method != "GET":
        facts += f" · body up to {size}"
    parts = [facts, operation.description]
    if input_schema(operation)["properties"]:
        parts.append(table(("argument", "in", "type", "default", "meaning"), list(_arguments(operation))))
    else:
        parts.append("Takes no arguments.")
    parts.append(table(("answer", "type", "meaning"), list(_fields(output_schema(operation), ""))))
    return "\n\n".join(parts)


def memory_block() -> str:
    """The 18 fields of a memory."""
    schema = output_schema(BY_NAME["brain_memory_get"])["properties"]
    return table(
        ("field", "type", "meaning"), [_row(name, schema[name]) for name in schema if name in MEMORY]
    )


def details_block() -> str:
    """What `include=details` adds."""
    schema = output_schema(BY_NAME["brain_memory_get"])["properties"]["details"]["properties"]
    return ", ".join(f"`{name}` ({kind(schema[name])})" for name in MemoryDetails.__annotations__) + "."


def kind(schema: Schema) -> str:
    """The type, for people."""
    if _is_memory(schema):
        return "memory"
    named = schema.get("type", "any")
    names: list[str] = named if isinstance(named, list) else [named]
    words = [_TYPES.get(name, name) for name in names]
    items = schema.get("items")
    if items and "list" in words and items.get("type"):
        words[words.index("list")] = f"list of {kind(items)}"
    return " or ".join(words)


def _arguments(operation: Operation[Any]) -> Iterator[tuple[str, ...]]:
    schema = input_schema(operation)
    for name, field in schema["properties"].items():
        if "{" + name + "}" in operation.route.path:
            place = "path"
        else:
            place = "query" if operation.route.method in ("GET", "DELETE") else "body"
        required = name in schema.get("required", [])
        yield (f"`{name}`", place, kind(field), _default(field, required), _meaning(field))
        items = field.get("items", {})
        for inner, part in items.get("properties", {}).items():
            needed = inner in items.get("required", [])
            yield (f"`{name}[].{inner}`", place, kind(part), _default(part, needed), _meaning(part))


def _default(field: Schema, required: bool) -> str:
    if required:
        return "required"
    value = field.get("default")
    if value is None or value == {} or value == []:
        return "–"
    return f"`{', '.join(value) if isinstance(value, list) else _json(value)}`"


def _json(value: Any) -> str:
    """As it is written in a request; texts without quotes."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _meaning(field: Schema) -> str:
    """The description, then the bounds."""
    words = " ".join(field.get("description", "").split())  # a row of a table is one line
    limits = [phrase[0].upper() + phrase[1:] + "." for phrase in bounds(field)]
    return " ".join([words.removesuffix(".") + "."] * bool(words) + limits)


def bounds(field: Schema) -> Iterator[str]:
    """What the schema says of the values, a phrase each."""
    if "enum" in field:
        yield "one of " + ", ".join(f"`{_json(value)}`" for value in field["enum"] if value is not None)
    if "minimum" in field and field["minimum"] != EARLIEST:
        low, high = field["minimum"], field.get("maximum")
        yield f"{low} or more" if high is None else f"{low} to {high:,}"
    yield from _sizes(field, "Length", "characters")
    yield from _sizes(field, "Items", "items")
    items = field.get("items", {})
    if "enum" in items:
        yield "each one of " + ", ".join(f"`{value}`" for value in items["enum"])
    for size in _sizes(items, "Length", "characters"):
        yield f"each {size}"


def _sizes(field: Schema, what: str, unit: str) -> Iterator[str]:
    low, high = field.get(f"min{what}", 0), field.get(f"max{what}")
    if high is not None:
        yield f"{low:,} to {high:,} {unit}" if low else f"up to {high:,} {unit}"
    elif low:
        yield f"at least {low} {unit.removesuffix('s') if low == 1 else unit}"


def _fields(schema: Schema, prefix: str) -> Iterator[tuple[str, ...]]:
    """A row for each field of an answer. A memory in it is one row, and one for each field beyond the 18."""
    properties: dict[str, Schema] = schema["properties"]
    whole = _is_memory(schema)
    if whole and not prefix:
        yield "(itself)", "memory", "All 18 fields."
    optional = properties.keys() - set(schema.get("required", []))
    for name, field in properties.items():
        if (whole and name in MEMORY) or (not prefix and name in EVERY_ANSWER):
            continue
        yield _row(prefix + name, field, optional=name in optional)
        if field.get("properties") and name != "details":
            yield from _fields(field, f"{prefix}{name}.")
        elif field.get("items", {}).get("properties"):
            yield from _fields(field["items"], f"{prefix}{name}[].")


def _is_memory(schema: Schema) -> bool:
    return set(schema.get("properties", {})) >= MEMORY


def _row(name: str, field: Schema, *, optional: bool = False) -> tuple[str, str, str]:
    meaning = _meaning({key: value for key, value in field.items() if key not in ("minimum", "maximum")})
    return f"`{name}`", kind(field) + (", may be absent" if optional else ""), meaning
