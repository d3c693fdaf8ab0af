"""SQLite's files as pages, to find what they hold in two parts.

A value that does not fit into its page goes on in others, anywhere in the file: its part in the first page is
followed by the number of the next (4 bytes), each further page begins with the number of the one after it.
https://www.sqlite.org/fileformat2.html, sections 1.6 and 4
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_DATABASE = b"SQLite format 3\0"
_LOGS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_LOG_HEADER, _FRAME_HEADER, _POINTER = 32, 24, 4
_SHORTEST = 4  # bytes; shorter ones would be put together from anything


@dataclass(frozen=True, slots=True)
class _Page:
    file: Path
    number: int
    offset: int
    content: bytes


def has_pages(path: Path) -> bool:
    """Whether the file is a database or a write-ahead log. Raises OSError."""
    with path.open("rb") as file:
        head = file.read(16)
    return head == _DATABASE or head[:4] in _LOGS


def find_cut(files: Sequence[Path], patterns: Sequence[bytes]) -> Iterator[tuple[Path, int, bytes]]:
    """Where a database (and its log) holds one of the patterns cut into two pages: file, offset of the first
    part, pattern. Raises OSError."""
    patterns = [pattern for pattern in patterns if len(pattern) >= _SHORTEST]
    # By page: the patterns of which it would hold the second part. Of each pattern the longer part is looked
    # for first: the other may be a single byte.
    ends: defaultdict[int, set[tuple[bytes, int]]] = defaultdict(set)
    begun: defaultdict[int, set[tuple[bytes, int, Path, int]]] = defaultdict(set)
    for page in _pages(files):
        for pattern in patterns:
            for cut in _cuts_before(page, pattern):
                ends[page.number].add((pattern, cut))
            for cut, offset, following in _cuts_after(page, pattern):
                begun[following].add((pattern, cut, page.file, offset))
    if not ends and not begun:
        return
    for page in _pages(files):
        for pattern, cut, file, offset in sorted(begun.get(page.number, ())):
            if page.content.startswith(pattern[cut:], _POINTER):
                yield file, offset, pattern
        for number, found in ends.items():
            for pattern, cut in found:
                for at in _ends_with(page, pattern[:cut], number):
                    yield page.file, page.offset + at, pattern


def _cuts_before(page: _Page, pattern: bytes) -> Iterator[int]:
    """Where the pattern may be cut, no later than in its middle, so that the page begins with the rest."""
    middle = len(pattern) // 2
    begin = page.content[_POINTER : _POINTER + 2]
    cut = pattern.find(begin, 1, middle + 2)
    while cut > 0:
        if page.content.startswith(pattern[cut:], _POINTER):
            yield cut
        cut = pattern.find(begin, cut + 1, middle + 2)


def _cuts_after(page: _Page, pattern: bytes) -> Iterator[tuple[int, int, int]]:
    """Where the pattern may be cut, after its middle, so that the page holds what is before: the cut, its
    offset, and the page that should have the rest."""
    content, middle = page.content, len(pattern) // 2 + 1
    at = content.find(pattern[:middle])
    while at >= 0:
        for cut in range(middle, len(pattern)):
            if content[at : at + cut] != pattern[:cut]:
                break
            end = at + cut
            pointer = content[:_POINTER] if end == len(content) else content[end : end + _POINTER]
            yield cut, page.offset + at, int.from_bytes(pointer, "big")
        at = content.find(pattern[:middle], at + 1)


def _ends_with(page: _Page, part: bytes, following: int) -> Iterator[int]:
    """Where the page has this part with the pointer to that page behind it, or at its own end."""
    pointer = following.to_bytes(_POINTER, "big")
    if page.content.startswith(pointer) and page.content.endswith(part):
        yield len(page.content) - len(part)
    at = page.content.find(part + pointer)
    while at >= 0:
        yield at
        at = page.content.find(part + pointer, at + 1)


def _pages(files: Sequence[Path]) -> Iterator[_Page]:
    for path in files:
        with path.open("rb") as file:
            head = file.read(_LOG_HEADER)
            log = head[:4] in _LOGS
            size = int.from_bytes(head[8:12] if log else head[16:18], "big")
            size = 65_536 if size == 1 else size
            reserved = 0 if log else head[20]
            if size < 512:
                continue  # a file that was torn before it was anything
            offset = _LOG_HEADER if log else 0
            file.seek(offset)
            before = _FRAME_HEADER if log else 0
            number = 0
            while len(frame := file.read(before + size)) == before + size:
                number = int.from_bytes(frame[:4], "big") if log else number + 1
                yield _Page(path, number, offset + before, frame[before : before + size - reserved])
                offset += before + size
