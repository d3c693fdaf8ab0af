"""Looks for texts in every file of a data directory, as bytes, whatever wrote them: the proof of a purge.

A text is sought in each form in which a file of ours, of SQLite's or of Chroma's may hold it: UTF-8, UTF-16,
inside JSON with and without escapes, and in lower case as the index of words has it. SQLite cuts a long value
into pages that need not follow each other; what is cut in two is put together (`stores.sqlite_pages`).
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stores import sqlite_pages

BLOCK = 1 << 20  # bytes read at once
# A form that is longer is sought piece by piece, and each piece counts: what is longer than a page of SQLite
# stands in no file as a whole.
PIECE = 256

Form = Literal["utf-8", "utf-16", "json", "lower case"]


@dataclass(frozen=True, slots=True)
class Trace:
    """One place. `file` is relative to the directory; `offset` is in bytes, None: the name itself holds it;
    `text` is the number of the text, from 0; `whole` is False for a piece of it."""

    file: str
    offset: int | None
    text: int
    form: Form
    whole: bool


@dataclass(frozen=True, slots=True)
class _Sought:
    text: int
    form: Form
    whole: bool


class Search:
    """One search. After `traces` has ended, `files` and `size` (bytes) say what was searched, and `unread`
    names what could not be, with the reason."""

    def __init__(self, directory: Path, texts: Sequence[str], *, block: int = BLOCK):
        """ValueError for a text that is empty."""
        self.files = 0
        self.size = 0
        self.unread: list[str] = []
        self._directory = directory
        self._block = block
        self._sought = _patterns(texts)

    def traces(self) -> Iterator[Trace]:
        """Every place, file by file. Reads only. A file that goes while it is searched is left out."""
        databases: dict[str, list[Path]] = {}
        for path in self._paths(self._directory):
            yield from self._in_name(path)
            if path.is_symlink() or not path.is_file():
                continue
            try:
                yield from self._in_file(path)
                if sqlite_pages.has_pages(path):
                    databases.setdefault(str(path).removesuffix("-wal"), []).append(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._skip(path, error)
        for files in databases.values():
            yield from self._across_pages(files)

    def _paths(self, directory: Path) -> Iterator[Path]:
        """Everything below, in the order of the names; links are not followed."""
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        except OSError as error:
            self._skip(directory, error)
            return
        for entry in entries:
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from self._paths(Path(entry.path))

    def _in_name(self, path: Path) -> Iterator[Trace]:
        names = [os.fsencode(path.name)]
        if path.is_symlink():
            names.append(os.fsencode(path.readlink()))
        for name in names:
            for pattern in self._sought:
                if pattern in name:
                    yield from self._found(path, None, pattern)

    def _in_file(self, path: Path) -> Iterator[Trace]:
        """Block by block; the end of each is read again with the next, as far as a text may reach."""
        longest = max(len(pattern) for pattern in self._sought)
        with path.open("rb") as file:
            self.files += 1
            start, window = 0, b""
            while block := file.read(self._block):
                self.size += len(block)
                window += block
                for pattern in self._sought:
                    # What ends before the new bytes was found with the block before.
                    at = window.find(pattern, max(0, len(window) - len(block) - len(pattern) + 1))
                    while at >= 0:
                        yield from self._found(path, start + at, pattern)
                        at = window.find(pattern, at + 1)
                kept = window[max(0, len(window) - longest + 1) :]
                start += len(window) - len(kept)
                window = kept

    def _across_pages(self, files: Sequence[Path]) -> Iterator[Trace]:
        try:
            for path, offset, pattern in sqlite_pages.find_cut(files, list(self._sought)):
                yield from self._found(path, offset, pattern)
        except FileNotFoundError:  # a log that was folded into its database meanwhile
            return
        except OSError as error:
            self._skip(files[0], error)

    def _found(self, path: Path, offset: int | None, pattern: bytes) -> Iterator[Trace]:
        file = str(path.relative_to(self._directory))
        for sought in self._sought[pattern]:
            yield Trace(file, offset, sought.text, sought.form, sought.whole)

    def _skip(self, path: Path, error: OSError) -> None:
        self.unread.append(f"{path}: {error.strerror}")


def _patterns(texts: Sequence[str]) -> dict[bytes, list[_Sought]]:
    """The bytes to look for, and what each would be a trace of. Of two forms that are the same bytes, the
    first counts."""
    found: dict[bytes, list[_Sought]] = {}
    for number, text in enumerate(texts):
        if not text:
            raise ValueError("an empty text is in every file")
        seen: set[bytes] = set()
        for form, whole in _forms(text):
            if whole in seen:
                continue
            seen.add(whole)
            for pattern in _pieces(whole):
                found.setdefault(pattern, []).append(_Sought(number, form, pattern == whole))
    return found


def _forms(text: str) -> Iterator[tuple[Form, bytes]]:
    yield "utf-8", _utf_8(text)
    escaped = json.dumps(text)[1:-1]
    yield "json", _utf_8(json.dumps(text, ensure_ascii=False)[1:-1])
    yield "json", escaped.encode()
    yield "json", _upper_escapes(escaped).encode()
    yield "utf-16", text.encode("utf-16-le", "surrogatepass")
    yield "lower case", _utf_8(text.lower())


def _upper_escapes(escaped: str) -> str:
    """`\\u00e9` as `\\u00E9`: both are written."""
    head, *rest = escaped.split("\\u")
    return "\\u".join([head, *(part[:4].upper() + part[4:] for part in rest)])


def _utf_8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _pieces(whole: bytes) -> Iterator[bytes]:
    """The bytes, or pieces of PIECE bytes; the last one overlaps the one before."""
    if len(whole) <= PIECE:
        yield whole
        return
    for start in range(0, len(whole), PIECE):
        yield whole[min(start, len(whole) - PIECE) :][:PIECE]
