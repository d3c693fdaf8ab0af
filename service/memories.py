"""The use cases of the brain view that read: get, search, list, count."""

import asyncio
from types import NoneType
from typing import Any, cast

from models.answers import Reply
from models.requests import GetMemory, SearchMemories
from models.scope import Caller
from models.view_requests import GetStats, ListMemories
from service import finding
from service.brain import Brain, Source
from service.cursors import cursor_of, mark_of, read_cursor
from service.fields import entity_tag, memory_fields
from service.inclusion import included
from service.moment import moment
from service.views import read_as_of
from stores.chronicle import event_at
from stores.generations import LAST
from stores.listing import Listing


async def get(brain: Brain, caller: Caller, request: GetMemory) -> Reply:
    now = brain.clock()
    source: Source = "graph"
    if request.as_of is None:
        memory, source = await brain.read(caller, request.memory_id)
    else:
        now = min(now, request.as_of)  # what the clock lets us infer is as of then, too
        memory = await read_as_of(brain, caller, request.memory_id, now)
    body = cast("dict[str, Any]", memory_fields(memory, source, now))
    if request.include:
        body |= await included(brain, caller, memory, request.include, now)
    return Reply(body, etag=entity_tag(memory, now))


async def search(brain: Brain, caller: Caller, request: SearchMemories) -> Reply:
    async with moment(brain, caller, request.as_of) as at:
        found = await finding.find(brain, at, request)
        hits = await finding.hits(brain, at, found)
    body = {
        "results": hits,
        "total_candidates": found.result.candidates,
        "abstained": not hits,
        "degraded": found.degraded is not None,
        **({"degraded_reason": found.degraded} if found.degraded else {}),
    }
    return Reply(body)


async def page(brain: Brain, caller: Caller, request: ListMemories) -> Reply:
    equal = {
        "layer": request.layer,
        "source_authority": request.authority,
        "kind": request.kind,
        "session_id": request.session_id,
    }
    listing = Listing(
        caller.scope,
        caller.user,
        tuple((name, value) for name, value in equal.items() if value is not None),
        request.status,
        request.tag,
        request.updated_since,
        request.order == "newest",
        request.as_of,
    )
    after, at = read_cursor(request.cursor, mark_of(listing), (int, (int, NoneType))) or (None, None)
    now = brain.clock()
    if request.as_of is not None:
        now = min(now, request.as_of)
        # Every page stands on the first one's event: more may still happen in that millisecond.
        at = at if at is not None else await asyncio.to_thread(event_at, brain.ledger, now)
    found, total = await asyncio.to_thread(listing.page, brain.ledger, after, request.limit + 1, at)
    shown = found[: request.limit]
    more = len(found) > request.limit
    body = {
        # From memory where it is there, else as the record just loaded: the graph's, either way.
        "memories": [memory_fields(memory, "graph", now) for memory in shown],
        "next_cursor": cursor_of(mark_of(listing), shown[-1].seq, at) if more else None,
        "total": total,
    }
    return Reply(body)


async def stats(brain: Brain, caller: Caller, request: GetStats) -> Reply:
    listing = Listing(caller.scope, caller.user)

    def count() -> dict[str, Any]:
        by = {
            "layers": listing.count(brain.ledger, "layer"),
            "statuses": listing.count(brain.ledger, "status"),
            "authorities": listing.count(brain.ledger, "source_authority"),
            "kinds": listing.count(brain.ledger, "kind"),
        }
        last = brain.ledger.setting(LAST)
        return {
            "total": sum(by["kinds"].values()),
            **by,
            "index_lag": brain.applier.lag(caller.scope),
            "last_rebuild": None if last is None else int(last),
        }

    encoder = brain.embedder.encoder
    body = {
        **await asyncio.to_thread(count),
        "model": brain.settings.embedding.model if encoder is None else encoder.name,
        "dimensions": None if encoder is None else encoder.dimensions,
        "fingerprint": brain.meaning.fingerprint(),
    }
    return Reply(body)
