"""`get_observations`: rows by their ids, in full, and the counters of who fetched what."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, assert_never

import structlog

from models.answers import Reply
from models.errors import ObservationNotFound, StoreUnavailable, UnsupportedSource
from models.memory import Memory
from models.observation_requests import GetObservations
from models.observation_view import SOURCES, Source, in_project, made_at, seconds, updated_at
from models.scope import Caller
from service.brain import Brain
from service.observations_shown import memory_detail, observation_detail, summary_detail
from stores import accesses
from stores.observations import Enriched, Row, enrich, find_rows
from stores.suppressions import Suppressions

log = structlog.get_logger()

MAX_NAMED = 100  # of a value that is shown back


async def get(brain: Brain, caller: Caller, request: GetObservations) -> Reply:
    """The details of every row that is asked for, or none: raises ObservationNotFound, UnsupportedSource, or
    StoreUnavailable."""
    source = _source(request.source)
    rows = await asyncio.to_thread(_fetch, brain, caller, source, request) if request.ids else []
    check_found(source, request.ids, rows)
    if source == "memory":
        details = await _memories(brain, caller, rows, request)
    elif source == "observation":
        details = await _observations(brain, rows)
    elif source == "session_summary":
        details = [summary_detail(row.memory) for row in sorted(rows, key=_made, reverse=True)]
    else:
        assert_never(source)
    return Reply({"details": details})


def check_found(source: Source, ids: Sequence[int], rows: Sequence[Row]) -> None:
    """Raises ObservationNotFound, with every id that has no row."""
    missing = sorted(set(ids) - {row.memory.number for row in rows})
    if missing:
        raise ObservationNotFound(f"{source} id(s) not found: {missing}")


def _source(name: str | None) -> Source:
    if name is None:
        return "memory"
    if name not in SOURCES:
        accepted = ", ".join(f"'{one}'" for one in SOURCES)
        raise UnsupportedSource(f"source {name[:MAX_NAMED]!r} is not supported; use one of {accepted}.")
    return name


def _fetch(brain: Brain, caller: Caller, source: Source, request: GetObservations) -> list[Row]:
    """Those that the caller may see, of the project that is asked for."""
    with brain.ledger.snapshot() as connection:
        rows = find_rows(connection, caller, source, request.ids)
        hidden = _hidden(connection, caller, request) if source == "memory" else Suppressions()
    return [
        row
        for row in rows
        if in_project(row.memory, request.project)
        and (source == "memory" or row.memory.state.status != "quarantined")
        and not hidden.hide(row.memory)
    ]


async def _memories(
    brain: Brain, caller: Caller, rows: list[Row], request: GetObservations
) -> list[dict[str, Any]]:
    """With everything that is computed; then the access, which must succeed."""
    newest = sorted(rows, key=_updated, reverse=True)
    enriched = await asyncio.to_thread(_enriched, brain, caller, newest, request)
    now = brain.clock()
    details = [memory_detail(one, now, request.project) for one in enriched]
    if rows:
        await brain.write(partial(accesses.record, memory_ids=[row.memory.memory_id for row in rows]))
    return details


def _enriched(brain: Brain, caller: Caller, rows: list[Row], request: GetObservations) -> list[Enriched]:
    with brain.ledger.snapshot() as connection:
        hidden = _hidden(connection, caller, request)

        def trace(memory: Memory) -> Callable[[Memory], bool] | None:
            # A global memory that is seen from another project must not show what was done in its own.
            at_home = request.project in (None, memory.project)
            return (lambda one: not hidden.hide(one)) if at_home else None

        return enrich(connection, caller, rows, trace)


async def _observations(brain: Brain, rows: list[Row]) -> list[dict[str, Any]]:
    """With the access of before; that of now is recorded as well as it can be."""
    ids = [row.memory.memory_id for row in rows]
    before = await asyncio.to_thread(_last_accessed, brain, ids)
    if rows:
        try:
            await brain.write(partial(accesses.record, memory_ids=ids))
        except StoreUnavailable as fault:
            log.warning("an access to observations was not recorded", count=len(ids), cause=fault.detail)
    return [
        observation_detail(row.memory, before.get(row.memory.memory_id))
        for row in sorted(rows, key=_made, reverse=True)
    ]


def _last_accessed(brain: Brain, memory_ids: list[str]) -> dict[str, int]:
    with brain.ledger.snapshot() as connection:
        return accesses.last_accessed(connection, memory_ids)


def _hidden(connection: Any, caller: Caller, request: GetObservations) -> Suppressions:
    if request.include_suppressed:
        return Suppressions()
    return Suppressions.read(connection, caller.scope, caller.user)


def _made(row: Row) -> tuple[int, int]:
    return seconds(made_at(row.memory)), row.memory.number


def _updated(row: Row) -> tuple[int, int]:
    return seconds(updated_at(row.memory, row.changed_at)), row.memory.number
