"""The injection scan of a hostile text against one of half its length: a pattern that looks at the same
characters again and again would take four times as long."""

import time
from statistics import median

from measure import Figure, at_most, interleaved

from models.injection import scan
from tests.injection.hostile import UNITS

LENGTH = 1 << 15


def figures() -> list[Figure]:
    """In this process, one text at a time, the worst of them."""
    found = {unit: _growth(unit) for unit in UNITS}
    worst = max(found, key=lambda unit: found[unit])
    name = "injection scan of a hostile text, twice as long: CPU"
    return [at_most(name, found[worst], 2.5, f"{worst!r} over and over, the worst of {len(UNITS)}")]


def _growth(unit: str) -> float:
    text = (unit * LENGTH)[:LENGTH]
    taken = interleaved({"whole": lambda: _seconds(text), "half": lambda: _seconds(text[: LENGTH // 2])})
    return median(taken["whole"]) / median(taken["half"])


def _seconds(text: str) -> float:
    start = time.thread_time()
    scan(text)
    return time.thread_time() - start
