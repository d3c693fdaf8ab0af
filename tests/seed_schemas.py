"""The output schemas of the seeds, from the texts of their pages: the first one that was observed, with every
change of the changelog applied, the oldest first. `tests/fixtures/seeds` has the pages."""

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "fixtures" / "seeds"

_CHANGE = re.compile(
    r"^(added|changed)(Output schema) / (.+)$|^Changed\d+ schema fields? changed", re.MULTILINE
)


def output_schema(tool: str) -> Any:
    """The latest output schema of a seed's tool."""
    text = (FOLDER / f"{tool}.txt").read_text(encoding="utf-8")
    revisions: list[list[tuple[str, Any]]] = []
    for match in _CHANGE.finditer(text):
        if match[3] is None:
            revisions.append([])
        else:
            revisions[-1].append((match[3], _value(text[match.end() :])))
    schema: Any = None
    for changes in reversed(revisions):
        for path, value in changes:
            schema = value if path == "(root)" else _put(schema, path.split(" / "), value)
    return schema


def _put(schema: Any, path: list[str], value: Any) -> Any:
    place = schema
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return schema


def _value(text: str) -> Any:
    """The JSON value behind the first "Added value:" or "New value:", with a + before each of its lines."""
    start = re.search(r"(?:Added|New) value: (?=\+)", text)
    assert start is not None
    lines = re.match(r"(?:\+.*\n?)+", text[start.end() :])
    assert lines is not None
    return json.loads(re.sub(r"^\+", "", lines[0], flags=re.MULTILINE))
