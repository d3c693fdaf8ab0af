"""Word pieces in memory: those that the ledger has, whatever is asked before and whatever changes."""

from collections.abc import Sequence

import numpy as np

from models.token_codes import TokenCodes
from stores.token_cache import TokenCache


def chunk(number: int) -> TokenCodes:
    return TokenCodes(np.full(2, number, np.int32), np.full((2, 4), number, np.int8), np.ones(2, np.float32))


class Stored:
    """What is stored under one fingerprint, and what was read of it."""

    def __init__(self, **chunks: int) -> None:
        self.chunks = {id: [chunk(number)] for id, number in chunks.items()}
        self.reads: list[list[str]] = []

    def read(self, ids: Sequence[str], fingerprint: str) -> dict[str, list[TokenCodes]]:
        self.reads.append(list(ids))
        return {id: self.chunks[id] for id in ids if id in self.chunks}


def test_what_was_read_once_is_not_read_again() -> None:
    stored = Stored(a=1, b=2, c=3)
    cache = TokenCache(stored.read)
    assert cache.of(["a", "b"], "one") == {id: stored.chunks[id] for id in "ab"}
    assert cache.of(["c", "a"], "one") == {id: stored.chunks[id] for id in "ac"}
    assert cache.of(["a", "b", "c"], "one") == stored.chunks
    assert stored.reads == [["a", "b"], ["c"]]


def test_pieces_that_come_later_are_found() -> None:
    stored = Stored(a=1)
    cache = TokenCache(stored.read)
    assert cache.of(["a", "b"], "one").keys() == {"a"}
    stored.chunks["b"] = [chunk(2)]
    assert cache.of(["a", "b"], "one") == stored.chunks


def test_nothing_of_another_model_is_given() -> None:
    stored = Stored(a=1)
    cache = TokenCache(stored.read)
    cache.of(["a"], "one")
    stored.chunks["a"] = [chunk(7)]
    assert cache.of(["a"], "two") == stored.chunks


def test_what_is_hidden_or_embedded_anew_is_let_go() -> None:
    stored = Stored(a=1, b=2)
    cache = TokenCache(stored.read)
    cache.of(["a", "b"], "one")
    cache.forget("a")
    assert cache.of(["b"], "one") and stored.reads == [["a", "b"]]
    stored.chunks["b"] = [chunk(5)]
    cache.clear()
    assert cache.size_bytes == 0
    assert cache.of(["b"], "one") == {"b": stored.chunks["b"]}


def test_what_was_being_read_when_it_was_let_go_is_not_kept() -> None:
    stored = Stored(a=1)

    def read(ids: Sequence[str], fingerprint: str) -> dict[str, list[TokenCodes]]:
        found = stored.read(ids, fingerprint)
        cache.forget("a")
        return found

    cache = TokenCache(read)
    cache.of(["a"], "one")
    assert cache.size_bytes == 0


def test_the_least_recently_used_leave_under_the_budget() -> None:
    stored = Stored(a=1, b=2, c=3)
    cache = TokenCache(stored.read)
    cache.of(["a"], "one")
    cache = TokenCache(stored.read, budget=2 * cache.size_bytes)
    for asked in ("a", "b", "a", "c"):
        cache.of([asked], "one")
    stored.reads.clear()
    cache.of(["a", "c"], "one")
    assert stored.reads == []
    cache.of(["b"], "one")
    assert stored.reads == [["b"]]
