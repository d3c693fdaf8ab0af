"""The use case that assembles what is known for a question: one block, ready for a prompt."""

import asyncio
from collections.abc import Sequence
from typing import Any

from models.answers import Reply
from models.context_requests import AssembleContext
from models.memory import Memory
from models.requests import SearchMemories
from models.scope import Caller
from service import finding
from service.brain import Brain
from service.moment import Moment, Present
from service.prompt import Candidate, Count, Line, compose, estimate
from service.views import profile_lists

ESTIMATE = "estimate"


async def context(brain: Brain, caller: Caller, request: AssembleContext) -> Reply:
    at = Present(brain, caller)
    search = SearchMemories(query=request.query, limit=request.limit, ranking=request.ranking)
    found = await finding.find(brain, at, search)
    # What only fills the places of a search would only take room here.
    hits = [hit.memory for hit in found.result.hits if finding.is_relevant(hit)]
    known = await _profile(brain, caller, hits) if request.profile else []
    best = await _candidates(at, hits)
    profile = await _candidates(at, known[: request.limit])
    tokenizer, count = _tokenizer(brain)
    # In a thread: to count the tokens of a hundred long memories takes a while.
    block = await asyncio.to_thread(compose, best, profile, request.token_budget, count)
    body = {
        "block": block.text,
        "tokens": block.tokens,
        "tokenizer": tokenizer,
        "chosen": [{**_named(line), "quoted": line.quoted} for line in block.lines],
        "dropped": [{**_named(line), "reason": reason} for line, reason in block.dropped],
        "abstained": not hits,
        "truncated": len(known) > request.limit,
        "degraded": found.degraded is not None,
        **({"degraded_reason": found.degraded} if found.degraded else {}),
    }
    return Reply(body)


async def _profile(brain: Brain, caller: Caller, hits: Sequence[Memory]) -> list[Memory]:
    """What is known of the user for good, best first; what the search found stands there."""
    lists = await profile_lists(brain, caller)
    found = {memory.memory_id for memory in hits}
    in_order = (memory for name in ("l0", "l4", "pinned", "l6") for memory in lists[name])
    once = {memory.memory_id: memory for memory in in_order}
    return [memory for memory_id, memory in once.items() if memory_id not in found]


async def _candidates(at: Moment, memories: Sequence[Memory]) -> list[Candidate]:
    """Each with the other sides of its open conflicts."""
    candidates = []
    for memory in memories:
        graph = await at.graph(memory.partition)
        edges = [edge for edge in graph.edges(memory.memory_id) if edge.type == "conflicts_with"]
        ids = sorted({edge.to_id if edge.from_id == memory.memory_id else edge.from_id for edge in edges})
        others = (other for id in ids if (other := at.memory(id)) is not None)
        open_ones = tuple(other for other in others if other.state.status in ("active", "conflicted"))
        candidates.append(Candidate(memory, open_ones))
    return candidates


def _tokenizer(brain: Brain) -> tuple[str, Count]:
    """The model's own, as soon as it is there."""
    encoder = brain.embedder.encoder
    if encoder is None:
        return ESTIMATE, estimate
    return encoder.name, lambda text: len(encoder.starts(text))


def _named(line: Line) -> dict[str, Any]:
    return {"memory_id": line.memory.memory_id, "section": line.section, "tokens": line.tokens}
