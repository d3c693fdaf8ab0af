"""How far a source is trusted, and the confidence that a memory starts with."""

from collections.abc import Iterable
from typing import Literal, get_args

Authority = Literal["policy", "official", "team", "informal"]
Statement = Literal["stated", "derived", "interpretation"]

AUTHORITIES: tuple[Authority, ...] = get_args(Authority)  # highest first

_BY_AUTHORITY: dict[Authority, float] = {"policy": 0.95, "official": 0.9, "team": 0.8, "informal": 0.7}
_BY_STATEMENT: dict[Statement, float] = {"stated": 1.0, "derived": 0.8, "interpretation": 0.6}


def rank(authority: Authority) -> int:
    """3 for `policy` down to 0 for `informal`."""
    return len(AUTHORITIES) - 1 - AUTHORITIES.index(authority)


def lowest(authorities: Iterable[Authority]) -> Authority:
    """The one that binds least; of at least one."""
    return min(authorities, key=rank)


def initial_confidence(authority: Authority, statement: Statement, stated: float | None) -> float:
    """Confidence of a new memory, 0..1: authority x kind of statement, or the writer's own value where
    that is lower. A writer can doubt a memory, never vouch for it."""
    earned = round(_BY_AUTHORITY[authority] * _BY_STATEMENT[statement], 6)
    return earned if stated is None else min(earned, stated)
