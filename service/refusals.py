"""Refusals on their way into the audit log. Of a key in force each is an entry of its own, up to a rate;
whatever comes more often, or without such a key, is counted in memory and becomes one entry a minute. So a
flood fills no disk and keeps no write waiting."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from models.errors import BrainError, RateLimited, StoreUnavailable, Unauthenticated
from models.scope import Caller, Partition
from service.rate import RateLimit
from stores.audit_log import counting
from stores.writer import Transaction

EVERY_S = 60  # seconds of refusals that one entry counts
OWN_PER_SECOND, OWN_AT_ONCE = 1.0, 100  # entries of its own that a key may cause
AT_THE_DOOR = frozenset({401, 403, 413, 429})  # judged before an operation is known
DOOR = "request"  # the action of what was refused there
NOBODY = Partition("", "", "")  # of no tenant

_COUNTED = frozenset({Unauthenticated.code, RateLimited.code})


class Origin(NamedTuple):
    """Whom a refusal is about: the place that it is shown in, and the key, None when none was proven."""

    place: Partition
    key_id: str | None

    @classmethod
    def of(cls, caller: Caller) -> "Origin":
        """Of many calls of a caller: names that it may choose as it likes would be as many entries."""
        agent = caller.scope.agent if caller.bound else ""
        return cls(Partition(caller.scope.product, agent, ""), caller.key_id)


class _Kind(NamedTuple):
    """What is counted together."""

    origin: Origin
    action: str
    code: str


class Refusals:
    """`write` runs a write in the ledger; `clock` gives epoch ms."""

    def __init__(
        self, write: Callable[[Callable[[Transaction], Any]], Awaitable[Any]], clock: Callable[[], int]
    ):
        self._write = write
        self._clock = clock
        self._own = RateLimit(OWN_PER_SECOND, OWN_AT_ONCE)
        self._counts: dict[_Kind, int] = {}

    async def record(
        self,
        origin: Origin,
        action: str,
        refusal: BrainError,
        request_id: str,
        *,
        place: Partition | None = None,
        memory_id: str | None = None,
    ) -> None:
        """Record a refusal by its code: as an entry, which is on disk then, or counted. An entry stands at
        `place`, where that is given. A ledger that takes no writes is no reason to fail: it is counted."""
        key_id, code = origin.key_id, refusal.code
        if key_id is not None and code not in _COUNTED and self._own.take(key_id, self._clock()) == 0:
            entry = _Entry(place or origin.place, key_id, action, code, memory_id, request_id)
            if await self._written([entry]):
                return
        kind = _Kind(origin, action, code)
        self._counts[kind] = self._counts.get(kind, 0) + 1

    async def write_counts(self) -> None:
        """Make entries of what was counted. What can't be written now is kept."""
        counts, self._counts = self._counts, {}
        entries = [
            _Entry(*kind.origin, kind.action, kind.code, None, None, count) for kind, count in counts.items()
        ]
        if entries and not await self._written(entries):
            for kind, count in counts.items():
                self._counts[kind] = self._counts.get(kind, 0) + count

    async def keep_writing(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Do so every minute, until cancelled. `sleep` waits seconds."""
        while True:
            await sleep(EVERY_S)
            await self.write_counts()

    async def _written(self, entries: Iterable["_Entry"]) -> bool:
        def write(transaction: Transaction) -> None:
            for entry in entries:
                entry.record(transaction)

        try:
            await self._write(write)
        except StoreUnavailable:
            return False
        return True


class _Entry(NamedTuple):
    """A row of the log, for so many `times`."""

    place: Partition
    key_id: str | None
    action: str
    code: str
    memory_id: str | None
    request_id: str | None
    times: int | None = None

    def record(self, transaction: Transaction) -> None:
        transaction.event(
            self.action,
            self.place,
            self.memory_id,
            key_id=self.key_id,
            request_id=self.request_id,
            refused=self.code,
            fields=() if self.times is None else counting(self.times),
        )
