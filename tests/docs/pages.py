"""The generated parts of the documentation. Between `<!-- generated: NAME -->` and `<!-- end -->` stands what
the code says; `make docs` (`python -m tests.docs.pages`) writes it anew, and `tests/test_docs.py` fails while
a page differs."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from service.operations import BY_NAME
from tests.docs import cli, schemas, tables

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = tuple(
    DOCS / f"{name}.md"
    for name in (
        *("http-api", "mcp", "configuration", "errors", "cli", "security"),
        *("faults", "backup", "rebuild", "doctor", "observations", "history", "transcripts"),
    )
)
README = ROOT / "README.md"

_BLOCK = re.compile(r"(<!-- generated: ([\w -]+?) -->\n).*?(<!-- end -->)", re.DOTALL)

BLOCKS: dict[str, Callable[[], str]] = {
    "operations": tables.operations,
    "memory": schemas.memory_block,
    "details": schemas.details_block,
    "rights": tables.rights,
    "toolsets": tables.toolsets,
    "tools": tables.tools,
    "settings": tables.settings,
    "errors": tables.errors,
    "commands": cli.commands_block,
    **{f"operation {name}": partial(schemas.operation_block, BY_NAME[name]) for name in BY_NAME},
    **{f"command {name}": partial(cli.command_block, name) for name in cli.commands()},
}


def names(text: str) -> list[str]:
    """The generated parts of a page, in their order."""
    return [match[2] for match in _BLOCK.finditer(text)]


def current(text: str) -> str:
    """The page with its generated parts as the code would have them. KeyError for an unknown part."""
    return _BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]]()}\n\n{match[3]}", text)


def main() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if (fresh := current(text)) != text:
            page.write_text(fresh, encoding="utf-8")
            print(f"{page.relative_to(ROOT)} is written anew.")


if __name__ == "__main__":
    main()
