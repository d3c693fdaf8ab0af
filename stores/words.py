"""Words: how text becomes terms, and the inverted index of a partition in memory.

Terms are words in NFKC, casefolded, stemmed by their script, without English stop words; Chinese, Japanese
and Korean runs become single characters and pairs. Things written like identifiers (`ERR-4711`, `a-b`,
`C:\\repo\\x.py`, a UUID) are kept whole as well, behind a `=`; last come the marks of the text, behind a `~`.
"""

import re
import threading
import unicodedata
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
import snowballstemmer
from numpy.typing import NDArray

from stores.marks import marks

ANALYZER = "words-3"
"""Stored beside the terms. Change it whenever `analyze` gives other terms for the same text."""

_STOP = frozenset(
    """a an the and or but if then than so of in on at by for with from to into onto about as is are was were
    be been being am do does did done doing have has had having i me my mine you your yours he him his she
    her hers it its we us our ours they them their theirs this that these those there here what which who
    whom whose when where why how not no nor can could will would shall should may might must just also very
    too s t re ve ll d m don""".split()
)
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
# What `\w` leaves out and yet stands inside words: combining accents, and vowel signs of India's scripts.
_MARKS = "\u0300-\u036f\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0980-\u0dff"
_LETTER = rf"(?:[^\W_{_IDEOGRAPHS}]|[{_MARKS}])"
_WORD = re.compile(rf"[{_IDEOGRAPHS}]+|{_LETTER}+(?:\+\+|#(?!\w))?")
_IDEOGRAPHIC = re.compile(rf"[{_IDEOGRAPHS}]")
_POINTS = re.compile("[\u0610-\u061a\u0640\u064b-\u065f\u0670]")  # of Arabic; mostly left out in writing
_WRAPPING = "\"'`“”‘’«»()[]{}<>,;:!?…。、，！？；：.*"
# An identifier may also stand in a list, in `code=ERR-4711`, or in a script that sets no spaces.
_APART = re.compile(rf"[\"'`“”‘’«»()\[\]{{}}<>,;=|。、，！？；：「」（）【】《》{_IDEOGRAPHS}]+")
_INSIDE = re.compile(r"\w[-_./\\:@#+~$%=&]+\w|[a-z]\d|\d[a-z]")
_ABBREVIATION = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")  # e.g, U.S: the last dot is stripped already
_CODE = re.compile(r"([a-z]{1,6})[-_ ]?(\d{2,12})")
_STEMMERS = {
    "latin": snowballstemmer.stemmer("english"),
    "cyrillic": snowballstemmer.stemmer("russian"),
    "arabic": snowballstemmer.stemmer("arabic"),
    "devanagari": snowballstemmer.stemmer("hindi"),
}
_stemming = threading.Lock()  # a stemmer works on its own fields: two threads would spoil each other's word


def analyze(text: str, actor: str | None = None) -> tuple[str, ...]:
    """The terms of a memory, in order; the actor's name counts as a word of what they said."""
    said = f"{actor}: {text}" if actor else text
    named, marked = ("=" + name for name in identifiers(text)), ("~" + mark for mark in marks(text))
    return (*_words(said), *named, *marked)


def query_terms(query: str) -> tuple[str, ...]:
    """The distinct terms of a query, without its identifiers."""
    return tuple(dict.fromkeys(_words(query)))


def identifiers(text: str) -> tuple[str, ...]:
    """What is written like an identifier, casefolded: has a digit between letters, or punctuation inside."""
    pieces = [part for piece in _folded(text).split() for part in (piece, *_APART.split(piece))]
    names = dict.fromkeys(piece.strip(_WRAPPING) for piece in pieces)
    found = [
        name
        for name in names
        if len(name) <= 256 and _INSIDE.search(name) and not _ABBREVIATION.fullmatch(name)
    ]
    # `ERR-4711` is also found by `err4711`, as people type it.
    return tuple(
        dict.fromkeys([*found, *(_CODE.sub(r"\1\2", name) for name in found if _CODE.fullmatch(name))])
    )


