"""The bounds of a span of time, as people write them."""

import re
from datetime import UTC, datetime, timedelta

from models.errors import FieldError, InvalidArgument
from models.transcripts import rfc3339_ms

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def bound(field: str, text: str | None, *, end: bool = False) -> int | None:
    """Epoch seconds of a Unix epoch, an RFC 3339 time, or a date: its first second, with `end` its last, UTC.
    None for None. Raises InvalidArgument."""
    if text is None:
        return None
    trimmed = text.strip()
    if _NUMBER.fullmatch(trimmed) and -(2**63) <= int(trimmed) < 2**63:
        return int(trimmed)
    at = rfc3339_ms(trimmed)
    if at is not None:
        return at // 1000
    if _DATE.fullmatch(trimmed):
        try:
            day = datetime.fromisoformat(trimmed).replace(tzinfo=UTC) - _EPOCH
        except ValueError:
            pass
        else:
            return day // timedelta(seconds=1) + (86_399 if end else 0)
    message = f'invalid time bound "{text}": expected Unix epoch, ISO8601 datetime, or YYYY-MM-DD'
    raise InvalidArgument(message, (FieldError(field, message),))
