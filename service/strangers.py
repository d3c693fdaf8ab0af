"""What a query names that no memory has: a code, or somebody. Others like it would be no answer."""

import re
from collections.abc import Collection, Sequence

import numpy as np

from service.corpus import Corpus, Mask
from stores.words import is_code, query_terms

# Written like the key of one thing: letters first, `714-C`, or a hash; unlike a date, a time or `1990s`.
_CODE = re.compile(r"[^\W\d_]|\d+[-_/][^\W\d_]\Z|(?=[\da-f-]*[a-f])[\da-f-]{7,}\Z")


def names_unknown_code(
    corpus: Corpus, eligible: Mask, terms: Sequence[str], identifiers: Sequence[str]
) -> bool:
    """Whether a query asks for a code (`ERR-4711`) that no eligible memory has, not even in words
    (`ERR 4711`). `terms` are those of the query, `identifiers` begin with `=`."""
    codes = [name[1:] for name in identifiers if _CODE.match(name[1:]) and is_code(name, digits=3)]
    spellings = [("=" + code,) for code in codes] + [query_terms(code) for code in codes]
    return bool(codes) and not any(
        (np.all([corpus.counts(term) for term in spelling], axis=0) & eligible).any()
        for spelling in spellings
        if set(spelling) <= {*terms, *identifiers}
    )


def names_stranger(corpus: Corpus, eligible: Mask, names: Sequence[str], respelled: Collection[str]) -> bool:
    """Whether one of the names stands in no eligible memory. What is short for a speaker's name is known, and
    so are the terms that stand there `respelled`."""
    if not names:
        return False
    speakers = [corpus.actors[at].casefold() for at in np.unique(corpus.speakers[eligible]) if at >= 0]
    return any(
        not any(term in respelled or corpus.counts(term)[eligible].any() for term in query_terms(name))
        and not any(speaker.startswith(name.casefold()) for speaker in speakers)
        for name in names
    )
