"""Which records are put out of sight for what their text says: observations and summaries, which would be
read as what was done, when their text wants to be obeyed. Messages and memories are only marked, and so is a
text that merely holds what looks like a secret."""

from collections.abc import Iterable

from models.layers import HIDDEN, Kind, Status

QUARANTINED: frozenset[Kind] = frozenset({"observation", "session_summary"})
HARMLESS = frozenset({"credential"})  # rules that mark a text without an order in it


def status_with(kind: Kind, status: Status, reasons: Iterable[str]) -> Status:
    """The status of a record that would have another one but for the rules that mark its text."""
    orders = kind in QUARANTINED and not HARMLESS.issuperset(reasons)
    return "quarantined" if orders and status not in HIDDEN else status
