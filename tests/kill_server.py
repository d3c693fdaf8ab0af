"""A real server over a data directory, real but for the encoder: `python -m tests.kill_server DIRECTORY`."""

import asyncio
import sys

from service.app import build_brain, serve
from service.settings import Settings
from tests.hash_encoder import HashEncoder


def main(directory: str) -> None:
    settings = Settings.model_validate({"data": {"directory": directory}, "server": {"port": 0}})
    asyncio.run(serve(settings, brain=build_brain(settings, load_encoder=HashEncoder)))


if __name__ == "__main__":
    main(sys.argv[1])
