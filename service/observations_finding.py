"""Search and timeline of the observations view: which rows there are, in few words."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from models.answers import Reply
from models.classification import classify
from models.layers import Kind
from models.memory import Memory
from models.observation_requests import ObservationTimeline, SearchObservations
from models.observation_view import SOURCES, Source, in_project, type_of
from models.requests import SearchMemories
from models.scope import Caller
from service import finding
from service.brain import Brain
from service.corpus import FilteredSearch
from service.finding import Finding
from service.moment import moment
from service.observations import check_found
from service.observations_shown import Shown, compact
from stores.observations import Row, beside, enrich, find_rows
from stores.suppressions import Suppressions

Check = Callable[[Memory], bool]


async def search(brain: Brain, caller: Caller, request: SearchObservations) -> Reply:
    """The best rows, each with what `get_observations` takes. Raises StoreUnavailable."""
    hidden = await asyncio.to_thread(_hidden, brain, caller, request.include_suppressed)
    checks = _checks(request.project, request.type, hidden)
    found = await _found(brain, caller, request.query, request.source, checks, request.limit)
    hits = found.result.hits
    rows = await asyncio.to_thread(_classified, brain, caller, [hit.memory for hit in hits])
    results = [
        {**row, "score": hit.score, "matched_by": list(hit.matched_by)}
        for row, hit in zip(rows, hits, strict=True)
    ]
    return Reply({"results": results} | _degraded(found))


async def timeline(brain: Brain, caller: Caller, request: ObservationTimeline) -> Reply:
    """What stands before and after an anchor. Raises ObservationNotFound or StoreUnavailable."""
    checks = _checks(request.project, None, await asyncio.to_thread(_hidden, brain, caller, False))

    def visible(memory: Memory) -> bool:
        return all(check(memory) for check in checks)

    if request.query is None:
        assert request.id is not None
        anchor = await asyncio.to_thread(_anchor, brain, caller, request.source, request.id, visible)
    else:
        found = await _found(brain, caller, request.query, request.source, checks, 1)
        if not found.result.hits:
            return Reply({"anchor": None, "before": [], "after": []})
        anchor = found.result.hits[0].memory

    def read() -> dict[str, Any]:
        with brain.ledger.snapshot() as connection:
            before = beside(connection, caller, anchor, "before", request.before, visible)
            after = beside(connection, caller, anchor, "after", request.after, visible)
        shown = _classified(brain, caller, [anchor, *before, *after])
        cut = 1 + len(before)
        return {"anchor": shown[0], "before": shown[1:cut], "after": shown[cut:]}

    return Reply(await asyncio.to_thread(read))


async def _found(
    brain: Brain,
    caller: Caller,
    query: str,
    source: Source | None,
    checks: Sequence[Check],
    limit: int,
) -> Finding:
    kinds: list[Kind] = list(SOURCES) if source is None else [source]
    wanted = SearchMemories(query=query, kinds=kinds, limit=limit)
    if checks:  # each costs a look at every row
        one = checks[0] if len(checks) == 1 else lambda memory: all(check(memory) for check in checks)
        wanted = FilteredSearch(query=query, kinds=kinds, limit=limit).admitting(one)
    async with moment(brain, caller, None) as at:
        return await finding.find(brain, at, wanted)


def _checks(project: str | None, type: str | None, hidden: Suppressions) -> list[Check]:
    """What a row must pass to be shown; nothing of what always holds."""
    checks: list[Check] = []
    if project is not None:
        checks.append(lambda memory: in_project(memory, project))
    if type is not None:
        checks.append(lambda memory: type_of(memory) == type)
    if hidden.targets:
        checks.append(lambda memory: not hidden.hide(memory))
    return checks


def _degraded(found: Finding) -> dict[str, Any]:
    reason = found.degraded
    return {"degraded": reason is not None} | ({"degraded_reason": reason} if reason else {})


def _hidden(brain: Brain, caller: Caller, shown: bool) -> Suppressions:
    if shown:
        return Suppressions()
    with brain.ledger.snapshot() as connection:
        return Suppressions.read(connection, caller.scope, caller.user)


def _anchor(
    brain: Brain, caller: Caller, source: Source, number: int, visible: Callable[[Memory], bool]
) -> Memory:
    with brain.ledger.snapshot() as connection:
        rows = find_rows(connection, caller, source, [number])
    shown = [row for row in rows if row.memory.state.status != "quarantined" or source == "memory"]
    shown = [row for row in shown if visible(row.memory)]
    check_found(source, [number], shown)
    return shown[0].memory


def _classified(brain: Brain, caller: Caller, found: Sequence[Memory]) -> list[Shown]:
    """The rows in few words, memories with their class."""
    numbers = [memory.number for memory in found if memory.kind == "memory"]
    with brain.ledger.snapshot() as connection:
        rows: list[Row] = find_rows(connection, caller, "memory", numbers)
        current = {one.row.memory.number: one for one in enrich(connection, caller, rows)}
    now = brain.clock()

    def shown(memory: Memory) -> Shown:
        if memory.kind != "memory":
            return compact(memory)
        one = current.get(memory.number)
        if one is None:
            verdict = classify(None, now, (), rival=False)
        else:
            verdict = classify(one.row.memory, now, one.readable, rival=one.rival)
        return compact(memory) | {"classification": verdict.name}

    return [shown(memory) for memory in found]
