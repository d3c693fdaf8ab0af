"""Marks: what a text has that a certain kind of question asks for (a time, a place, a name, a number, a
person), and how it is put (as a question, in the first person). English patterns; in other languages no mark
is set, and nothing else changes.

The patterns are those of LoCoMo's measured recipe; see docs/retrieval.md.
"""

import re
from types import MappingProxyType

MONTHS = tuple(
    "january february march april may june july august september october november december".split()
)

_WORDS = {
    "time": rf"""\b(?:yesterday|today|tonight|tomorrow|last|next|ago|recently|just|soon|since|weekend|week
        |month|year|this\ (?:week|month|year|weekend|morning|summer|fall|winter|spring)|\d{{4}}
        |{"|".join(MONTHS)}|monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b""",
    "number": r"""\b(?:\d+|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|twice|once
        |both|couple|several|few|third|second|first|hundred|thousand)\b""",
    "person": r"""\b(?:mom|mother|dad|father|sister|brother|son|daughter|kids?|friends?|wife|husband|partner
        |family|aunt|uncle|grandma|grandmother|grandpa|cousin|team|boss|coach|colleague|neighbor|girlfriend|boyfriend
        |group)\b""",
}
_CASED = {
    "place": r"""\b(?:in|at|to|from|near|around|visited|visit|through)\s+(?:the\s+)?(?:[A-Z][a-z]+|beach|park
        |mountain|lake|forest|city|town|country|studio|store|shop|cafe|restaurant|museum|school|church|gym|home|shelter|center
        |hospital)""",
    "name": r"""(?<=[a-z,;]\ )(?!I\b|I'|OK\b)[A-Z][a-z]+|"[^"]{3,60}\"""",
    "first": r"\b(?:I|I'm|I've|[Mm]y|[Mm]e|[Ww]e|[Ww]e're|[Ww]e've|[Oo]ur|us|[Mm]ine|[Mm]yself)\b",  # not US
    "question": r"[?？]\s*\Z",
}

_PATTERNS = MappingProxyType(
    {name: re.compile(pattern, re.VERBOSE | re.IGNORECASE) for name, pattern in _WORDS.items()}
    | {name: re.compile(pattern, re.VERBOSE) for name, pattern in _CASED.items()}
)


MARKS = tuple(_PATTERNS)


def marks(text: str) -> tuple[str, ...]:
    """The names of the marks that a text has: time, number, person, place, name, first, question."""
    return tuple(name for name, pattern in _PATTERNS.items() if pattern.search(text))
