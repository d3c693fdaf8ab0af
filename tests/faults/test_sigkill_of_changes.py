"""A few rounds of the soak: SIGKILL at random points of add, batch, update, supersede, delete, restore, purge
and link. `make soak` runs 200."""

import os
from pathlib import Path

import pytest

from tests.faults.soak import soak

ROUNDS = int(os.environ.get("SOAK_ROUNDS", "4"))
SEED = int(os.environ.get("SOAK_SEED", "20261130"))


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_after_sigkill_in_the_middle_of_any_change_everything_stands_as_it_was_acknowledged(
    tmp_path: Path,
) -> None:
    assert await soak(tmp_path, ROUNDS, SEED, doctor_every=ROUNDS) > ROUNDS
