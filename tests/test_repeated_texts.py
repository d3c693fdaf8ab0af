"""What everybody stores, the same few texts in every scope, is no damage to Chroma's index: copies are linked
to each other only, so that an index may never reach some of them, however whole it is."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.callers import PRODUCT
from stores.chroma_check import unreached
from stores.vdb import Vdb, shard_of
from stores.verification import VerificationFailed
from tests.hash_encoder import HashEncoder
from tests.serving import eventually, server
from tests.test_doctor import examine
from tests.test_rebuild import OLD, rebuilt_with

SCOPES = 250  # in one shard; Chroma never found one or two of the texts in most of them
TEXTS = [{"content": f"Text {number} of grove{number}, told to everybody."} for number in range(9)]


def fill(data: Path, agents: list[str], *, examined: bool = False) -> None:
    with server(data, lambda: HashEncoder(OLD), doctor={"interval_s": 0}) as running:
        eventually(lambda: running.brain.meaning.fingerprint() is not None)
        for agent in agents:
            running.api.of(agent).batch(TEXTS)
        running.settle()
        eventually(lambda: running.brain.in_step)
        assert not examined or examine(running)["findings"] == []


def in_one_shard(number: int) -> list[str]:
    names = map("a{}".format, range(40 * number))
    return [agent for agent in names if shard_of(PRODUCT, agent) == 3][:number]


def test_texts_that_everybody_has_are_no_damage(tmp_path: Path) -> None:
    fill(tmp_path, in_one_shard(SCOPES), examined=True)


class IslandVdb(Vdb):
    """Chroma, with an index that does not reach some of the memories, by their place: which ones it loses
    when texts are equal is a matter of luck."""

    def __init__(self, root: Path, lost: Callable[[int], bool]):
        super().__init__(root)
        self._lost = lost

    async def ask(self, shard: str, within: float, function: Any, *args: Any, **options: Any) -> Any:
        answer = await super().ask(shard, within, function, *args, **options)
        if function is not unreached:
            return answer
        return [
            *answer,
            *(id for at, id in enumerate(sorted(args[0])) if self._lost(at) and id not in answer),
        ]


def test_copies_that_the_index_does_not_reach_stop_no_rebuild(tmp_path: Path) -> None:
    fill(tmp_path, in_one_shard(8))
    report = asyncio.run(rebuilt_with(IslandVdb(tmp_path / "vdb", lambda at: at % 9 < 2), tmp_path))
    assert report["verified"]["memories"] == 8 * 9 and report["verified"]["unreached"] == []


def test_an_index_that_reaches_nothing_is_broken_whatever_it_holds(tmp_path: Path) -> None:
    fill(tmp_path, in_one_shard(8))
    with pytest.raises(VerificationFailed, match="not found by their own"):
        asyncio.run(rebuilt_with(IslandVdb(tmp_path / "vdb", lambda at: True), tmp_path))
