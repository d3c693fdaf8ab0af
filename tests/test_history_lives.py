"""Memories that live for months: every check of twelve families of episodes, in two languages, with three
restarts between the chapters of each (tests/history_lives.py)."""

from pathlib import Path
from typing import Any

import pytest

from models.embedding import Encoder
from service.mcp_tools import TOOLSETS
from tests.historic import Door, over_http
from tests.history_lives import DAYS, LIVES, Life
from tests.keyed import Clock
from tests.serving import Server, server

pytest_plugins = ["tests.embedding_fixtures"]

DAY = 24 * 3600 * 1000
THE_END = "the end"


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory, encoder: Encoder) -> dict[str, AssertionError]:
    """All lives are lived. Of each that came to a bad end the check that failed."""
    directory, clock = tmp_path_factory.mktemp("lives"), Clock()
    begin = clock.now
    ends: dict[str, AssertionError] = {}
    stories: dict[str, Any] = {}
    lives: dict[str, Life] = {}
    for day in DAYS:
        clock.now = begin + day * DAY
        with _chapter(directory, encoder, clock) as running:
            for name, (family, texts) in LIVES.items():
                api = running.api.of(name)
                door = Door(api, over_http(api))
                if name not in lives:
                    lives[name] = Life(texts, door)
                    stories[name] = family(lives[name])
                lives[name].door = door
                if name not in ends:
                    try:
                        over = next(stories[name], THE_END) == THE_END
                        assert over == (day == DAYS[-1]), "it has as many chapters as there are"
                    except AssertionError as failed:
                        ends[name] = failed
            report = running.portal.call(_examine, running)
            assert report["clean"], report
    return ends


def _chapter(directory: Path, encoder: Encoder, clock: Clock) -> Any:
    return server(directory, lambda: encoder, clock, mcp={"toolsets": list(TOOLSETS)})


async def _examine(running: Server) -> Any:
    return (await running.brain.doctor.examine(audit=True)).document()


@pytest.mark.parametrize("name", LIVES)
def test_every_check_of_a_life_passes(failures: dict[str, AssertionError], name: str) -> None:
    if name in failures:
        raise failures[name]


def test_there_are_twelve_families_in_two_languages_with_three_restarts() -> None:
    assert len(LIVES) == 2 * 12 and len(DAYS) - 1 == 3