def is_code(name: str, digits: int = 1) -> bool:
    """Whether an identifier is one wherever it stands: `ERR-4711`, unlike `well-known` or `and/or`; with at
    least so many digits."""
    return sum(character.isdigit() for character in name) >= digits


def is_stop(word: str) -> bool:
    """Whether a casefolded word is left out of the index, being everywhere."""
    return word in _STOP


def _folded(text: str) -> str:
    return _POINTS.sub("", unicodedata.normalize("NFKC", text).casefold())


def _words(text: str) -> list[str]:
    terms: list[str] = []
    for run in _WORD.findall(_folded(text)):
        if _IDEOGRAPHIC.match(run):
            terms += run
            terms += [run[i : i + 2] for i in range(len(run) - 1)]
        elif run not in _STOP:
            terms.append(stem(run))
    return terms


@lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """The stem of a casefolded word, by its script."""
    first = word[0]
    script = "latin"
    if "\u0400" <= first <= "\u04ff":
        script = "cyrillic"
    elif "\u0600" <= first <= "\u06ff":
        script = "arabic"
    elif "\u0900" <= first <= "\u097f":
        script = "devanagari"
    elif not word.isalpha():
        return word  # 4711, c++, 3rd
    with _stemming:
        return str(_STEMMERS[script].stemWord(word))


TERM_BYTES = 200  # the key, the array and their place in the dict, roughly


def _length(terms: Sequence[str]) -> int:
    """How many words there are: identifiers and marks, which stand last, don't count."""
    words = len(terms)
    while words and terms[words - 1][0] in "=~":
        words -= 1
    return words


class WordIndex:
    """Term frequencies of rows 0..n-1, appended in order. Only the event loop writes to it."""

    def __init__(self) -> None:
        self._postings: dict[str, array[int]] = {}  # row, count, row, count, ...
        self._lengths: array[int] = array("I")
        self.size_bytes = 0

    @classmethod
    def of(cls, documents: Sequence[tuple[str, ...]]) -> "WordIndex":
        """The index of all these rows. Sorting them takes a third of the time of appending each."""
        index = cls()
        index._lengths = array("I", (_length(terms) for terms in documents))
        # By functions written in C: this is most of the time of loading a large partition.
        numbers = {term: number for number, term in enumerate(dict.fromkeys(chain.from_iterable(documents)))}
        flat = list(map(numbers.__getitem__, chain.from_iterable(documents)))
        rows = np.repeat(np.arange(len(documents)), [len(terms) for terms in documents])
        # One number for each pair of term and row, so that one sort groups both.
        pairs, counts = np.unique(np.array(flat, np.int64) * len(documents) + rows, return_counts=True)
        terms_of, rows = np.divmod(pairs, max(1, len(documents)))
        postings = np.stack([rows, counts], axis=1).astype(np.uint32)
        ends = np.searchsorted(terms_of, np.arange(1, len(numbers) + 1)).tolist()
        for term, start, end in zip(numbers, [0, *ends], ends, strict=False):
            index._postings[term] = array("I", postings[start:end].tobytes())
        index.size_bytes = TERM_BYTES * len(numbers) + 8 * len(pairs)
        return index

    def append(self, terms: tuple[str, ...]) -> None:
        """Add the next row."""
        row = len(self._lengths)
        self._lengths.append(_length(terms))
        for term, count in Counter(terms).items():
            postings = self._postings.get(term)
            if postings is None:
                postings = self._postings[term] = array("I")
                self.size_bytes += TERM_BYTES
            postings.extend((row, count))
            self.size_bytes += 8

    def lengths(self) -> NDArray[np.float32]:
        """(n,) words in each row. A copy."""
        return np.array(self._lengths, np.float32)

    def postings(self, term: str) -> NDArray[np.uint32]:
        """(k, 2) pairs of row and count for one term. A copy, so that a search may keep it while the
        loop goes on appending."""
        found = self._postings.get(term)
        return np.empty((0, 2), np.uint32) if found is None else np.array(found, np.uint32).reshape(-1, 2)
