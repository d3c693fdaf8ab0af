"""Times of the history view: ISO 8601 texts with an offset, in and out. Inside they are epoch ms, UTC."""

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_FORM = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
)


def moment(text: str) -> datetime:
    """The moment that a text names, UTC, to the microsecond. ValueError for what is not a real date with
    time, seconds and offset: nothing is inferred."""
    if not _FORM.fullmatch(text):
        raise ValueError("must be like 2025-03-01T10:00:00+08:00 or …Z, with seconds and offset")
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("must be a real date, in the years 1 to 9999 of UTC") from None


def epoch_ms(text: str) -> int:
    """The same as epoch ms, rounded down."""
    return (moment(text) - _EPOCH) // _MS


def checked(text: str) -> str:
    """The text itself, when it names a moment. ValueError as `moment`."""
    moment(text)
    return text


def in_utc(text: str) -> str:
    """A text of `checked` in UTC, with the fraction that it has."""
    return moment(text).isoformat().replace("+00:00", "Z")


def shown(ms: int | None) -> str | None:
    """Epoch ms as a text, to the millisecond."""
    if ms is None:
        return None
    return (_EPOCH + ms * _MS).isoformat(timespec="milliseconds").replace("+00:00", "Z")
