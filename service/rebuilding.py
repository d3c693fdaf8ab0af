"""Rebuilding: another generation of vectors and Chroma directories, on a data directory that nobody serves
(`alone`) or inside the server that owns it (`LiveRebuild`)."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from models.embedding import EmbeddingError, Encoder
from models.errors import ConflictState, invalid
from models.rebuild_order import RebuildOrder
from models.scope import Scope
from service.settings import Settings
from stores import generations
from stores.embedding_run import EmbeddingRun, sample
from stores.generations import Generation, earlier
from stores.ledger import Ledger
from stores.outlook import look, todo
from stores.rebuild import Plan, Rebuild, Report
from stores.refill import Shards
from stores.vdb import Vdb, shard_of
from stores.writer import FINGERPRINT, Committed

log = structlog.get_logger()

Document = dict[str, Any]
Load = Callable[[str], Encoder]
"""The encoder of a model, by its name or path; takes seconds. Raises EmbeddingError."""

SAMPLE = 32  # texts that an estimate embeds
FILL_RATE = 1_000  # memories a second that Chroma takes at the least, for an estimate


async def _at_once() -> None:
    """Nobody else wants the processor."""


@dataclass(slots=True)
class Progress:
    """How far it is: `done` of `total` in a stage, `rate` a second there."""

    stage: str = "starting"
    done: int = 0
    total: int = 0
    told: Callable[["Progress"], None] = lambda progress: None
    _first: tuple[float, int] = field(default_factory=lambda: (time.monotonic(), 0))

    def tell(self, stage: str, done: int, total: int) -> None:
        if stage != self.stage:
            self._first = time.monotonic(), done
        self.stage, self.done, self.total = stage, done, total
        self.told(self)

    def document(self) -> Document:
        started, first = self._first
        elapsed = time.monotonic() - started
        rate = (self.done - first) / elapsed if elapsed > 0 else 0.0
        left = (self.total - self.done) / rate if rate else None
        return {
            "stage": self.stage,
            "done": self.done,
            "total": self.total,
            "rate": round(rate, 1),
            "seconds_left": None if left is None else round(left),
        }


@dataclass(frozen=True, slots=True)
class Site:
    """Where a rebuild happens. `model` is the configured one; `switched` is called, with the encoder if there
    is one, in the moment from which on the other generation counts; `turn` and `pause` as in `Rebuild`."""

    ledger: Ledger
    vdb: Vdb
    shards: Shards
    model: str
    load: Callable[[str], Awaitable[Encoder]]
    turn: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext
    switched: Callable[[Encoder | None, str], None] = lambda encoder, fingerprint: None
    pause: Callable[[], Awaitable[None]] = _at_once


async def carry_out(site: Site, order: RebuildOrder, progress: Progress) -> Document:
    """Do what is asked. Raises InvalidArgument, ConflictState, StoreUnavailable, VdbUnavailable, ModelUseless
    or VerificationFailed; then nothing has changed but vectors that the next rebuild goes on from."""
    order.check()
    if order.action == "prune":
        return await _prune(site)
    plan, encoder = await (_way_back(site) if order.action == "rollback" else _plan(site, order))
    if order.dry_run:
        return await _estimate(site, plan, encoder)
    rebuild = Rebuild(
        site.ledger,
        site.vdb,
        site.shards,
        plan,
        encoder,
        told=progress.tell,
        turn=site.turn,
        switched=lambda: site.switched(encoder, plan.fingerprint),
        pause=site.pause,
    )
    report = await rebuild.run()
    log.info("rebuilt", action=order.action, memories=report.placed, embedded=report.embedded)
    return _document(site, order, plan, report)


async def _encoder(site: Site, model: str) -> Encoder:
    try:
        return await site.load(model)
    except EmbeddingError as fault:
        raise invalid("model", f"{model} can't be used: {fault}") from fault


async def _plan(site: Site, order: RebuildOrder) -> tuple[Plan, Encoder | None]:
    stored = await asyncio.to_thread(site.ledger.setting, FINGERPRINT)
    scopes = await asyncio.to_thread(_scopes, site, order.scope)
    if order.from_vectors:
        if stored is None:
            raise ConflictState("The ledger has no vectors yet: leave --from-vectors out.")
        model = await asyncio.to_thread(site.ledger.setting, generations.MODEL)
        layers = frozenset[str](order.layers)
        return Plan(stored, model, embed=False, scopes=scopes, layers=layers), None
    model = order.model or site.model
    encoder = await _encoder(site, model)
    if encoder.fingerprint != stored and (scopes or order.layers):
        raise invalid(
            "scope" if scopes else "layers",
            f"goes with the model of the present vectors only ({stored}), because vectors of two models "
            f"never meet; {model} is {encoder.fingerprint}. Leave it out to embed everything",
        )
    return (
        Plan(
            encoder.fingerprint,
            model,
            scopes=scopes,
            layers=frozenset(order.layers),
            only_missing=order.only_missing,
        ),
        encoder,
    )


def _scopes(site: Site, wanted: list[str]) -> frozenset[Scope]:
    known = {
        f"{scope.product}/{scope.agent}": scope for some in site.shards.scopes().values() for scope in some
    }
    for name in wanted:
        if name not in known:
            raise invalid("scope", f"{name[:200]!r} has no memories; write PRODUCT/AGENT")
    return frozenset(known[name] for name in wanted)


async def _way_back(site: Site) -> tuple[Plan, Encoder | None]:
    """Without the earlier model, too: then what it has not embedded follows when it is there."""
    before = await asyncio.to_thread(earlier, site.ledger)
    if before is None or before.fingerprint is None:
        raise ConflictState("There is no earlier generation to go back to: none was made, or it was pruned.")
    model = before.model or before.fingerprint.rsplit(":", 4)[0]
    encoder: Encoder | None = None
    try:
        encoder = await site.load(model)
    except EmbeddingError as fault:
        log.warning("the earlier model is not there", model=model, fault=str(fault))
    if encoder is not None and encoder.fingerprint != before.fingerprint:
        encoder = None
    return Plan(before.fingerprint, model, back=before), encoder


async def _estimate(site: Site, plan: Plan, encoder: Encoder | None) -> Document:
    stored = await asyncio.to_thread(site.ledger.setting, FINGERPRINT)
    missing = plan.only_missing or plan.fingerprint != stored or plan.back is not None
    wanted = await asyncio.to_thread(
        todo, site.ledger, plan.fingerprint, plan.scopes, plan.layers, missing=missing and plan.embed
    )
    now = await asyncio.to_thread(look, site.ledger, plan.fingerprint)
    rate = None
    embed = len(wanted.ids) if encoder is not None else 0
    if encoder is not None and wanted.ids:
        found = await asyncio.to_thread(site.ledger.find_all, list(sample(wanted.ids, SAMPLE)))
        run = EmbeddingRun(site.ledger, encoder, site.pause, lambda count: None)
        started = time.monotonic()
        await run.vectors({id: memory.content for id, memory in found.items()})
        rate = len(found) / (time.monotonic() - started)
    shards = {shard_of(*scope) for scope in wanted.scopes}
    if not (plan.scopes or plan.layers or plan.only_missing) or plan.fingerprint != stored:
        shards |= now.shown.keys()
    place = sum(len(now.shown.get(shard, ())) for shard in shards) + (embed if missing else 0)
    seconds = (embed / rate if rate else 0) + place / FILL_RATE
    return {
        "dry_run": True,
        "model": plan.model,
        "fingerprint": plan.fingerprint,
        "embed": embed,
        "place": place,
        "shards": len(shards),
        "rate": None if rate is None else round(rate, 1),
        "estimate_seconds": round(seconds, 1),
    }


async def _prune(site: Site) -> Document:
    """Delete the earlier generation: its directories, and every vector of another fingerprint."""
    stored = await asyncio.to_thread(site.ledger.setting, FINGERPRINT)
    before = await asyncio.to_thread(earlier, site.ledger)
    directories = set(site.shards.kept().values())
    await asyncio.wrap_future(site.ledger.submit(generations.forget_previous))
    await site.shards.switch({}, {})
    count = 0
    for ids in await asyncio.to_thread(lambda: list(generations.stale_ids(site.ledger, stored))):
        forget = partial(generations.forget_vectors, ids=ids, fingerprint=stored)
        count += await asyncio.wrap_future(site.ledger.submit(forget))
    current = {site.shards.name(shard) for shard in site.shards.scopes()}
    return {
        "action": "prune",
        "fingerprint": stored,
        "pruned": None if before is None else before.fingerprint,
        "vectors": count,
        "directories": len(directories - current),
    }


def _document(site: Site, order: RebuildOrder, plan: Plan, report: Report) -> Document:
    findings, before = report.findings, report.before
    return {
        "action": order.action,
        "model": plan.model,
        "fingerprint": plan.fingerprint,
        "previous": _shown(before),
        "embedded": report.embedded,
        "chunks": report.chunks,
        "placed": report.placed,
        "shards": report.shards,
        "seconds": round(report.seconds, 3),
        "embed_seconds": round(report.embed_seconds, 3),
        "fill_seconds": round(report.fill_seconds, 3),
        "verified": {
            "memories": findings.memories,
            "unreached": findings.unreached,
            "lowest_cosine": findings.lowest_cosine,
            "overlap": findings.overlap,
        },
        "failed": report.failed,
        "next": _next(site, plan),
    }


def _shown(before: Generation) -> Document:
    return {"fingerprint": before.fingerprint, "model": before.model}


def _next(site: Site, plan: Plan) -> str | None:
    if plan.model is None or plan.model == site.model:
        return None
    return (
        f"Set embedding.model to {plan.model} (config.yaml, or BRAIN_EMBEDDING__MODEL): else the next start "
        f"would serve by words only, because it would load {site.model}."
    )


def _acknowledge(committed: list[Committed]) -> None:
    """Nothing is held in memory that would have to be brought in step first."""
    for write in committed:
        write.future.set_result(write.value)


async def alone(
    settings: Settings, order: RebuildOrder, progress: Progress, *, load: Load, clock: Callable[[], int]
) -> Document:
    """`carry_out` on a data directory whose lock the caller holds. `clock` gives epoch ms."""
    directory = settings.data_directory
    ledger = Ledger(directory / "ledger.sqlite3", clock, _acknowledge)
    vdb = Vdb(directory / "vdb")
    shards = Shards(ledger, vdb, directory / "vdb")
    try:
        await asyncio.to_thread(ledger.open)
        await asyncio.to_thread(shards.open)
        vdb.start()
        site = Site(
            ledger, vdb, shards, settings.embedding.model, lambda model: asyncio.to_thread(load, model)
        )
        return await carry_out(site, order, progress)
    finally:
        await vdb.close()
        await asyncio.to_thread(ledger.stop_writing)
        await asyncio.to_thread(ledger.close)
