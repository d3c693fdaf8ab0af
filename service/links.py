"""The use cases that link memories: set a link, take it away, follow links."""

from collections.abc import Callable

from models.answers import Reply
from models.errors import invalid
from models.scope import Caller
from models.view_requests import GetRelated, Link
from service.brain import Brain
from service.fields import fact_fields, link_fields, memory_fields
from service.moment import Present
from service.once import once, replayed
from service.walk import Walk
from stores import links
from stores.acts import Act
from stores.changes import Edge
from stores.writer import Transaction


async def link(brain: Brain, caller: Caller, request: Link) -> Reply:
    return await _write(brain, caller, request, "brain_memory_link", links.link, "created")


async def unlink(brain: Brain, caller: Caller, request: Link) -> Reply:
    return await _write(brain, caller, request, "brain_memory_unlink", links.unlink, "removed")


async def related(brain: Brain, caller: Caller, request: GetRelated) -> Reply:
    start, _ = await brain.read(caller, request.memory_id)
    walk = Walk(Present(brain, caller), frozenset(request.types), request.limit)
    await walk.go([start], request.hops)
    now = brain.clock()
    nodes = [{**memory_fields(memory, "graph", now), "hops": hops} for memory, hops in walk.found]
    asserted = [(start, 0), *walk.found]
    body = {
        "nodes": nodes,
        "edges": [link_fields(edge) for edge in walk.edges],
        "facts": [
            {"memory_id": memory.memory_id, **fact_fields(fact)}
            for memory, _ in asserted
            for fact in memory.facts
        ],
        "truncated": walk.truncated,
    }
    return Reply(body)


async def _write(
    brain: Brain,
    caller: Caller,
    request: Link,
    operation: str,
    act: Callable[[Act, Transaction, Edge], bool],
    outcome: str,
) -> Reply:
    if request.from_id == request.to_id:
        raise invalid("to_id", "must name another memory than from_id")
    edge = Edge(request.from_id, request.type, request.to_id)
    who = Act(caller, operation, brain.meaning.fingerprint())

    def write(transaction: Transaction) -> dict[str, bool]:
        return {outcome: act(who, transaction, edge)}

    done, again = await once(brain, caller, operation, request, write)
    return Reply(link_fields(edge) | done | replayed(again))
