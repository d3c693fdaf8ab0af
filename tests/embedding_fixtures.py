"""The real models for tests: say `pytest_plugins = ["tests.embedding_fixtures"]` in a test module."""

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

from models.embedding import (
    DEFAULT_MODEL,
    EXPORTS,
    Encoder,
    ExportMissing,
    ExportRefused,
    OnnxEncoder,
    ReferenceEncoder,
)
from models.exporting import export_model
from models.multilingual import TWIN, open_encoder


@pytest.fixture(scope="session")
def onnx_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of what is served by default: the one in models/weights if there is one, else a fresh one."""
    present = EXPORTS / TWIN
    try:
        open_encoder(TWIN, present)
    except (ExportMissing, ExportRefused):
        fresh = tmp_path_factory.mktemp("onnx")
        export_model(TWIN, fresh)
        return fresh
    return present


@pytest.fixture(scope="session")
def encoder(onnx_folder: Path) -> Encoder:
    """What is served by default: the word pieces of one model, the vectors of another."""
    return open_encoder(TWIN, onnx_folder)


@pytest.fixture(scope="session")
def onnx_encoder(onnx_folder: Path) -> OnnxEncoder:
    """The model of the word pieces alone, as `embedding.model` may name it too."""
    return OnnxEncoder(DEFAULT_MODEL, onnx_folder)


@pytest.fixture(scope="session")
def reference_encoder() -> ReferenceEncoder:
    return ReferenceEncoder(DEFAULT_MODEL)
