"""A search before it runs: what is asked, worked out once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from models.embedder import QueryEncoding
from models.requests import SearchMemories
from service import trust
from service.question import Asked, named_actors, proper_names, without_actors
from service.weights import Weights
from stores.marks import MARKS
from stores.words import codes_apart, identifiers, query_sounds, query_terms

# A query may be a page long. So many of its terms are looked up, and its identifiers.
MOST_TERMS, MOST_IDENTIFIERS = 1024, 64


@dataclass(frozen=True, slots=True)
class Plan:
    """A search before it runs: what is asked, of which rows, by which weights. `bare` is the query without
    the speakers whom it names, `names` what else it writes as names, `sounds` what to look for instead of a
    term that no row has, `apart` identifiers that it may name in two words; `now` is epoch ms."""

    request: SearchMemories
    bare: str
    actors: tuple[str, ...]
    names: tuple[str, ...]
    terms: tuple[str, ...]
    bare_terms: frozenset[str]
    sounds: Mapping[str, tuple[str, ...]]
    identifiers: tuple[str, ...]
    apart: tuple[str, ...]
    asked: Asked
    weights: Weights
    recipe: trust.Recipe
    now: int

    @classmethod
    def of(
        cls, request: SearchMemories, actors: Sequence[str], weights: Weights, recipe: trust.Recipe, now: int
    ) -> "Plan":
        named = tuple(named_actors(request.query, actors))
        bare = without_actors(request.query, named)
        terms = query_terms(request.query)[:MOST_TERMS]
        sounds = query_sounds(request.query)
        return cls(
            request,
            bare,
            named,
            tuple(proper_names(bare)),
            terms,
            frozenset(query_terms(bare)),
            {term: sounds[term] for term in terms if term in sounds},
            tuple("=" + name for name in identifiers(request.query)[:MOST_IDENTIFIERS]),
            tuple("=" + name for name in codes_apart(request.query)[:MOST_IDENTIFIERS]),
            Asked.of(request.query),
            weights,
            recipe,
            now,
        )

    @property
    def index_terms(self) -> tuple[str, ...]:
        sounds = chain.from_iterable(self.sounds.values())
        return (*self.terms, *self.identifiers, *self.apart, *("~" + mark for mark in MARKS), *sounds)


@dataclass(frozen=True, slots=True)
class QueryMeaning:
    """A query as the model sees it: its encoding, and for each piece where its word begins in the text."""

    encoding: QueryEncoding
    starts: Sequence[int]
    multilingual: bool = False  # whether its vector, if not its pieces, is of other languages too
