"""The real model for tests: say `pytest_plugins = ["tests.embedding_fixtures"]` in a test module."""

import os
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

from models.embedding import (
    DEFAULT_MODEL,
    EXPORTS,
    ExportMissing,
    ExportRefused,
    OnnxEncoder,
    ReferenceEncoder,
    export_onnx,
)


@pytest.fixture(scope="session")
def onnx_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of the default model: the one in models/weights if there is one, else a fresh one."""
    present = EXPORTS / DEFAULT_MODEL
    try:
        OnnxEncoder(DEFAULT_MODEL, present)
    except (ExportMissing, ExportRefused):
        fresh = tmp_path_factory.mktemp("onnx")
        export_onnx(DEFAULT_MODEL, fresh)
        return fresh
    return present


@pytest.fixture(scope="session")
def onnx_encoder(onnx_folder: Path) -> OnnxEncoder:
    return OnnxEncoder(DEFAULT_MODEL, onnx_folder)


@pytest.fixture(scope="session")
def reference_encoder() -> ReferenceEncoder:
    return ReferenceEncoder(DEFAULT_MODEL)
