"""Word pieces' vectors in small: how near they stay to the model's own, and that all machines agree."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.embedding import Encoding, OnnxEncoder, normalise
from models.token_codes import WIDTH, TokenCodes, _directions, pack, project

pytest_plugins = ["tests.embedding_fixtures"]

# Of the rounded matrix: what is stored was projected by it, and another one would not meet it.
DIRECTIONS = "7f3f51c1630da76e478b553af1aa1f689d1e0b92d0693ea03e478e4dc1e8df73"
HASH_OF_DIRECTIONS = (
    "import hashlib, numpy as np; from models.token_codes import _directions; "
    "rounded = np.round(_directions(384).astype(float) * 1e4).astype('<i4'); "
    "print(hashlib.sha256(rounded.tobytes()).hexdigest())"
)


def encoding(vectors: np.ndarray) -> Encoding:
    return Encoding(
        np.zeros(vectors.shape[1], np.float32), np.arange(len(vectors), dtype=np.int32), normalise(vectors)
    )


def unpacked(codes: TokenCodes) -> np.ndarray:
    return codes.codes.astype(np.float32) * codes.scales[:, None]


@pytest.mark.parametrize("dimensions", [384, 768, 129])
def test_the_directions_are_orthonormal(dimensions: int) -> None:
    directions = _directions(dimensions).astype(float)
    assert directions.shape == (dimensions, WIDTH)
    assert directions.T @ directions == pytest.approx(np.eye(WIDTH), abs=1e-5)


def test_every_process_has_the_same_directions() -> None:
    rounded = np.round(_directions(384).astype(float) * 1e4).astype("<i4")
    assert hashlib.sha256(rounded.tobytes()).hexdigest() == DIRECTIONS
    run = subprocess.run(
        [sys.executable, "-c", HASH_OF_DIRECTIONS], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == DIRECTIONS


@given(st.integers(0, 10_000), st.integers(1, 20), st.sampled_from([8, 64, 128]))
def test_of_small_models_only_rounding_is_lost(seed: int, pieces: int, dimensions: int) -> None:
    vectors = normalise(np.random.default_rng(seed).normal(size=(pieces, dimensions)))
    packed = unpacked(pack(encoding(vectors)))
    assert (np.abs(packed - vectors) <= np.abs(vectors).max(axis=1, keepdims=True) / 254 + 1e-6).all()
    assert packed @ packed.T == pytest.approx(vectors @ vectors.T, abs=0.04)


def test_cosines_of_the_real_model_stay_near(onnx_encoder: OnnxEncoder) -> None:
    texts = ["The user prefers green tea in the morning.", "What does she drink after getting up?"]
    memory, query = (onnx_encoder.encode(onnx_encoder.chunk(text))[0] for text in texts)
    whole = query.tokens @ memory.tokens.T
    small = project(query.tokens) @ unpacked(pack(memory)).T
    assert np.abs(small - whole).mean() < 0.05
    assert np.abs(small - whole).max() < 0.25
    assert np.corrcoef(small.ravel(), whole.ravel())[0, 1] > 0.9


def test_rounding_to_int8_costs_a_hundredth_at_the_most(onnx_encoder: OnnxEncoder) -> None:
    tokens = onnx_encoder.encode(onnx_encoder.chunk("Deploys run on Tuesdays at 09:30 UTC."))[0].tokens
    packed, projected = unpacked(pack(encoding(tokens))), project(tokens)
    assert np.abs(packed @ projected.T - projected @ projected.T).max() < 0.01


def test_a_chunk_without_pieces_has_no_codes() -> None:
    packed = pack(encoding(np.empty((0, 384), np.float32)))
    assert (packed.codes.shape, packed.scales.shape, packed.codes.dtype) == ((0, WIDTH), (0,), np.int8)


def test_a_zero_vector_stays_one() -> None:
    assert not unpacked(pack(encoding(np.zeros((1, 384), np.float32)))).any()
