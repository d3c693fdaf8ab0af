"""The small deterministic encoder that tests inject where meaning does not matter."""

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from models.embedding import Chunk, Encoding, Floats, normalise, windows


class HashEncoder:
    """Every word is a pseudo-random unit vector, a chunk is the normalised mean of its words.

    Texts that share words are near, others nearly orthogonal. The same in every process. Case and
    punctuation do not count; pieces are hashes of words; chunks are cut as the real encoders cut theirs."""

    def __init__(self, dimensions: int = 64) -> None:
        self.name = "hash"
        self.dimensions = dimensions
        self.fingerprint = f"hash:{dimensions}"
        self.multilingual = False
        self._pieces: dict[str, int] = {}
        self._vectors: dict[int, Floats] = {}

    def chunk(self, text: str) -> list[Chunk]:
        words = list(re.finditer(r"\w+", text.lower()))
        return [
            Chunk(
                [self._piece(words[at][0]) for at in run],
                text[words[run[0]].start() : words[run[-1]].end()] if run else text,
            )
            for run in windows(range(len(words)))
        ]

    def starts(self, text: str) -> list[int]:
        return [match.start() for match in re.finditer(r"\w+", text.lower())]

    def encode(self, chunks: Sequence[Chunk]) -> list[Encoding]:
        return [self._encode(chunk) for chunk in chunks]

    def _encode(self, chunk: Sequence[int]) -> Encoding:
        tokens = np.array([self._vector(piece) for piece in chunk], np.float32)
        # An empty chunk has a vector too: that of the piece 0.
        mean = tokens.mean(axis=0) if chunk else self._vector(0)
        return Encoding(
            normalise(mean), np.array(chunk, np.int32), tokens.reshape(len(chunk), self.dimensions)
        )

    def _piece(self, word: str) -> int:
        if word not in self._pieces:
            digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
            self._pieces[word] = int.from_bytes(digest[:4]) >> 1
        return self._pieces[word]

    def _vector(self, piece: int) -> Floats:
        if piece not in self._vectors:
            stream = hashlib.shake_256(piece.to_bytes(4)).digest(2 * self.dimensions)
            self._vectors[piece] = normalise(np.frombuffer(stream, "<u2") - 32767.5)
        return self._vectors[piece]
