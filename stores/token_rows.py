"""The word pieces of memories in the ledger, for late interaction."""

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, bindparam, select

from models.token_codes import TokenCodes
from stores.rows import VARIABLES, Values, plain_rows
from stores.schema import token_vectors

_OF = (
    select(token_vectors.c.memory_id, token_vectors.c.pieces, token_vectors.c.codes, token_vectors.c.scales)
    .where(
        token_vectors.c.memory_id.in_(bindparam("memory_ids", expanding=True)),
        token_vectors.c.fingerprint == bindparam("fingerprint"),
    )
    .order_by(token_vectors.c.memory_id, token_vectors.c.chunk)
)


def token_rows(memory_id: str, fingerprint: str, chunks: Sequence[TokenCodes]) -> list[Values]:
    """The rows of a memory's chunks."""
    return [
        {
            "memory_id": memory_id,
            "chunk": number,
            "fingerprint": fingerprint,
            "pieces": chunk.pieces.astype("<i4").tobytes(),
            "codes": chunk.codes.tobytes(),
            "scales": chunk.scales.astype("<f4").tobytes(),
        }
        for number, chunk in enumerate(chunks)
    ]


def read_tokens(
    connection: Connection, memory_ids: Sequence[str], fingerprint: str
) -> dict[str, list[TokenCodes]]:
    """The chunks of those memories that have any."""
    found: dict[str, list[TokenCodes]] = {}
    for start in range(0, len(memory_ids), VARIABLES):
        asked = {"memory_ids": list(memory_ids[start : start + VARIABLES]), "fingerprint": fingerprint}
        for memory_id, pieces, codes, scales in plain_rows(connection, _OF, asked):
            ids = np.frombuffer(pieces, "<i4")
            rows = np.frombuffer(codes, np.int8).reshape(len(ids), -1 if len(ids) else 0)
            found.setdefault(memory_id, []).append(TokenCodes(ids, rows, np.frombuffer(scales, "<f4")))
    return found
