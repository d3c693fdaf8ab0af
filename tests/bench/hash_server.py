"""`brain serve` with the small deterministic encoder of the tests, for figures that the model has no part in."""

import uvloop

from service.app import build_brain, serve
from service.settings import load
from tests.hash_encoder import HashEncoder

if __name__ == "__main__":
    settings = load(None)
    brain = build_brain(settings, load_encoder=lambda: HashEncoder(dimensions=384))
    uvloop.run(serve(settings, brain=brain))
