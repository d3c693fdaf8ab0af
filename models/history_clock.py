"""The review clock: when a memory is to be looked at again. Times: epoch ms, UTC."""

from dataclasses import replace

from models.provenance import Provenance
from models.standing import Standing

DAY_MS = 24 * 3600 * 1000
FIRST, LONGEST, CHALLENGED = 30, 180, 7  # days


def started(provenance: Provenance, now: int) -> Provenance:
    """With the clock of a new interpretation; nothing else is reviewed without being asked for."""
    if provenance.tier != "interpretation":
        return provenance
    return replace(provenance, review_interval_days=FIRST, review_due_at=now + FIRST * DAY_MS)


def confirmed(provenance: Provenance, now: int) -> Provenance:
    """After a review that found it to hold. An interpretation is due again after twice the time; whatever
    else had asked for a review is not due any more."""
    if provenance.tier != "interpretation":
        return replace(provenance, review_due_at=None, review_interval_days=None, last_reviewed_at=now)
    days = min(LONGEST, 2 * (provenance.review_interval_days or FIRST // 2))
    due = now + days * DAY_MS
    return replace(provenance, review_due_at=due, review_interval_days=days, last_reviewed_at=now)


def challenged(provenance: Provenance, now: int) -> Provenance:
    """After a review that left it in doubt: it is due again soon."""
    due = now + CHALLENGED * DAY_MS
    return replace(provenance, review_due_at=due, review_interval_days=CHALLENGED, last_reviewed_at=now)


def asks(provenance: Provenance, standing: Standing) -> bool:
    """Whether a memory is under review at all: an interpretation, or one whose ground was shaken."""
    return provenance.review_due_at is not None or bool(standing.fallen)


def is_due(provenance: Provenance, now: int) -> bool:
    return provenance.review_due_at is not None and provenance.review_due_at <= now
