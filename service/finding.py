"""What a search finds, and what it shows around it: the versions behind a head, the turns beside a hit, the
memories that are linked to hits."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from models.answers import Explanation, Hit, LinkFields, MemoryFields
from models.layers import Status
from models.links import EdgeType
from models.memory import Memory
from models.requests import SearchMemories
from service import recall
from service.brain import Brain
from service.corpus import passes
from service.fields import link_fields, memory_fields
from service.moment import Moment
from service.plan import Plan
from service.trust import RECIPES, Recipe
from service.walk import MAX_VISITS, Walk
from stores.changes import Edge
from stores.graph import MemoryGraph
from stores.resident import ResidentPartition

MAX_CHAIN = 200  # versions behind a head that are named
STEP = 0.5  # what a linked memory takes of the score for each link that it is away

# Who was in the same session says little; `context` has the turns beside a hit.
FOLLOWED: frozenset[EdgeType] = frozenset(
    {
        "next",
        "supersedes",
        "derived_from",
        "evidence_for",
        "conflicts_with",
        "same_origin",
        "asserts",
        "updates",
        "explains",
        "related",
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """`request` is what was searched for; `degraded` says which part could not take part."""

    request: SearchMemories
    result: recall.Result
    degraded: str | None


async def find(brain: Brain, at: Moment, request: SearchMemories, recipe: Recipe | None = None) -> Finding:
    """Search what is reached at that moment, by the recipe of the request or another one. Raises
    StoreUnavailable."""
    if request.include_history:
        wanted: list[Status] = list(dict.fromkeys((*request.statuses, "superseded")))
        request = request.model_copy(update={"statuses": wanted})
    partitions = await _reached(brain, at, request.query)
    actors = sorted({actor for partition in partitions for actor in partition.actors})
    plan = Plan.of(request, actors, brain.weights, recipe or RECIPES[request.ranking], at.now)
    meaning = await brain.meaning.of_query(plan.bare)
    # Taken after the embedding: what was written meanwhile is found too.
    snapshots = [partition.snapshot(plan.index_terms) for partition in partitions if len(partition)]
    result = recall.Result((), 0)
    if snapshots:
        # In a thread: a few milliseconds, and it reads word pieces from the ledger.
        tokens = brain.meaning.stored_tokens
        result = await asyncio.to_thread(recall.search, plan, snapshots, meaning, tokens)
    degraded = None
    if meaning is None:
        degraded = brain.meaning.problem() or "the query could not be embedded"
    elif result.waiting:
        degraded = f"{result.waiting} memories are not embedded yet and were looked at by words only"
    return Finding(request, result, degraded)


async def _reached(brain: Brain, at: Moment, query: str) -> Sequence[ResidentPartition]:
    """What is reached. While it has to be loaded the query is embedded: what is remembered of it is what is
    asked for next, unless it names a speaker."""
    loading = asyncio.create_task(at.partitions())
    loaded, _ = await asyncio.wait({loading}, timeout=0)
    if loaded:
        return loading.result()
    partitions, _ = await asyncio.gather(loading, brain.meaning.of_query(query))
    return partitions


async def hits(brain: Brain, at: Moment, found: Finding) -> list[Hit]:
    """The results as they are answered, best first. Raises StoreUnavailable."""
    request = found.request
    ranked = await _with_linked(at, found) if request.hops else found.result.hits
    shown = [_hit(one, at.now, request.explain) for one in ranked]
    for memory, hit in zip((one.memory for one in ranked), shown, strict=True):
        if memory.is_latest and memory.state.supersedes:
            hit["chain"] = _chain(brain, at, memory)
        if memory.state.standing.conflicts:
            hit["conflicts"] = list(memory.state.standing.conflicts)
        if request.context:
            graph = await at.graph(memory.partition)
            before, after = (
                [memory_fields(turn, "graph", at.now) for turn in turns]
                for turns in beside(graph, memory, request.context, request.statuses)
            )
            hit["context"] = {"before": before, "after": after}
    return shown


def is_relevant(hit: recall.Found) -> bool:
    """Whether a hit would be an answer if it stood alone. Weaker ones fill the places behind those that
    are."""
    return hit.explanation["relevance"] >= hit.explanation["floor"]


def beside(
    graph: MemoryGraph, memory: Memory, number: int, statuses: Sequence[Status]
) -> tuple[list[Memory], list[Memory]]:
    """The turns before and after a memory in its session, `number` of each at the most, in the order of the
    session; those of other statuses are passed over."""
    sides = []
    for side in (0, 1):
        turns: list[Memory] = []
        at: Memory | None = memory
        while len(turns) < number and at is not None:
            neighbour = graph.neighbours(at)[side] if graph.memory(at.memory_id) else None
            at = graph.memory(neighbour) if neighbour else None
            if at is not None and at.state.status in statuses:
                turns.append(at)
        sides.append(turns)
    return sides[0][::-1], sides[1]


def _chain(brain: Brain, at: Moment, head: Memory) -> list[str]:
    """The ids of all that led up to a head, newest first. Those that are hidden have a place in it as well:
    an id shows no text."""
    found: dict[str, int] = {}
    asked = list(head.state.supersedes)
    while asked and len(found) < MAX_CHAIN:
        readable = [memory for id in asked if (memory := at.memory(id)) is not None]
        seen = {memory.memory_id for memory in readable}
        hidden = brain.ledger.find_all([id for id in asked if id not in seen])
        level = [*readable, *(memory for memory in hidden.values() if memory.partition == head.partition)]
        found |= {memory.memory_id: memory.seq for memory in level}
        asked = [id for memory in level for id in memory.state.supersedes if id not in found]
    newest_first = sorted(found, key=lambda id: found[id], reverse=True)
    return newest_first[:MAX_CHAIN]


async def _with_linked(at: Moment, found: Finding) -> Sequence[recall.Found]:
    """The hits and, after them, what is linked to the best of them and passes the filters, nearest first. Of
    `limit`, half is kept for what is linked, as far as there is any: the tail of a search says the least."""
    request, hits = found.request, found.result.hits
    starts = [hit for hit in hits[: (request.limit + 1) // 2] if is_relevant(hit)]
    if not starts:
        return hits
    walk = Walk(at, FOLLOWED, MAX_VISITS)
    await walk.go([hit.memory for hit in starts], request.hops)
    passing = (reached for reached in walk.found if passes(reached[0], request))
    nearest = list(islice(passing, request.limit // 2))
    linked_ids = {memory.memory_id for memory, _ in nearest}
    others = [hit for hit in hits if hit.memory.memory_id not in linked_ids]
    kept = others[: request.limit - len(nearest)]
    ranked = {hit.memory.memory_id: hit for hit in hits}
    linked: list[recall.Found] = []
    score = kept[-1].score
    for memory, hops in nearest:
        path = walk.path(memory.memory_id)
        start = ranked.get(path[0].from_id) or ranked[path[0].to_id]
        score = min(score, round(start.score * STEP**hops, 6))  # it never rises down the list
        linked.append(_by_graph(ranked.get(memory.memory_id), memory, score, path, start))
    return [*kept, *linked]


def _by_graph(
    hit: recall.Found | None, memory: Memory, score: float, path: Sequence[Edge], start: recall.Found
) -> recall.Found:
    """A linked memory as a result; `hit` when the search found it as well."""
    nothing: Explanation = {
        "dense": None,
        "words": 0.0,
        "identifier": 0.0,
        "terms": {},
        "fused": 0.0,
        "relevance": 0.0,
        "floor": start.explanation["floor"],
        "weights": start.explanation["weights"],
    }
    explanation = (hit.explanation if hit else nothing).copy()
    explanation["path"] = [cast("LinkFields", link_fields(edge)) for edge in path]
    return recall.Found(memory, score, (*(hit.matched_by if hit else ()), "graph"), explanation)


def _hit(found: recall.Found, now: int, explain: bool) -> Hit:
    fields: MemoryFields = memory_fields(found.memory, "graph", now)
    hit: Any = {**fields, "score": found.score, "matched_by": list(found.matched_by)}
    if explain:
        hit["explain"] = found.explanation
    return cast("Hit", hit)
