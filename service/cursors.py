"""Opaque cursors: where a page ended, and a mark of the selection that it belongs to."""

import base64
import binascii
import hashlib
from typing import Any

import orjson

from models.errors import invalid

INT64 = 2**63


def cursor_of(mark: str, *place: int | str | bool | None, prefix: str = "") -> str:
    """A text for `next_cursor`."""
    return prefix + base64.urlsafe_b64encode(orjson.dumps([mark, *place])).decode().rstrip("=")


def read_cursor(cursor: str | None, mark: str, types: tuple[Any, ...], prefix: str = "") -> list[Any] | None:
    """The place that a cursor of ours says, whose parts are of these types, integers of 64 bits; None without
    a cursor. Raises InvalidArgument for another cursor, or one of another selection."""
    if cursor is None:
        return None
    body = cursor.removeprefix(prefix)
    place: list[Any]
    try:
        told, *place = orjson.loads(base64.b64decode(body + "=" * (-len(body) % 4), b"-_", validate=True))
    except (ValueError, binascii.Error, TypeError):
        raise invalid("cursor", "is not one of ours; start again without it") from None
    if not cursor.startswith(prefix) or len(place) != len(types) or not all(map(_is, place, types)):
        raise invalid("cursor", "is not one of ours; start again without it")
    if told != mark:
        raise invalid("cursor", "belongs to another list; keep the filters, or start again without it")
    return place


def mark_of(selection: Any) -> str:
    """Tells whether a cursor and a request go together, without showing what was asked. `selection` has one
    text for what is asked."""
    return hashlib.sha256(repr(selection).encode()).hexdigest()[:16]


def _is(part: Any, type_: Any) -> bool:
    """bool is no int here."""
    fits = type(part) in type_ if isinstance(type_, tuple) else type(part) is type_
    return fits and (type(part) is not int or -INT64 <= part < INT64)
