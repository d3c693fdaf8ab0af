"""A real `brain rebuild`, real but for the encoder: `python -m tests.kill_rebuild DIRECTORY DIMENSIONS`.

Says each step of its progress on stdout, so that a test can kill it there."""

import asyncio
import sys

from models.rebuild_order import RebuildOrder
from service import app
from service.rebuilding import Progress, alone
from service.settings import Settings
from tests.hash_encoder import HashEncoder


def order(**fields: object) -> RebuildOrder:
    return RebuildOrder.model_validate({"scope": [], "layers": []} | fields)


def say(progress: Progress) -> None:
    sys.stdout.write(f"{progress.stage} {progress.done}\n")
    sys.stdout.flush()


def main(directory: str, dimensions: int) -> None:
    settings = Settings.model_validate({"data": {"directory": directory}})
    with app.owning(settings):
        work = alone(
            settings,
            order(),
            Progress(told=say),
            load=lambda model: HashEncoder(dimensions),
            clock=app.now,
        )
        asyncio.run(work)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
