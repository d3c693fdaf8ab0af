"""Words: how text becomes terms, and the inverted index of a partition in memory.

Terms are words in NFKC, casefolded, stemmed by their script, without English stop words; Chinese, Japanese
and Korean runs become single characters and pairs. Things written like identifiers (`ERR-4711`, `a-b`,
`C:\\repo\\x.py`, a UUID) are kept whole as well, behind a `=`; then come the marks of the text, behind a `~`,
and how the names in it sound, behind a `^`.
"""

import re
import threading
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import count

import numpy as np
import snowballstemmer
from numpy.typing import NDArray

from stores.marks import marks
from stores.spelling import family_names, is_name, sounds

ANALYZER = "words-4"
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
_HYPHENED = re.compile(r"(?<!\w)[^\W\d_]++(?:-[^\W\d_]++)+")  # in linear time, whatever the text
_CODE = re.compile(r"([a-z]{1,6})[-_ ]?(\d{2,12})")
_CODE_APART = re.compile(r"(?<![\w-])([a-z]{1,6})\s(\d{2,12})(?!\w)")
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
    return (*_words(said), *named, *marked, *("^" + sound for sound in _sounds(said)))


def query_terms(query: str) -> tuple[str, ...]:
    """The distinct terms of a query, without its identifiers."""
    return tuple(dict.fromkeys(_words(query)))


def query_sounds(query: str) -> dict[str, tuple[str, ...]]:
    """For terms of a query how they sound, as `analyze` writes it, the surest first: what to look for when
    nobody writes the term itself. A name may be written in one word or in two."""
    found: dict[str, list[str]] = {}
    before: str | None = None  # a name whose second word may follow
    for run in _WORD.findall(_composed(query)):
        if _IDEOGRAPHIC.match(run):
            before = None
            for name in family_names(run):
                found.setdefault(name[:2], []).extend(sounds(name))
        elif run.casefold() in _STOP:
            before = None
        else:
            own = found.setdefault(stem(run.casefold()), [])
            own += sounds(run, sure=is_name(run))
            if before is not None:
                together = sounds(before + run)
                own += together
                found[stem(before.casefold())] += together
            before = run if is_name(run) else None
    return {term: tuple("^" + sound for sound in dict.fromkeys(own)) for term, own in found.items() if own}


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


def codes_apart(query: str) -> tuple[str, ...]:
    """What may be a code in two words, as `identifiers` gives one that is written in one: `ERR 4711`."""
    return tuple(dict.fromkeys("".join(match.groups()) for match in _CODE_APART.finditer(_folded(query))))


def is_code(name: str, digits: int = 1) -> bool:
    """Whether an identifier is one wherever it stands: `ERR-4711`, unlike `well-known` or `and/or`; with at
    least so many digits."""
    return sum(character.isdigit() for character in name) >= digits


def is_stop(word: str) -> bool:
    """Whether a casefolded word is left out of the index, being everywhere."""
    return word in _STOP


def _composed(text: str) -> str:
    return _POINTS.sub("", unicodedata.normalize("NFKC", text))


def _folded(text: str) -> str:
    return _composed(text).casefold()


def _sounds(text: str) -> list[str]:
    """How all that may be a name sounds: words with a capital letter, or of a script that has none, also
    joined by a hyphen, and what begins with a Chinese or Korean family name."""
    names: list[str] = []
    for run in _WORD.findall(composed := _composed(text)):
        if _IDEOGRAPHIC.match(run):
            names += family_names(run)
        elif is_name(run) and run.casefold() not in _STOP:
            names.append(run)
    names += (name.replace("-", "") for name in _HYPHENED.findall(composed) if is_name(name))
    return [sound for name in names for sound in sounds(name)]


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


NO_WORD = "=~^"  # begins identifiers, marks and sounds
_NEXT = "\0"  # between two rows' terms
TERM_BYTES = 200  # the key and its places, roughly


def _length(terms: Sequence[str]) -> int:
    """How many words there are: what is not one stands last."""
    words = len(terms)
    while words and terms[words - 1][0] in NO_WORD:
        words -= 1
    return words


class WordIndex:
    """Term frequencies of rows 0..n-1, appended in order. Only the event loop writes to it."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}  # of the terms that were there from the beginning
        self._first = np.empty((0, 2), np.uint32)  # their rows and counts, term by term
        self._ends = [0]  # of each term among them; at 0 stands no term
        self._later: dict[str, array[int]] = {}  # row, count, row, count, ... of what was appended
        self._lengths: array[int] = array("I")
        self._length_view: NDArray[np.float32] | None = None
        self.size_bytes = 0

    @classmethod
    def of(cls, documents: Sequence[str]) -> "WordIndex":
        """The index of all these rows, the terms of each joined by newlines. Sorting them takes a fifth of
        the time of appending each."""
        index = cls()
        # By functions written in C: this is most of the time of loading a large partition.
        terms = f"\n{_NEXT}\n".join(documents).split("\n")
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        next_row, nothing = numbers[_NEXT], numbers[""]  # what a row without terms has is no term
        flat = np.fromiter(map(numbers.__getitem__, terms), np.int64, len(terms))
        rows, real = np.cumsum(flat == next_row), flat > nothing
        flat, rows = flat[real], rows[real]
        words = np.array([term[:1] not in NO_WORD for term in numbers], np.bool_)
        lengths = np.bincount(rows[words[flat]], minlength=len(documents))
        index._lengths = array("I", lengths.astype(np.uint32).tobytes())
        # By term, and the rows of each still in order; of 16 bits, numbers are sorted in linear time.
        order = np.argsort(flat.astype(np.min_scalar_type(len(numbers))), kind="stable")
        flat, rows = flat[order], rows[order]
        pairs = np.flatnonzero((np.diff(flat, prepend=-1) != 0) | (np.diff(rows, prepend=-1) != 0))
        counts = np.diff(pairs, append=len(flat))
        index._first = np.stack([rows[pairs], counts], axis=1).astype(np.uint32)
        index._first.flags.writeable = False  # searches have views of it
        index._ends = np.searchsorted(flat[pairs], np.arange(len(numbers) + 1)).tolist()
        index._numbers = dict(numbers)
        index.size_bytes = TERM_BYTES * len(numbers) + 8 * len(pairs)
        return index

    def append(self, terms: tuple[str, ...]) -> None:
        """Add the next row."""
        row = len(self._lengths)
        self._lengths.append(_length(terms))
        self._length_view = None
        for term, times in Counter(terms).items():
            later = self._later.get(term)
            if later is None:
                later = self._later[term] = array("I")
                self.size_bytes += TERM_BYTES
            later.extend((row, times))
            self.size_bytes += 8

    def lengths(self) -> NDArray[np.float32]:
        """(n,) words in each row, whatever is appended later."""
        if self._length_view is None:
            self._length_view = np.array(self._lengths, np.float32)
            self._length_view.flags.writeable = False
        return self._length_view

    def postings(self, term: str) -> NDArray[np.uint32]:
        """(k, 2) pairs of row and count for one term, whatever is appended later."""
        number, later = self._numbers.get(term), self._later.get(term)
        first = self._first[:0]
        if number is not None:
            first = self._first[self._ends[number] : self._ends[number + 1]]
        return first if later is None else np.concatenate([first, np.array(later, np.uint32).reshape(-1, 2)])
