"""The rules of the injection scan as they come from `injection.yaml`, made ready to be looked for."""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

_METHOD = b"2"  # change it when a text is read in another way: stored texts are then scanned again
_DATA = Path(__file__).with_name("injection.yaml").read_bytes()
RULES_VERSION = hashlib.sha256(_METHOD + _DATA).hexdigest()[:16]

END, PAUSE, COLON, OTHER = ".", ",", ":", "_"
URL = "$url"
STEM = 4  # letters that a beginning of a word has at least
LEADS = 4  # words that may stand before the one that opens a clause
_FIRST_CODE = 0xE000  # of the private use area
_OPENING = 0x1000  # from the code of a word to the code of a word that opens a clause
MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")


@dataclass(frozen=True, slots=True)
class Shape:
    """A regular expression, looked for only in a text that has one of the words of `has`, if any."""

    has: tuple[str, ...]
    shape: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rule: why it marks a text, in plain words, with examples of texts that it marks and that no
    rule marks. `raw`: its shapes are looked for in the text as it came."""

    name: str
    reason: str
    hostile: tuple[str, ...]
    harmless: tuple[str, ...]
    shapes: tuple[Shape, ...]
    raw: bool


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Words, beginnings of words and phrases. Each has a code, one character for each set of groups that
    a word is in."""

    words: Mapping[str, str]
    stems: Mapping[str, str]
    stem_starts: frozenset[str]  # the first STEM letters of each
    phrases: Mapping[str, tuple[tuple[tuple[str, ...], str], ...]]  # by their first word, the longest first
    in_phrases: frozenset[str]
    leads: frozenset[str]  # codes
    longest: int  # letters of a word
    longest_han: int  # of one that is written without spaces
    longest_stem: int
    look_alikes: Mapping[int, str]  # to Latin letters
    look_back: Mapping[int, str]  # from Latin letters to Cyrillic ones
    leet: tuple[Mapping[int, str], ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    rule: str
    pattern: re.Pattern[str]  # over a stream of codes


@dataclass(frozen=True, slots=True)
class Rules:
    rules: tuple[Rule, ...]
    lexicon: Lexicon
    patterns: Mapping[str, tuple[Pattern, ...]]  # by a code without which they match nothing


def fold(text: str) -> str:
    """Lower case, compatible forms made one, accents dropped; hidden characters stay."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    return MARKS.sub("", text).replace("\u2019", "'")


def opening(code: str) -> str:
    """The code of a word that opens a clause."""
    return chr(ord(code) + _OPENING)


@lru_cache(maxsize=1)
def load() -> Rules:
    """The rules of the data file; read once. Raises ValueError, which names what is wrong in the file."""
    data = yaml.load(_DATA, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    codes, sets = _codes(data["groups"])
    rules = tuple(_rule(entry) for entry in data["rules"])
    members: dict[str, list[str]] = {}
    for code, groups in sets.items():
        for group in groups:
            members.setdefault(group, []).append(code)
    patterns: dict[str, list[Pattern]] = {}
    for entry in data["rules"]:
        for text in entry.get("patterns", ()):
            compiled, needed = _compile(text, members)
            for code in needed:
                patterns.setdefault(code, []).append(Pattern(entry["name"], compiled))
    return Rules(rules, _lexicon(codes, sets, data), {code: tuple(found) for code, found in patterns.items()})


def _rule(entry: Mapping[str, Any]) -> Rule:
    return Rule(
        name=entry["name"],
        reason=entry["reason"],
        hostile=tuple(entry["hostile"]),
        harmless=tuple(entry["harmless"]),
        shapes=tuple(
            Shape(tuple(one.get("has", ())), re.compile(one["shape"])) for one in entry.get("shapes", ())
        ),
        raw=entry.get("raw", False),
    )


def _codes(groups: Mapping[str, Mapping[str, str]]) -> tuple[dict[str, str], dict[str, frozenset[str]]]:
    """The code of each word as it stands in the file, and what groups a code stands for."""
    entries: dict[str, set[str]] = {}
    for group in groups:
        for word in _members(group, groups):
            entries.setdefault(word, set()).add(group)
    stems = [word for word in entries if word.endswith("*")]
    if short := [stem for stem in stems if len(stem) <= STEM]:
        raise ValueError(f"shorter than {STEM} letters: {', '.join(short)}")
    for word, own in entries.items():  # a word is also what a beginning of it is
        for stem in stems if "_" not in word else ():
            if word.startswith(stem[:-1]):
                own |= entries[stem]
    numbers = {
        of: at for at, of in enumerate(sorted({frozenset(own) for own in entries.values()}, key=sorted))
    }
    codes = {word: chr(_FIRST_CODE + numbers[frozenset(own)]) for word, own in entries.items()}
    return codes, {chr(_FIRST_CODE + at): of for of, at in numbers.items()}


def _members(group: str, groups: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for words in groups[group].values():
        for word in words.split():
            if word.startswith("+"):
                yield from _members(word[1:], groups)
            else:
                yield fold(word)


def _lexicon(
    codes: Mapping[str, str], sets: Mapping[str, frozenset[str]], data: Mapping[str, Any]
) -> Lexicon:
    phrases: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for phrase in sorted((word for word in codes if "_" in word), key=lambda word: -word.count("_")):
        parts = tuple(phrase.split("_"))
        phrases.setdefault(parts[0], []).append((parts, codes[phrase]))
    words = {word: code for word, code in codes.items() if "_" not in word and not word.endswith("*")}
    stems = {word[:-1]: code for word, code in codes.items() if word.endswith("*") and "_" not in word}
    alike = {ord(other): latin for other, latin in data["look_alikes"].items()}
    return Lexicon(
        words=words,
        stems=stems,
        stem_starts=frozenset(stem[:STEM] for stem in stems),
        phrases={first: tuple(found) for first, found in phrases.items()},
        in_phrases=frozenset(part for found in phrases.values() for parts, _ in found for part in parts),
        leads=frozenset(code for code, groups in sets.items() if "lead" in groups),
        longest=max(map(len, words)),
        longest_han=max(len(word) for word in words if "\u2e80" <= word[0] <= "\u9fff"),
        longest_stem=max(map(len, stems)),
        look_alikes=alike,
        look_back={
            ord(latin): chr(other) for other, latin in reversed(alike.items()) if 0x400 <= other < 0x500
        },
        leet=tuple({ord(sign): letter for sign, letter in table.items()} for table in data["leet"]),
    )


def _compile(text: str, members: Mapping[str, list[str]]) -> tuple[re.Pattern[str], frozenset[str]]:
    """A pattern of the file as a regular expression over streams, and codes of which a stream needs one."""
    made: list[str] = []
    needed: list[frozenset[str]] = []
    for item in text.split():
        if item == COLON:
            made.append(COLON)
        elif item[0].isdigit():
            number, _, barred = item.partition("!")
            other = "." if number.endswith("*") else "[^.]"
            if barred:
                other = f"(?:(?!{_either(*_codes_of(barred, text, members))}){other})"
            made.append(f"{other}{{0,{number.rstrip('*')}}}?")
        else:
            inside, first = _codes_of(item.strip("^!"), text, members)
            either = frozenset(first if item.startswith("^") else inside + first)
            one = _either(either)
            made.append(f"(?!{one})" if item.startswith("!") else one)
            if not item.startswith("!"):
                needed.append(either)
    return re.compile("".join(made)), min(needed, key=len)


def _codes_of(names: str, text: str, members: Mapping[str, list[str]]) -> tuple[list[str], list[str]]:
    """The codes of the groups of an item of a pattern, inside a clause and as what opens one."""
    wanted = names.split("|")
    if unknown := [name for name in wanted if name not in members]:
        raise ValueError(f"the pattern {text!r} has no group {', '.join(unknown)}")
    inside = [code for name in wanted for code in members[name]]
    return inside, [opening(code) for code in inside]


def _either(*codes: Iterable[str]) -> str:
    """A regular expression for one of these codes."""
    return f"[{''.join(sorted({code for some in codes for code in some}))}]"
