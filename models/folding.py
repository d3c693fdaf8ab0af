"""Texts that say the same, letter for letter."""

import re
import unicodedata
from functools import lru_cache

_SPACE = re.compile(r"\s+")
# Beside the characters of format (Cf), what nobody sees: joiners, fillers, selectors of variants.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_ZERO_WIDTH = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"))


def fold(text: str) -> str:
    """Equal for texts that are duplicates: NFKC, casefold, zero-width characters removed, white space
    folded. Never by similarity: "limit is 30" and "limit is 50" differ."""
    if text.isascii():  # the same, in a fifth of the time
        return " ".join(text.lower().split())
    folded = unicodedata.normalize("NFKC", text).casefold().translate(_ZERO_WIDTH)
    return _SPACE.sub(" ", folded).strip()


def seen(text: str) -> str:
    """Without the characters that nobody sees."""
    if text.isascii():
        return text
    return _UNSEEN.sub("", "".join(one for one in text if unicodedata.category(one) != "Cf"))


frame_key = lru_cache(maxsize=4096)(fold)
"""Equal for two spellings of one frame. Few, and asked for each row of a search."""
