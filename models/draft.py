"""A memory that is about to be written: what the caller gave, checked, embedded and analysed, before the
ledger gives it its place."""

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from models import verbatim
from models.folding import fold
from models.memory import Memory
from models.token_codes import Embedded


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """`memory` has everything but what only the ledger knows: seq, number, gmt_created and, for a message
    that is appended, its position. `embedded` is None when the model has not seen the text yet."""

    memory: Memory
    terms: tuple[str, ...]
    content_key: str
    embedded: Embedded | None
    on_duplicate: Literal["merge", "keep", "error"]
    on_conflict: Literal["record", "error"] = "record"

    def with_vectors(self, embedded: Embedded | None) -> "Draft":
        """The same with what the model made of it. `replace` takes five times as long."""
        return Draft(self.memory, self.terms, self.content_key, embedded, self.on_duplicate, self.on_conflict)


def content_key(text: str) -> str:
    """Equal for texts that are duplicates, and tells nothing else of them."""
    return hashlib.sha256(fold(text).encode()).hexdigest()


def request_digest(salt: bytes, request: dict[str, Any]) -> bytes:
    """Tells whether two requests are the same, and, with the salt gone, nothing about either."""
    return hashlib.sha256(
        salt + orjson.dumps(request, default=verbatim.digits, option=orjson.OPT_SORT_KEYS)
    ).digest()
