"""The examples of a page: fenced blocks, read in their order, run as a reader would run them, and compared
with what the page shows.

`sh` is run by bash. `json` or `text` right after it is what it printed; alone, `json` is a configuration of
an MCP client and `yaml` one of the service. In what is shown, `…` stands for what is left out: a key of an
object, the rest of a list or of a text, a line. A block under `<!-- not run: REASON -->` is for reading only.
Blocks of no language are drawings.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*$")

# What is another one at each run: the same name in a page is the same thing.
NAMES = re.compile(
    r"brain_[0-9a-f]{12}_[0-9a-f]{6,64}…?"  # a credential
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"  # an id
    r"|\b[0-9a-f]{12}\b"  # a key's id
    r"|\bey[\w-]{20,}|\bW[\w-]{20,}"  # a cursor
)
_STORE = re.compile(r"read from +(?:graph|vdb)")
_RULE = re.compile("─+")  # of a table, as wide as what is in it
_TIMES = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\dZ|\b1[78]\d{11}\b|\b[0-9a-f]{16}\b")
# Of which only the type is compared.
CHANGING = frozenset(
    {"elapsed_ms", "request_id", "gmt_created", "created_at", "expires_at", "revoked_at", "due_before"}
    | {"at", "seq", "index_lag", "fingerprint", "source", "indexed"}  # the last two by the machine's load
)
SPAN = frozenset({"from", "to"})  # times of a version; ids of a link
NEAR = 0.02  # between two machines a score differs by rounding


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `shown` is the output that the page shows for it; `not_run` the reason against."""

    page: str
    line: int
    language: str
    text: str
    not_run: str | None
    shown: "Block | None" = None


def blocks(page: Path) -> list[Block]:
    """The examples of a page, in order, outputs with their commands."""
    found: list[Block] = []
    text = page.read_text(encoding="utf-8")
    end = 0
    for match in _FENCE.finditer(text):
        between = text[end : match.start()]
        reason = _NOT_RUN.search(between)
        line = text.count("\n", 0, match.start()) + 1
        block = Block(page.name, line, match[1], match[2], reason[1] if reason else None)
        output = block.language in ("json", "text") and not between.strip() and bool(found)
        if output and found[-1].language == "sh" and found[-1].shown is None:
            last = found.pop()
            block = Block(last.page, last.line, last.language, last.text, last.not_run, block)
        found.append(block)
        end = match.end()
    return found


class Names:
    """What a page calls the ids and credentials of this run."""

    def __init__(self) -> None:
        self._actual: dict[str, str] = {}

    def in_command(self, text: str) -> str:
        """The command with the real ones."""
        return NAMES.sub(lambda match: self._actual.get(match[0], match[0]), text)

    def same(self, shown: str, actual: str) -> bool:
        """Whether two texts agree, once what changes from run to run is paired off."""
        shown_names, actual_names = NAMES.findall(shown), NAMES.findall(actual)
        if len(shown_names) != len(actual_names) or _bare(shown) != _bare(actual):
            return False
        pairs = zip(shown_names, actual_names, strict=True)
        return all(self._actual.setdefault(name, real) == real for name, real in pairs)


def _bare(text: str) -> str:
    for pattern, name in ((NAMES, "<name>"), (_TIMES, "<time>"), (_STORE, "<store>"), (_RULE, "─")):
        text = pattern.sub(name, text)
    return " ".join(text.split())


def check_json(shown: str, actual: str, names: Names) -> None:
    """AssertionError, with the path, where the answer differs from what is shown."""
    for path, problem in _differences(json.loads(shown), json.loads(actual), names, "answer"):
        raise AssertionError(f"{path}: {problem}; the whole answer:\n{actual}")


def _differences(shown: Any, actual: Any, names: Names, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(shown, dict) and isinstance(actual, dict):
        keys = shown.keys() - {"…"}
        if missing := keys - actual.keys():
            yield path, f"no {sorted(missing)}"
        elif "…" not in shown and (more := actual.keys() - keys):
            yield path, f"{sorted(more)} are not shown"
        else:
            for key in keys:
                if not _changes(key, shown[key], actual[key]):
                    yield from _differences(shown[key], actual[key], names, f"{path}.{key}")
    elif isinstance(shown, list) and isinstance(actual, list):
        rest = shown[-1:] == ["…"]
        wanted = shown[:-1] if rest else shown
        if len(actual) < len(wanted) or (len(actual) > len(wanted) and not rest):
            yield path, f"{len(actual)} items"
        for index, (one, other) in enumerate(zip(wanted, actual, strict=False)):
            yield from _differences(one, other, names, f"{path}[{index}]")
    elif isinstance(shown, str) and isinstance(actual, str):
        cut = shown.endswith("…") and not NAMES.fullmatch(shown)
        if cut:
            shown, actual = shown.removesuffix("…"), actual[: len(shown) - 1]
        if not names.same(shown, actual):
            yield path, f"{actual!r} instead of {shown!r}"
    elif isinstance(shown, float) and isinstance(actual, float | int):
        if abs(shown - actual) > NEAR:
            yield path, f"{actual} instead of {shown}"
    elif shown != actual or type(shown) is not type(actual):
        yield path, f"{actual!r} instead of {shown!r}"


def _changes(key: str, shown: Any, actual: Any) -> bool:
    """Whether the value is another one at each run, so that the type is all that can be compared."""
    times = key in SPAN and isinstance(shown, int)
    return (times or key in CHANGING) and type(shown) is type(actual)


def check_text(shown: str, actual: str, names: Names) -> None:
    """AssertionError where a line that is shown does not follow in the output. Only `…` skips lines."""
    lines = iter(line for line in actual.splitlines() if line.strip())
    skipping = False
    for wanted in (line for line in shown.splitlines() if line.strip()):
        if wanted.strip() == "…":
            skipping = True
            continue
        line = next(lines, None)
        while skipping and line is not None and not names.same(wanted, line):
            line = next(lines, None)
        assert line is not None and names.same(wanted, line), f"{wanted!r} is not {line!r} in:\n{actual}"
        skipping = False
    left = list(lines)
    assert skipping or not left, f"not shown: {left}"
