"""Word pieces' vectors, small enough to keep: projected to 128 dimensions, int8 with a scale for each piece.

A projection onto random directions keeps angles (Johnson & Lindenstrauss 1984): late interaction over these
is within .01 of R@10 of the model's own 384 float32. The directions come from a hash, so that every machine
has the same.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from models.embedding import Encoding, Floats, normalise

WIDTH = 128
CODING = f"random{WIDTH}-int8"  # change it with the coding, and give stored codes a migration


@dataclass(frozen=True, slots=True, eq=False)
class TokenCodes:
    """One chunk: (t,) int32 piece ids, (t, width) int8 codes and (t,) float32 scales; code times scale is a
    unit vector."""

    pieces: NDArray[np.int32]
    codes: NDArray[np.int8]
    scales: Floats


@lru_cache(maxsize=4)
def _directions(dimensions: int) -> Floats:
    """(dimensions, WIDTH), orthonormal: random signs after Gram-Schmidt. By hand, because a library's QR may
    turn a direction round from one build to the next."""
    bits = hashlib.shake_256(f"{CODING}:{dimensions}".encode()).digest(dimensions * WIDTH // 8)
    columns = 2.0 * np.unpackbits(np.frombuffer(bits, np.uint8)).reshape(dimensions, WIDTH) - 1.0
    for at in range(WIDTH):
        columns[:, at] /= np.sqrt((columns[:, at] ** 2).sum())
        columns[:, at + 1 :] -= np.outer(columns[:, at], columns[:, at] @ columns[:, at + 1 :])
    return columns.astype(np.float32)


def project(tokens: Floats) -> Floats:
    """(t, dimensions) to (t, width) unit vectors; models of up to WIDTH dimensions are left as they are."""
    return normalise(tokens if tokens.shape[1] <= WIDTH else tokens @ _directions(tokens.shape[1]))


def pack(encoding: Encoding) -> TokenCodes:
    """The pieces of one chunk, as they are stored."""
    vectors = project(encoding.tokens)
    scales = (np.abs(vectors).max(axis=1, initial=0) / 127 + 1e-9).astype(np.float32)
    return TokenCodes(encoding.pieces, np.round(vectors / scales[:, None]).astype(np.int8), scales)


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """What the model makes of a text: (chunks, dimensions) vectors, and each chunk's word pieces."""

    vectors: Floats
    pieces: tuple[TokenCodes, ...]

    @classmethod
    def of(cls, chunks: Sequence[tuple[Floats, TokenCodes]]) -> "Embedded":
        """Of a text with these chunks, at least one."""
        return cls(np.stack([vector for vector, _ in chunks]), tuple(pieces for _, pieces in chunks))
