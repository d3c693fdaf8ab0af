"""A memory that is about to be written: what the caller gave, checked, embedded and analysed, before the
ledger gives it its place."""

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from models import verbatim
from models.memory import Memory
from models.token_codes import Embedded

_SPACE = re.compile(r"\s+")
_ZERO_WIDTH = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"))


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """`memory` has everything but what only the ledger knows: seq, number, gmt_created and, for a message
    that is appended, its position. `embedded` is None when the model has not seen the text yet."""

    memory: Memory
    terms: tuple[str, ...]
    content_key: str
    embedded: Embedded | None
    on_duplicate: Literal["merge", "keep", "error"]


def content_key(text: str) -> str:
    """Equal for texts that are duplicates: NFKC, casefold, zero-width characters removed, white space
    folded. Never by similarity: "limit is 30" and "limit is 50" differ."""
    folded = unicodedata.normalize("NFKC", text).casefold().translate(_ZERO_WIDTH)
    return hashlib.sha256(_SPACE.sub(" ", folded).strip().encode()).hexdigest()


def request_digest(salt: bytes, request: dict[str, Any]) -> bytes:
    """Tells whether two requests are the same, and, with the salt gone, nothing about either."""
    return hashlib.sha256(
        salt + orjson.dumps(request, default=verbatim.digits, option=orjson.OPT_SORT_KEYS)
    ).digest()
