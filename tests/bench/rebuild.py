"""Rebuild: embedding beside the raw encoder on the same texts, and filling Chroma from vectors alone.

The raw encoder takes the texts sorted by length, so that little is padded; a rebuild reads them from the
ledger, embeds and commits them. Both run in this process, in turns, one thread of the model each."""

import asyncio
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import floors
from measure import Figure, at_least
from server import running
from texts import sentences

from models.rebuild_order import RebuildOrder
from service import app
from service.rebuilding import Progress, alone
from service.settings import Settings

COUNT = 2_000
ROUNDS = 3


def figures() -> list[Figure]:
    """With the real model. Needs a free directory only."""
    texts = sentences(COUNT, 9_000)
    model = floors.Models()
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as scratch:
        data = Path(scratch)
        with running(data) as service:
            for start in range(0, COUNT, 1_000):
                some = texts[start : start + 1_000]
                service.add("agent", [{"content": text} for text in some], len(some))
            service.settle()
        ours, raw = [], []
        for number in range(ROUNDS):
            for mine in (True, False) if number % 2 == 0 else (False, True):
                if mine:
                    ours.append(_embed(data, model))
                else:
                    raw.append(COUNT / floors.raw_encode(model, texts))
        fills = [_fill(data) for _ in range(ROUNDS)]
    fill, whole = (statistics.median(rates) for rates in zip(*fills, strict=True))
    ratio = statistics.median(a / b for a, b in zip(ours, raw, strict=True))
    embed = statistics.median(ours)
    load = f"load {os.getloadavg()[0]:.1f}"
    return [
        at_least(
            f"rebuild of {COUNT:,} memories: embedding beside raw encode",
            ratio,
            0.9,
            f"{embed:.0f} and {statistics.median(raw):.0f} a second, {load}",
        ),
        Figure(
            "refill of Chroma from the ledger's vectors, verified and switched to",
            "≥ 1,000 a second",
            f"**{whole:,.0f}** a second ({load})",
            whole >= 1_000,
        ),
        at_least(
            "the filling of it beside embedding", fill / embed, 10, f"{fill:,.0f} and {embed:.0f} a second"
        ),
    ]


def _embed(data: Path, model: Any) -> float:
    """Memories a second that are embedded and committed."""
    report = _rebuilt(data, model, {})
    return float(report["embedded"]) / float(report["embed_seconds"])


def _fill(data: Path) -> tuple[float, float]:
    """Memories a second from the ledger into directories, with every version counted there; and until they
    are verified and serve. The start of the process that holds Chroma, a second, is left out."""
    report = _rebuilt(data, None, {"from_vectors": True})
    whole = float(report["seconds"]) - float(report["embed_seconds"])
    return report["placed"] / report["fill_seconds"], report["placed"] / whole


def _rebuilt(data: Path, model: Any, fields: dict[str, Any]) -> dict[str, Any]:
    settings = Settings.model_validate({"data": {"directory": str(data)}})
    order = RebuildOrder.model_validate({"scope": [], "layers": [], **fields})
    with app.owning(settings):
        return asyncio.run(alone(settings, order, Progress(), load=lambda _: model, clock=app.now))
