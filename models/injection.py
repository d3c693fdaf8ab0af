"""Text that wants to be obeyed: claims of authority, standing orders to the reader, secrets.

The rules are data, `injection.yaml`. A text is brought into a plain form, in which disguises fall together
with what they stand for; its words become a stream of one character a word, which says to which groups of
words it belongs; a rule is a set of regular expressions over that stream. So a rule holds in every language
that its groups know, and the time is linear in the length of the text: repeats are bounded.
"""

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote

from models.injection_rules import (
    COLON,
    END,
    LEADS,
    OTHER,
    PAUSE,
    RULES_VERSION,
    STEM,
    URL,
    Lexicon,
    Rule,
    fold,
    load,
    opening,
)

__all__ = ["RULES_VERSION", "Rule", "rules", "scan", "scan_all", "scan_label"]

# Characters that nobody sees: soft hyphen, joiners, marks and overrides of direction, fillers.
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e01ef]+"
)
_TAGS = {0xE0000 + code: code for code in range(0x20, 0x7F)}
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{20,}={0,2}(?![A-Za-z0-9+/])")
_HAN = "\u2e80-\u9fff\uf900-\ufaff"
_LETTER = rf"[^\W_{_HAN}]"
_SPACED = re.compile(rf"(?<!{_LETTER}){_LETTER}([ .\-*_·|/]){_LETTER}(?:\1{_LETTER})+(?!{_LETTER})")
_SPACED_HAN = re.compile(rf"(?<=[{_HAN}])[ .\-*_·|/]{{1,2}}(?=[{_HAN}])")
_TOKEN = re.compile(
    r"(?P<url>https?://[!-~]+)"
    rf"|(?P<word>(?:[@$!|+€£¡](?={_LETTER}))?{_LETTER}+(?:[@$!|+€£¡-]{_LETTER}+)*[$€]?)|(?P<han>[{_HAN}]+)"
    r"|(?P<end>(?:[!?;\n。！？；…]|\.(?![^\W\s]))+)|(?P<pause>[,()\[\]\"“”„«»、《》「」–—]+)|(?P<colon>:)"
)
_PIECE = re.compile(rf"{_LETTER}+")
_MARKS_OF = {"end": END, "pause": PAUSE, "colon": COLON}
_LONG = 12  # letters of a word that may be several, written together


def scan(text: str) -> tuple[str, ...]:
    """The names of the rules that mark the text, in the order of the data file; empty for most texts."""
    loaded = load()
    found: set[str] = set()
    for form in _forms(text):
        _look_for_shapes(form, loaded.rules, found, raw=False)
        stream = _stream(fold(form), loaded.lexicon)
        tried: set[re.Pattern[str]] = set()
        for code in set(stream):
            for one in loaded.patterns.get(code, ()):
                if one.rule not in found and one.pattern not in tried:
                    tried.add(one.pattern)
                    if one.pattern.search(stream):
                        found.add(one.rule)
    _look_for_shapes(text, loaded.rules, found, raw=True)
    return tuple(rule.name for rule in loaded.rules if rule.name in found)


def scan_all(text: str, *labels: str | None) -> tuple[str, ...]:
    """The same of a text and of the labels that are shown beside it: they may be written to be obeyed too."""
    found = dict.fromkeys(scan(text))
    for label in labels:
        if label:
            found |= dict.fromkeys(scan_label(label))
    return tuple(found)


scan_label = lru_cache(maxsize=1024)(scan)
"""Labels are few, and come with every memory of a session."""


def rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the data file."""
    return load().rules


def _look_for_shapes(text: str, rules: tuple[Rule, ...], found: set[str], *, raw: bool) -> None:
    if not raw and not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    lower = text.lower()
    for rule in rules:
        if rule.raw == raw and rule.name not in found:
            for one in rule.shapes:
                if (not one.has or any(word in lower for word in one.has)) and one.shape.search(text):
                    found.add(rule.name)
                    break


def _forms(text: str) -> Iterator[str]:
    """The text as a reader may take it: decoded, hidden characters left out, and also read as spaces."""
    forms = {text: None}  # a dict for its order
    decoded = html.unescape(text) if "&" in text else text
    forms[unquote(decoded) if _PERCENT.search(decoded) else decoded] = None
    forms.update(dict.fromkeys(_from_base64(text)))
    for form in forms:
        if form.isascii():
            yield form
            continue
        seen = form.translate(_TAGS)
        joined = _HIDDEN.sub("", seen)
        yield joined
        if joined != seen:
            yield _HIDDEN.sub(" ", seen)


def _from_base64(text: str) -> Iterator[str]:
    for match in _BASE64.finditer(text):
        letters = match[0].rstrip("=")
        try:
            yield base64.b64decode(letters + "=" * (-len(letters) % 4)).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError):
            continue  # a word, a digest or a picture


def _stream(text: str, lexicon: Lexicon) -> str:
    """One character a word, of a folded text."""
    text = _SPACED.sub(lambda match: match[0].replace(match[1], ""), text.replace("n't", " not"))
    if not text.isascii():
        text = _SPACED_HAN.sub("", text)
    known, stem_starts, in_phrases = lexicon.words, lexicon.stem_starts, lexicon.in_phrases
    words: list[str] = []  # "" where no phrase can be
    codes: list[str] = []
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "word":
            if code := known.get(token):
                words.append(token)
                codes.append(code)
            elif (
                token.isascii() and token.isalpha() and len(token) < _LONG and token[:STEM] not in stem_starts
            ):
                words.append(token if token in in_phrases else "")
                codes.append(OTHER)
            elif "@" in token and text.startswith(".", match.end()):
                words.append("")
                codes.append(known[URL])
            else:
                for word, code in _read(token, lexicon):
                    words.append(word)
                    codes.append(code)
            continue
        if kind == "han":
            codes.extend(_segment(token, lexicon))
        else:
            codes.append(known[URL] if kind == "url" else _MARKS_OF[kind or ""])
        words.extend([""] * (len(codes) - len(words)))
    return "".join(_clauses(_phrases(words, codes, lexicon), lexicon))


def _clauses(codes: Iterator[str], lexicon: Lexicon) -> Iterator[str]:
    """The codes, where those of words that open a clause say so."""
    leads = 0
    for code in codes:
        if code in (END, PAUSE, COLON):
            leads = 0
        elif code == OTHER:
            leads = LEADS + 1
        elif leads <= LEADS:
            leads = leads + 1 if code in lexicon.leads else LEADS + 1
            code = opening(code)
        yield code


def _phrases(words: list[str], codes: list[str], lexicon: Lexicon) -> Iterator[str]:
    """The codes, where words that stand next to each other make a phrase one for all of them."""
    at, end, phrases = 0, len(words), lexicon.phrases
    while at < end:
        word = words[at]
        if word and word in phrases:
            for parts, code in phrases[word]:
                if tuple(words[at : at + len(parts)]) == parts:
                    yield code
                    at += len(parts)
                    break
            else:
                yield codes[at]
                at += 1
        else:
            yield codes[at]
            at += 1


def _read(token: str, lexicon: Lexicon) -> list[tuple[str, str]]:
    """The words of a token as they are meant, each with its code: as written, with look-alikes and digits
    for the letters that they stand for, its parts put together, its parts by themselves."""
    readings = [token] if token.isascii() and token.isalpha() else list(_readings(token, lexicon))
    for word in readings:
        if code := _code(word, lexicon):
            return [(word, code)]
    for word in readings if len(token) >= _LONG else ():
        if parts := _cover(word, lexicon):
            return parts
    for word in readings:
        if word in lexicon.in_phrases:
            return [(word, OTHER)]
    pieces = _PIECE.findall(token)
    if pieces == [token]:
        return [("", OTHER)]
    return [part for piece in pieces for part in _read(piece, lexicon)]


def _readings(token: str, lexicon: Lexicon) -> Iterator[str]:
    yield token
    if "-" in token:
        token = token.replace("-", "")
        yield token
    if not token.isascii():
        yield token.translate(lexicon.look_back)
        token = token.translate(lexicon.look_alikes)
        yield token
    if not token.isalpha() and any(letter.isalpha() for letter in token):
        for table in lexicon.leet:
            yield token.translate(table)


def _code(word: str, lexicon: Lexicon) -> str | None:
    if code := lexicon.words.get(word):
        return code
    if word[:STEM] in lexicon.stem_starts:
        for length in range(min(len(word), lexicon.longest_stem), STEM - 1, -1):
            if code := lexicon.stems.get(word[:length]):
                return code
    return None


def _cover(token: str, lexicon: Lexicon) -> list[tuple[str, str]]:
    """The known words that a token is made of, taking the longest each time; empty when a letter is left."""
    parts: list[tuple[str, str]] = []
    at = 0
    while at < len(token):
        for length in range(min(len(token) - at, lexicon.longest), 1, -1):
            if code := lexicon.words.get(token[at : at + length]):
                parts.append((token[at : at + length], code))
                at += length
                break
        else:
            return []
    return parts


def _segment(run: str, lexicon: Lexicon) -> Iterator[str]:
    """The codes of a run of Han characters: the longest known word each time; two others count as a word."""
    at = others = 0
    while at < len(run):
        for length in range(min(len(run) - at, lexicon.longest_han), 0, -1):
            if code := lexicon.words.get(run[at : at + length]):
                yield from OTHER * ((others + 1) // 2)
                others = 0
                yield code
                at += length
                break
        else:
            others += 1
            at += 1
    yield from OTHER * ((others + 1) // 2)
