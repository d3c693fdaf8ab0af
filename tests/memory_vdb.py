"""`MemoryVdb`: the interface of `stores.vdb.Vdb` without Chroma, exact, and with faults on demand.

And `VdbContract`, the tests that both pass (tests/test_vdb.py runs them).
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from stores import chroma_worker
from stores.vdb import CLOSE_S, READ_S, WRITE_S, VdbRow, VdbUnavailable


class MemoryVdb:
    """`fail` makes every call raise at once; `hang` makes it raise when its time is up."""

    def __init__(self, *, fail: bool = False, hang: bool = False) -> None:
        self.fail = fail
        self.hang = hang
        self.last_error: str | None = None
        self._shards: dict[str, dict[str, VdbRow]] = {}
        self._closed = False

    @property
    def available(self) -> bool:
        return not (self._closed or self.fail or self.hang)

    @property
    def pid(self) -> int | None:
        return None

    def start(self) -> None:
        pass

    async def put(self, shard: str, rows: Sequence[VdbRow], *, within: float = WRITE_S) -> None:
        (await self._shard(shard, within)).update({row.memory_id: row for row in rows})

    async def remove(self, shard: str, memory_ids: Iterable[str], *, within: float = WRITE_S) -> None:
        rows = await self._shard(shard, within)
        for memory_id in memory_ids:
            rows.pop(memory_id, None)

    async def get(self, shard: str, memory_id: str, *, within: float = READ_S) -> str | None:
        row = (await self._shard(shard, within)).get(memory_id)
        return row.record if row else None

    async def query(
        self,
        shard: str,
        vector: NDArray[np.float32],
        *,
        scope: str,
        user: str | None = None,
        k: int,
        within: float = READ_S,
    ) -> list[tuple[str, float]]:
        hits = [
            (row.memory_id, 1.0 - max(_cosine(chunk, vector) for chunk in row.vectors))
            for row in (await self._shard(shard, within)).values()
            if row.scope == scope and user in (None, row.user)
        ]
        return sorted(hits, key=lambda hit: hit[1])[:k]

    async def stored(self, shard: str, *, within: float = WRITE_S) -> dict[str, int]:
        rows = await self._shard(shard, within)
        return {memory_id: row.version for memory_id, row in rows.items()}

    async def rows(self, shard: str, *, within: float = WRITE_S) -> list[tuple[str, int | None, bytes]]:
        found: list[tuple[str, int | None, bytes]] = []
        for memory_id, row in (await self._shard(shard, within)).items():
            found += [(f"{memory_id}#{number}", None, b"") for number in range(1, len(row.vectors))]
            found.append((memory_id, row.version, chroma_worker.digest(row.record)))
        return found

    async def close_shard(self, shard: str, *, within: float = WRITE_S) -> None:
        await self._shard(shard, within)

    async def close(self, *, within: float = CLOSE_S) -> None:
        self._closed = True

    async def _shard(self, shard: str, within: float) -> dict[str, VdbRow]:
        if "/" in shard or shard in ("", ".", ".."):
            raise ValueError(f"not a shard's name: {shard!r}")
        if self.hang:
            try:
                await asyncio.wait_for(asyncio.Event().wait(), within)
            except TimeoutError:
                raise self._fault(f"no answer in {within} s") from None
        if self.fail or self._closed:
            raise self._fault("closed" if self._closed else "told to fail")
        self.last_error = None
        return self._shards.setdefault(shard, {})

    def _fault(self, reason: str) -> VdbUnavailable:
        self.last_error = reason
        return VdbUnavailable(reason)


def _cosine(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    return float(left @ right / (np.linalg.norm(left) * np.linalg.norm(right)))


def row(memory_id: str, *vectors: list[float], version: int = 1, **changes: str) -> VdbRow:
    fields = {"scope": "s", "user": "u", "layer": "episodic", "kind": "fact", "record": "{}"} | changes
    chunks = np.array(vectors or [[1, 0, 0]], dtype=np.float32)
    return VdbRow(memory_id=memory_id, version=version, vectors=chunks, **fields)


def vector(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


class VdbContract:
    """What every implementation promises. A subclass gives the `store`; each test has a shard to itself."""

    numbers = itertools.count()

    @pytest.fixture
    def shard(self) -> str:
        return f"00-{next(self.numbers):04d}"

    def test_a_record_comes_back_byte_for_byte(self, run, store, shard):
        record = json.dumps({"text": "naïve 日本 🧠 \u0000 \u2028 " * 2_500, "n": 2**63}, ensure_ascii=False)
        assert len(record.encode()) > 60_000
        run(store.put(shard, [row("m", record=record)]))
        assert run(store.get(shard, "m")) == record

    def test_an_unknown_memory_or_shard_is_none_and_no_error(self, run, store, shard):
        assert run(store.get(shard, "m")) is None
        assert run(store.stored(shard)) == {}
        assert run(store.query(shard, vector(1, 0, 0), scope="s", k=3)) == []
        run(store.remove(shard, ["m"]))

    def test_putting_again_replaces_record_version_and_chunks(self, run, store, shard):
        run(store.put(shard, [row("m", [1, 0, 0], [0, 1, 0], [0, 0, 1], record="old")]))
        run(store.put(shard, [row("m", [1, 0, 0], record="new", version=2)]))
        assert run(store.get(shard, "m")) == "new"
        assert run(store.stored(shard)) == {"m": 2}
        [(_, distance)] = run(store.query(shard, vector(0, 0, 1), scope="s", k=5))
        assert distance == pytest.approx(1.0)  # the old third chunk would be at 0

    def test_of_two_rows_of_one_memory_in_a_batch_the_later_wins(self, run, store, shard):
        run(store.put(shard, [row("m", record="old"), row("m", record="new", version=2)]))
        assert (run(store.get(shard, "m")), run(store.stored(shard))) == ("new", {"m": 2})

    def test_a_removed_memory_is_gone_with_its_chunks(self, run, store, shard):
        run(store.put(shard, [row("m", [1, 0, 0], [0, 1, 0]), row("other", [0, 0, 1])]))
        run(store.remove(shard, ["m", "never stored"]))
        assert run(store.get(shard, "m")) is None
        assert run(store.stored(shard)) == {"other": 1}
        assert [hit for hit, _ in run(store.query(shard, vector(0, 1, 0), scope="s", k=5))] == ["other"]

    def test_a_query_sees_its_own_scope_and_user_only(self, run, store, shard):
        rows = [row("a", scope="s1"), row("b", scope="s2"), row("c", scope="s1", user="v")]
        run(store.put(shard, rows))
        hits = run(store.query(shard, vector(1, 0, 0), scope="s1", k=5))
        assert {hit for hit, _ in hits} == {"a", "c"}
        assert [hit for hit, _ in run(store.query(shard, vector(1, 0, 0), scope="s1", user="v", k=5))] == [
            "c"
        ]

    def test_a_memory_of_many_chunks_counts_once_by_its_best_chunk(self, run, store, shard):
        crowd = [[1, 0.001 * number, 0] for number in range(40)]
        run(store.put(shard, [row("many", [0, 0, 1], *crowd), row("far", [0.5, 0.5, 0])]))
        hits = run(store.query(shard, vector(1, 0, 0), scope="s", k=2))
        assert [hit for hit, _ in hits] == ["many", "far"]
        assert [distance for _, distance in hits] == pytest.approx([0.0, 1 - 0.5**0.5], abs=1e-5)

    def test_stored_names_every_memory_over_many_pages(self, run, store, shard):
        count = 2 * chroma_worker.PAGE + 10
        run(store.put(shard, [row(f"m{number}", version=number) for number in range(count)]))
        assert run(store.stored(shard)) == {f"m{number}": number for number in range(count)}

    def test_a_put_of_more_rows_than_chroma_takes_at_once_is_whole(self, run, store, shard):
        count = chroma_worker.ROWS_PER_CALL // 2 + 100
        rows = [row(f"m{number}", [1, 0, 0], [0, 1, number]) for number in range(count)]
        run(store.put(shard, rows))
        run(store.remove(shard, [each.memory_id for each in rows[1:]]))
        assert run(store.stored(shard)) == {"m0": 1}

    def test_its_rows_are_told_one_by_one_with_their_chunks(self, run, store, shard):
        run(store.put(shard, [row("m", [1, 0, 0], [0, 1, 0], record="a"), row("n", record="b", version=3)]))
        told = {row_id: (version, digest) for row_id, version, digest in run(store.rows(shard))}
        assert told == {
            "m": (1, chroma_worker.digest("a")),
            "m#1": (None, b""),
            "n": (3, chroma_worker.digest("b")),
        }

    def test_a_closed_shard_opens_again_when_it_is_used(self, run, store, shard):
        run(store.put(shard, [row("m")]))
        run(store.close_shard(shard))
        assert run(store.stored(shard)) == {"m": 1}

    @pytest.mark.parametrize("name", ["", "..", ".", "a/b"])
    def test_a_shard_is_a_name_and_not_a_path(self, run, store, name):
        with pytest.raises(ValueError, match="shard"):
            run(store.get(name, "m"))
