"""Facts: what a memory asserts in so many words, for the rules that compare memories."""

import hashlib
from dataclasses import dataclass

from models.folding import fold


@dataclass(frozen=True, slots=True)
class Fact:
    """`single_valued` when the subject has one object of this predicate at a time, as a capital has."""

    subject: str
    predicate: str
    object: str
    single_valued: bool = False

    @property
    def key(self) -> str:
        """Equal for facts that answer the same question."""
        return _digest(self.subject, self.predicate)

    @property
    def entities(self) -> tuple[str, str]:
        """Names of the nodes of the graph that stand for subject and object; no text."""
        return f"entity:{_digest(self.subject)}", f"entity:{self.object_key}"

    @property
    def object_key(self) -> str:
        """Equal for facts that give the same answer."""
        return _digest(self.object)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(fold(text) for text in texts).encode()).hexdigest()
