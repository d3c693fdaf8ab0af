"""The doctor: proves that ledger ≡ graph ≡ vdb, names what differs, and repairs what can be derived again."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import structlog
from sqlalchemy import Connection, func, select

from models.errors import StoreUnavailable
from models.scope import Partition
from stores.applier import Applier
from stores.audit_checks import CHECK as AUDIT
from stores.audit_checks import audit as check_audit
from stores.audit_checks import extent
from stores.findings import RESTORE, Finding
from stores.graph_checks import CHECK as GRAPH
from stores.graph_checks import Node, check_partition, describe, differing, from_rows, neighbours, partitions
from stores.ledger import Ledger
from stores.ledger_checks import LEDGER_CHECKS
from stores.mending import MENDS
from stores.outbox import unpark
from stores.record_checks import check_chains, check_links, check_records, check_tags, read_records
from stores.refill import Shards
from stores.residents import Residents
from stores.schema import memories, outbox
from stores.shard_checks import CHECK as CHROMA
from stores.shard_checks import SHARDS, ShardChecks
from stores.trust_checks import check_facts, check_standings
from stores.vdb import Vdb
from stores.view_checks import VIEW_CHECKS, check_topics

log = structlog.get_logger()

LOOKS = 3  # at a partition in memory that seems to differ; writes are published a moment after their commit
REFILL_S = 600.0  # that a repair waits for a shard
DRAIN_S = 30.0  # that it waits for what it has queued
IN_RECORDS = ("records", "chains", "links", "tags", "facts", "conflicts", "standings", "topics")
IN_TABLES = (*LEDGER_CHECKS, *VIEW_CHECKS)
CHECKS = (*(check.__name__ for check in IN_TABLES), *IN_RECORDS, GRAPH, CHROMA)


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, found and done. `waiting` counts tasks that are still to be done, which is no
    damage; `repaired` are the findings of the first look that the second did not have; `audit` is how far
    the audit log goes, None when nobody asked."""

    counts: dict[str, int]
    waiting: int
    findings: Sequence[Finding]
    repaired: Sequence[Finding] = ()
    audit: dict[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        names = CHECKS if self.audit is None else (*CHECKS, AUDIT)
        return {
            "clean": not self.findings,
            "checks": {name: sum(one.check == name for one in self.findings) for name in names},
            "counts": self.counts,
            "waiting": self.waiting,
            "findings": [one.document() for one in self.findings],
            "repaired": [one.document() for one in self.repaired],
            **({} if self.audit is None else {"audit": self.audit}),
        }


class Doctor:
    """Lives on the event loop; one examination at a time. `residents` None: nothing is held in memory.
    `clock` gives epoch ms."""

    def __init__(
        self,
        ledger: Ledger,
        vdb: Vdb,
        shards: Shards,
        applier: Applier,
        residents: Residents | None,
        clock: Callable[[], int],
    ):
        self._ledger = ledger
        self._shards = shards
        self._applier = applier
        self._residents = residents
        self._clock = clock
        self._chroma = ShardChecks(ledger, vdb, shards)
        self._turn = asyncio.Lock()

    async def examine(self, *, audit: bool = False) -> Report:
        """Look at everything, change nothing. With `audit`, verify the audit log as well."""
        async with self._turn:
            return await self._examine(audit)

    async def repair(self, *, audit: bool = False) -> Report:
        """Look at everything, repair what can be, and look again. Raises StoreUnavailable when the ledger
        takes no writes."""
        async with self._turn:
            first = await self._examine(audit)
            if not first.findings:
                return first
            await self._mend(first.findings)
            second = await self._examine(audit)
        left = {(one.check, one.what) for one in second.findings}
        repaired = [one for one in first.findings if one.repair and (one.check, one.what) not in left]
        return replace(second, repaired=repaired)

    async def heal(self) -> list[Finding] | None:
        """Compare Chroma with the ledger, a shard at a time, and repair what differs. Returns what it was;
        None when Chroma did not answer, so that nothing is known. Raises StoreUnavailable."""
        found: list[Finding] = []
        async with self._turn:
            for shard in range(SHARDS):
                differs = await self._chroma.find(shard, deep=False)
                if any(one.repair is None for one in differs):
                    return None
                await self._mend(differs)
                found += differs
        return found

    async def _examine(self, audit: bool) -> Report:
        found = await asyncio.to_thread(self._in_ledger)
        reach: dict[str, Any] | None = None
        if audit:
            in_log, reach = await asyncio.to_thread(self._in_audit_log)
            found += in_log
        if any(one.check == "integrity" for one in found):  # the rest would only repeat it
            return Report({}, 0, found, audit=reach)
        try:
            every, counts, waiting = await asyncio.to_thread(self._overview)
            for partition in every:
                found += await self._in_memory(partition)
            for shard in range(SHARDS):
                found += await self._chroma.find(shard, deep=True)
        except StoreUnavailable as fault:
            return Report({}, 0, [*found, unreadable("integrity", fault)], audit=reach)
        return Report(counts, waiting, found, audit=reach)

    def _in_ledger(self) -> list[Finding]:
        """Of the ledger's own tables. A check that can't read is a finding by itself."""
        found: list[Finding] = []

        def run(name: str, check: Callable[[Connection], Iterable[Finding]]) -> None:
            try:
                with self._ledger.snapshot() as connection:
                    found.extend(check(connection))
            except StoreUnavailable as fault:
                found.append(unreadable(name, fault))

        for check in IN_TABLES:
            run(check.__name__, check)
        run("records", _of_records)
        return found

    def _in_audit_log(self) -> tuple[list[Finding], dict[str, Any]]:
        try:
            with self._ledger.snapshot() as connection:
                return list(check_audit(connection)), extent(connection)
        except StoreUnavailable as fault:
            return [unreadable(AUDIT, fault)], {}

    def _overview(self) -> tuple[list[Partition], dict[str, int], int]:
        with self._ledger.snapshot() as connection:
            every = partitions(connection)
            count = connection.scalar(select(func.count()).select_from(memories)) or 0
            waiting = connection.scalar(select(func.count()).select_from(outbox)) or 0
        scopes = {partition.scope for partition in every}
        return every, {"memories": count, "partitions": len(every), "scopes": len(scopes)}, waiting

    # Memory

    async def _in_memory(self, partition: Partition) -> list[Finding]:
        """Of one partition: as it would be loaded now, and as it is held if it is."""
        found = await asyncio.to_thread(self._loaded_anew, partition)
        differs: set[tuple[str, Node | None, Node | None]] | None = None
        for _ in range(LOOKS):
            fresh, outside = await asyncio.to_thread(self._fresh, partition)
            held = None if self._residents is None else self._residents.held(partition)
            if found or held is None:
                return found
            now = differing(describe(held, outside), fresh)
            differs = now if differs is None else differs & now
            if not differs:
                return []
            await asyncio.sleep(0.05)
        ids = tuple(sorted(id for id, _, _ in differs or ()))
        return [Finding(GRAPH, "memories are others in memory than in the ledger", ids, "evict")]

    def _loaded_anew(self, partition: Partition) -> list[Finding]:
        with self._ledger.snapshot() as connection:
            return list(check_partition(connection, partition))

    def _fresh(self, partition: Partition) -> tuple[dict[str, Node], set[str]]:
        with self._ledger.snapshot() as connection:
            return from_rows(connection, partition), neighbours(connection, partition)

    # Repairs

    async def refill(self, shards: Sequence[int]) -> None:
        """Have shards filled anew, and the tasks tried again that may have failed because of them."""
        for shard in shards:
            self._shards.note_due(shard)
        self._applier.wake()
        with suppress(TimeoutError):
            async with asyncio.timeout(REFILL_S):
                for shard in shards:
                    await self._shards.refilled(shard)
        await asyncio.wrap_future(self._ledger.submit(unpark))
        self._applier.wake()

    async def _mend(self, findings: Sequence[Finding]) -> None:
        """Derived rows first: what is filled anew is filled from them."""
        to_do = [one for one in findings if one.repair is not None]
        if not to_do:
            return
        for one in to_do:
            log.warning("repairing", check=one.check, found=one.what, repair=one.repair)
            if one.repair in MENDS:
                await self._write(one)
        if self._residents is not None and any(one.check != CHROMA for one in to_do):
            self._residents.evict_all()
        anew = [one for one in to_do if one.repair in ("refill", "quarantine") and one.shard is not None]
        for shard in {one.shard for one in anew if one.repair == "quarantine" and one.shard is not None}:
            kept = await self._shards.quarantine(shard, self._clock())
            log.warning("a broken shard was put into quarantine", shard=shard, directory=kept)
        if anew:
            await self.refill(sorted({one.shard for one in anew if one.shard is not None}))
        self._applier.wake()
        with suppress(TimeoutError):  # what is queued is no damage; but done is better
            async with asyncio.timeout(DRAIN_S):
                await self._applier.drained()

    async def _write(self, one: Finding) -> None:
        assert one.repair is not None
        mend = MENDS[one.repair]
        await asyncio.wrap_future(self._ledger.submit(lambda transaction: mend(transaction, one.subjects)))


def _of_records(connection: Connection) -> Iterator[Finding]:
    records = read_records(connection)
    yield from check_records(records)
    yield from check_chains(records)
    yield from check_links(connection, records)
    yield from check_tags(connection, records)
    yield from check_facts(connection, records)
    yield from check_standings(connection, records)
    yield from check_topics(connection, records)


def unreadable(check: str, fault: StoreUnavailable) -> Finding:
    return Finding(check, fault.detail, move=RESTORE)
