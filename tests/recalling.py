"""Memories, partitions in memory and searches over them, without a server."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from models import verbatim
from models.embedder import QueryEncoding
from models.embedding import CHUNK_OVERLAP, Encoder, normalise
from models.memory import Memory, State
from models.requests import SearchMemories
from models.scope import Partition
from models.token_codes import TokenCodes, pack
from service import recall
from service.plan import Plan, QueryMeaning
from service.recall import Result
from service.trust import RECIPES
from service.weights import Weights
from stores.loading import StoredPartition
from stores.records import Records
from stores.resident import ResidentPartition
from stores.words import analyze
from tests.hash_encoder import HashEncoder

HOME = Partition("product", "agent", "user")
HASH = HashEncoder()
OF_ALL_LANGUAGES = HashEncoder()
OF_ALL_LANGUAGES.multilingual = True
NOW = 1_767_225_600_000  # 2026-01-01
EVERYTHING = Weights(floor=0.0)
_numbers = itertools.count(1)


def id_of(name: object) -> str:
    """An id as the engine makes them, always the same for one name."""
    return f"01930000-0000-7000-8000-{sha256(repr(name).encode()).hexdigest()[:12]}"


def memory(content: str, number: int | None = None, **fields: Any) -> Memory:
    """A memory with an id and a place in the order of writing of its own. The fields of its state
    (`tags`, `status`, `confidence`, …) and `metadata` go into its state."""
    number = next(_numbers) if number is None else number
    of_state = set(State.__dataclass_fields__)
    state = {"custom": verbatim.dump(fields.pop("metadata", {}))}
    state |= {name: fields.pop(name) for name in list(fields) if name in of_state}
    given: dict[str, Any] = {
        "memory_id": id_of(number),
        "kind": "memory",
        "layer": "l2_fact",
        "source_authority": "informal",
        "gmt_created": NOW,
    } | fields
    given.setdefault("session_key", given.get("session_id"))
    return Memory(partition=HOME, content=content, seq=number, number=number, state=State(**state), **given)


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A partition in memory, and the word pieces that the ledger has of its memories."""

    resident: ResidentPartition
    pieces: Mapping[str, list[TokenCodes]] = field(default_factory=dict)


def hold(
    memories: Sequence[Memory],
    encoder: Encoder = HASH,
    without_vector: Sequence[Memory] = (),
    terms: Sequence[tuple[str, ...]] | None = None,
) -> Held:
    """Memories as they are held in memory, embedded except for some."""
    chunks = [[] if one in without_vector else encoder.chunk(one.content) for one in memories]
    owners = np.repeat(np.arange(len(memories)), [len(of_one) for of_one in chunks])
    encodings = encoder.encode([chunk for of_one in chunks for chunk in of_one])
    matrix = np.array([one.vector for one in encodings], np.float32)
    matrix = matrix.reshape(len(owners), encoder.dimensions if len(owners) else 0)  # as the ledger gives it
    pieces: dict[str, list[TokenCodes]] = {}
    for row, encoding in zip(owners, encodings, strict=True):
        pieces.setdefault(memories[row].memory_id, []).append(pack(encoding))
    analysed = terms or [analyze(one.content, one.actor) for one in memories]
    joined = ["\n".join(of_one) for of_one in analysed]
    stored = StoredPartition(Records.of(memories), joined, matrix, owners, [])
    return Held(ResidentPartition(HOME, stored), pieces)


def meaning_of(query: str, encoder: Encoder = HASH) -> QueryMeaning:
    """A query as the model sees it, all its chunks as one."""
    chunks = encoder.chunk(query)
    for chunk in chunks:
        chunk.of_query = True
    encodings = encoder.encode(chunks)
    skips = [0] + [CHUNK_OVERLAP] * (len(encodings) - 1)
    both = list(zip(encodings, skips, strict=True))
    whole = QueryEncoding(
        normalise(np.mean([one.vector for one in encodings], axis=0)),
        np.concatenate([one.pieces[skip:] for one, skip in both]),
        np.concatenate([one.tokens[skip:] for one, skip in both]),
    )
    return QueryMeaning(whole, encoder.starts(query), encoder.multilingual)


def search(
    query: str,
    *partitions: Held,
    encoder: Encoder | None = HASH,
    weights: Weights | None = None,
    late: bool = True,
    **filters: Any,
) -> Result:
    """As the search operation does it. Without an encoder by words only; without `late` no row is looked at
    again."""
    request = SearchMemories(query=query, **filters)
    actors = sorted({actor for one in partitions for actor in one.resident.actors})
    plan = Plan.of(request, actors, weights or Weights(), RECIPES[request.ranking], NOW)
    meaning = None if encoder is None else meaning_of(plan.bare, encoder)

    def stored(ids: Iterable[str]) -> dict[str, Sequence[TokenCodes]]:
        return {id: one.pieces[id] for id in ids for one in partitions if id in one.pieces}

    snapshots = [one.resident.snapshot(plan.index_terms) for one in partitions]
    return recall.search(plan, snapshots, meaning, stored if late else None)


def texts(result: Result) -> list[str]:
    return [hit.memory.content for hit in result.hits]
