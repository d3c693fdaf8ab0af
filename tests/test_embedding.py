"""The encoders, with the real model."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from models.embedding import (
    CHUNK_OVERLAP,
    CHUNK_PIECES,
    DEFAULT_MODEL,
    PINNED_WEIGHTS,
    Encoder,
    ExportMissing,
    ExportRefused,
    ModelNotFound,
    ModelRefused,
    OnnxEncoder,
    ReferenceEncoder,
    fingerprint,
    normalise,
    resolve_model,
    windows,
)
from models.exporting import export_onnx
from tests.hash_encoder import HashEncoder

pytest_plugins = ["tests.embedding_fixtures"]

TEXTS = [
    "tea",
    "",
    "The meeting with Ana about the migration was moved to Thursday at 14:00.",
    "La reunión con Ana sobre la migración se ha movido al jueves.",
    "会议改到星期四下午两点。",
    "اجتماع يوم الخميس",
    "x = {'a': [1, 2, 3]}  # a comment\n" * 4,
    "naïve café 🙂 résumé " * 12,
    "A long paragraph about nothing in particular, said again and again. " * 30,
]


def vary_model(folder: Path, file: str, content: bytes) -> Path:
    """The default model with one of its files replaced."""
    source = resolve_model(DEFAULT_MODEL)
    for original in source.rglob("*"):
        if original.is_file():
            link = folder / original.relative_to(source)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(original)
    (folder / file).unlink()
    (folder / file).write_bytes(content)
    return folder


def vary_pooling(folder: Path, mode: str) -> Path:
    pooling = {"word_embedding_dimension": 384, "pooling_mode_mean_tokens": False, mode: True}
    return vary_model(folder, "1_Pooling/config.json", json.dumps(pooling).encode())


def other_weights() -> bytes:
    """The same tensors in a file with another hash: safetensors allows spaces after its header."""
    raw = (resolve_model(DEFAULT_MODEL) / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    return (size + 8).to_bytes(8, "little") + raw[8 : 8 + size] + b" " * 8 + raw[8 + size :]


def test_the_onnx_encoder_equals_the_reference(
    onnx_encoder: OnnxEncoder, reference_encoder: ReferenceEncoder
) -> None:
    chunks = [chunk for text in TEXTS for chunk in reference_encoder.chunk(text)]
    assert chunks == [chunk for text in TEXTS for chunk in onnx_encoder.chunk(text)]
    assert onnx_encoder.fingerprint == reference_encoder.fingerprint
    for ours, theirs in zip(onnx_encoder.encode(chunks), reference_encoder.encode(chunks), strict=True):
        assert ours.vector @ theirs.vector >= 0.9999
        assert (ours.tokens * theirs.tokens).sum(axis=1).min(initial=1) >= 0.999


def test_the_reference_encoder_equals_sentence_transformers_own_encode(
    reference_encoder: ReferenceEncoder,
) -> None:
    short = TEXTS[:6]
    theirs = reference_encoder.transformer.encode(short)
    ours = reference_encoder.encode([reference_encoder.chunk(text)[0] for text in short])
    assert min(float(a.vector @ b) for a, b in zip(ours, theirs, strict=True)) >= 0.9999


def test_an_encoding_has_unit_vectors_of_the_documented_shapes(onnx_encoder: OnnxEncoder) -> None:
    for text in TEXTS:
        for chunk, encoding in zip(
            chunks := onnx_encoder.chunk(text), onnx_encoder.encode(chunks), strict=True
        ):
            assert encoding.vector.shape == (384,)
            assert encoding.tokens.shape == (len(chunk), 384)
            assert encoding.pieces.tolist() == chunk
            assert {encoding.vector.dtype, encoding.tokens.dtype} == {np.dtype(np.float32)}
            assert encoding.pieces.dtype == np.int32
            np.testing.assert_allclose(np.linalg.norm(encoding.vector), 1, rtol=1e-5)
            np.testing.assert_allclose(np.linalg.norm(encoding.tokens, axis=1), 1, rtol=1e-5)


def test_a_batch_of_long_and_short_gives_the_vectors_of_each_alone(onnx_encoder: OnnxEncoder) -> None:
    chunks = [chunk for text in TEXTS for chunk in onnx_encoder.chunk(text)]
    alone = [onnx_encoder.encode([chunk])[0] for chunk in chunks]
    for together in (onnx_encoder.encode(chunks), onnx_encoder.encode_padded(chunks)):
        for a, b in zip(alone, together, strict=True):
            np.testing.assert_allclose(a.vector, b.vector, atol=1e-5)
            np.testing.assert_allclose(a.tokens, b.tokens, atol=1e-4)
            assert a.pieces.tolist() == b.pieces.tolist()


def test_the_end_of_a_text_of_sixty_kilobytes_is_in_its_last_chunk(onnx_encoder: OnnxEncoder) -> None:
    phrase = "the zebra hid a trombone under the lighthouse"
    text = "All quiet at the office today, nothing to report. " * 1200 + phrase
    assert len(text) > 60_000
    chunks = onnx_encoder.chunk(text)
    wanted = onnx_encoder.chunk(phrase)[0]
    assert chunks[-1][-len(wanted) :] == wanted
    query, first, last = onnx_encoder.encode([wanted, chunks[0], chunks[-1]])
    assert query.vector @ last.vector > query.vector @ first.vector


def test_text_that_spells_a_special_token_is_only_text(onnx_encoder: OnnxEncoder) -> None:
    pieces = onnx_encoder.chunk("ignore [SEP] this [PAD] and [CLS] that [MASK]")[0]
    assert not {0, 101, 102, 103} & set(pieces)


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b"])
def test_a_text_without_words_has_one_chunk_and_a_vector(onnx_encoder: OnnxEncoder, text: str) -> None:
    (encoding,) = onnx_encoder.encode(onnx_encoder.chunk(text))
    np.testing.assert_allclose(np.linalg.norm(encoding.vector), 1, rtol=1e-5)
    assert encoding.tokens.shape == (len(encoding.pieces), 384)


@pytest.mark.parametrize("length", [0, 1, 29, 30, 31, 199, 200, 201, 229, 230, 370, 371, 1000, 60_000])
def test_chunks_cover_the_text_and_overlap(length: int) -> None:
    pieces = list(range(length))
    chunks = windows(pieces)
    assert chunks[0] + [piece for chunk in chunks[1:] for piece in chunk[CHUNK_OVERLAP:]] == pieces
    assert all(a[-CHUNK_OVERLAP:] == b[:CHUNK_OVERLAP] for a, b in pairwise(chunks))
    assert all(len(chunk) == CHUNK_PIECES for chunk in chunks[:-1])
    assert all(CHUNK_OVERLAP < len(chunk) <= CHUNK_PIECES for chunk in chunks[1:])


def test_normalising_nothing_gives_nothing_and_not_nan() -> None:
    assert normalise(np.zeros((2, 3))).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_the_fingerprint_changes_with_everything_that_changes_a_vector() -> None:
    same = fingerprint("m", "a" * 64, 384, "mean", (200, 30))
    assert same == fingerprint("m", "a" * 64, 384, "mean")
    assert same.startswith("m:384:fp32:c200-30:")
    others = {
        fingerprint("m", "b" * 64, 384, "mean"),
        fingerprint("m", "a" * 64, 768, "mean"),
        fingerprint("m", "a" * 64, 384, "cls"),
        fingerprint("m", "a" * 64, 384, "mean", (100, 30)),
        fingerprint("m", "a" * 64, 384, "mean", (200, 0)),
    }
    assert len(others | {same}) == 6


def test_the_default_model_has_the_pinned_weights_and_fingerprint(onnx_encoder: OnnxEncoder) -> None:
    assert onnx_encoder.weights_sha256 == PINNED_WEIGHTS[DEFAULT_MODEL]
    assert onnx_encoder.fingerprint == "all-MiniLM-L6-v2:384:fp32:c200-30:f7b57387a18a287f"


def test_other_weights_under_the_pinned_name_are_refused(tmp_path: Path) -> None:
    folder = vary_model(tmp_path / DEFAULT_MODEL, "model.safetensors", other_weights())
    with pytest.raises(ModelRefused, match="pinned to 53aa5117"):
        OnnxEncoder(folder, tmp_path)


def test_an_export_of_other_weights_is_refused(tmp_path: Path, onnx_folder: Path) -> None:
    folder = vary_model(tmp_path / "mine", "model.safetensors", other_weights())
    with pytest.raises(ExportRefused, match="other weights"):
        OnnxEncoder(folder, onnx_folder)


def test_a_missing_export_names_the_next_move(tmp_path: Path) -> None:
    with pytest.raises(ExportMissing, match="brain models export"):
        OnnxEncoder(DEFAULT_MODEL, tmp_path)


def test_an_unknown_model_names_the_next_move() -> None:
    with pytest.raises(ModelNotFound, match=r"give the path .*/models/weights/no-such-model"):
        resolve_model("no-such-model")


def test_a_path_is_resolved_to_itself() -> None:
    folder = resolve_model(DEFAULT_MODEL)
    assert resolve_model(folder) == resolve_model(str(folder)) == folder


def test_a_model_with_cls_pooling_is_exported_and_equals_its_reference(tmp_path: Path) -> None:
    folder = vary_pooling(tmp_path / "cls", "pooling_mode_cls_token")
    report = export_onnx(folder, tmp_path / "onnx")
    assert report["min_pooled_cosine"] >= 0.9999
    assert json.loads((tmp_path / "onnx" / "export.json").read_text()) == report
    assert sorted(file.name for file in (tmp_path / "onnx").iterdir()) == ["export.json", "model.onnx"]
    assert OnnxEncoder(folder, tmp_path / "onnx").pooling == "cls"


def test_an_export_that_differs_from_the_reference_gets_no_name(tmp_path: Path) -> None:
    folder = vary_pooling(tmp_path / "max", "pooling_mode_max_tokens")
    with pytest.raises(ExportRefused, match="differs"):
        export_onnx(folder, tmp_path / "onnx")
    assert list((tmp_path / "onnx").iterdir()) == []


def test_importing_the_modules_imports_no_engine() -> None:
    script = "import sys, models.embedding, models.embedder, models.exporting; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "sentence_transformers", "onnxruntime", "onnx", "tokenizers"} & set(loaded.split())


def test_the_onnx_encoder_runs_without_torch(onnx_folder: Path) -> None:
    script = (
        "import sys, pathlib; from models.embedding import OnnxEncoder;"
        "e = OnnxEncoder(export=pathlib.Path(sys.argv[1])); e.encode(e.chunk('tea')); print(*sys.modules)"
    )
    command = [sys.executable, "-c", script, str(onnx_folder)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert not {"torch", "sentence_transformers", "transformers"} & set(loaded.split())


def test_the_hash_encoder_keeps_the_encoders_contract_in_every_process() -> None:
    encoder: Encoder = HashEncoder()
    texts = ("Green tea.", "a red bus", "tea, green")
    near, far, query = encoder.encode([encoder.chunk(text)[0] for text in texts])
    assert query.vector @ near.vector > 0.99
    assert abs(float(query.vector @ far.vector)) < 0.5
    (empty,) = encoder.encode(encoder.chunk(""))
    np.testing.assert_allclose(np.linalg.norm(empty.vector), 1, rtol=1e-5)
    assert empty.tokens.shape == (0, 64)
    assert len(encoder.chunk("word " * 371)) == 3
    script = "from tests.hash_encoder import HashEncoder as H; print(H().encode(H().chunk('tea'))[0].vector)"
    command = [sys.executable, "-c", script]
    outputs = {subprocess.run(command, capture_output=True, check=True).stdout for _ in range(2)}
    assert len(outputs) == 1
