"""`brain serve` with the small deterministic encoder of the tests: for figures without the model."""

import logging

import structlog
import uvloop

from service.app import build_brain, serve
from service.settings import load
from tests.hash_encoder import HashEncoder

if __name__ == "__main__":
    settings = load(None)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    brain = build_brain(settings, load_encoder=lambda: HashEncoder(dimensions=384))
    uvloop.run(serve(settings, brain=brain))
