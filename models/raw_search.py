"""Whether a message has a text, or all of some words. Nothing in a query is an operator."""

import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property

from models.folding import fold

SNIPPET = 300  # characters
_BEFORE = 80  # of them, at the most, before the match
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")


@dataclass(frozen=True)
class Wanted:
    """What is looked for, without regard to case, width and white space."""

    query: str

    @cached_property
    def text(self) -> str:
        return fold(self.query)

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.text.split()))

    @cached_property
    def certain(self) -> tuple[str, ...]:
        """Words that stand in every message that fits, those of ASCII at least in every one of ASCII alone,
        letter for letter but for the case: a database can look for these."""
        return tuple(word for word in self.words if word.isascii() or _is_plain(word))

    @cached_property
    def _patterns(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(_bounded(word)) for word in self.words)

    def fits(self, content: str) -> bool:
        """Whether the content has the text, or each of the words as a word."""
        folded = fold(content)
        return self.text in folded or all(pattern.search(folded) for pattern in self._patterns)

    def snippet(self, content: str) -> str:
        """The content around the place that fits."""
        lowered = content.lower()
        places = [lowered.find(text) for text in (self.text, *self.words)]
        start = next((place for place in places if place >= 0), 0)
        start = max(0, min(start - _BEFORE, len(content) - SNIPPET))
        return content[start : start + SNIPPET]


def _is_plain(word: str) -> bool:
    """Whether case, width and composition leave the word as it is, whatever was written."""
    return word == word.upper() == word.lower() == unicodedata.normalize("NFKC", word)


def _bounded(word: str) -> str:
    """A pattern for a word as a word. What is no letter, and scripts that set no spaces, need no bounds."""

    def inside(character: str) -> bool:
        return (character.isalnum() or character == "_") and not _UNSPACED.match(character)

    before = r"(?<!\w)" if inside(word[0]) else ""
    after = r"(?!\w)" if inside(word[-1]) else ""
    return before + re.escape(word) + after
