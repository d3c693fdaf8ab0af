"""Whether two sources are one: a label written otherwise, or a repost of one original, says nothing new."""

import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from models.confidence import DRAWN, start_of
from models.folding import fold, seen
from models.injection_rules import MARKS, load
from models.memory import Memory
from models.standing import Agreement, Label

# What a bare label is worth as a source: half of an informal statement, since nobody can read what it says.
LABEL_RELIABILITY = 0.35

_PORTS = {"http": 80, "https": 443}
# Letters that look like digits in some typeface. Two sources that differ by them alone are rare, and to count
# one too few does no harm.
_ALIKE = str.maketrans("oil|", "0111")
# What some write between two letters and others leave out; between digits it says something.
_BETWEEN = re.compile("(?<=[^\\W\\d_])[-_'\u2019\u00b7\u2010-\u2015]+(?=[^\\W\\d_])")
_TWO_FOR_ONE = (("rn", "m"), ("vv", "w"))

# Why a source counts or not: it is in open conflict with the memory, one of the two was derived from the
# other or both from one original, it is the memory's own source, another one of the same source counts
# already, nobody knows where it comes from, or, the memory's own source being unknown, it may be that one.
Why = Literal[
    "independent", "contradicts", "derived", "own_source", "same_source", "unknown_source", "may_be_own"
]


@dataclass(frozen=True, slots=True)
class Weighed:
    """A source that agrees, and whether it counts."""

    agreement: Agreement
    why: Why


def source_key(label: str) -> str:
    """Equal for labels of one source: folded, without white space, unseen characters, accents, hyphens
    between letters and the punctuation around it; letters and signs that look alike are one. Of a URL neither
    the scheme, the default port, `www.` nor the fragment counts. Empty for a label that says nothing."""
    folded = "".join(fold(label).split())
    if not folded.isascii():  # accents first: one that stands alone would part what is beside it
        folded = "".join(_unaccented(fold(seen(folded))).split())
    named = _unquoted(folded).removeprefix("mailto:")
    if "://" in named:
        named = _unquoted(_bare(named))
    return _plain(_BETWEEN.sub("", named) or folded.strip("/")).removeprefix("www.")


def _unquoted(text: str) -> str:
    """Without the punctuation around it."""
    start, end = 0, len(text)
    while start < end and unicodedata.category(text[start])[0] == "P":
        start += 1
    while start < end and unicodedata.category(text[end - 1])[0] == "P":
        end -= 1
    return text[start:end]


def _plain(text: str) -> str:
    """With one letter for all that look like it, in whatever script."""
    if not text.isascii():
        text = _unaccented(text).translate(load().lexicon.look_alikes)
    text = text.translate(_ALIKE)
    for two, one in _TWO_FOR_ONE:
        text = text.replace(two, one)
    return text


def _unaccented(text: str) -> str:
    return unicodedata.normalize("NFKC", MARKS.sub("", unicodedata.normalize("NFKD", text)))


def key_of(memory: Memory) -> str | None:
    """The source of a memory: its original where that is known, else who it comes from; None when neither."""
    label = memory.origin_id or memory.state.provenance.source or memory.actor
    return None if label is None else source_key(label)


def label_key(label: Label) -> str:
    """The source that a label names: the original, where that was given."""
    return source_key(label.origin_id or label.source)


def own_keys(memory: Memory) -> frozenset[str]:
    """All that a memory's own source is called, or was called before somebody named it anew."""
    provenance = memory.state.provenance
    named = (memory.origin_id, provenance.source, memory.actor)
    # Keys that were kept when less was taken for the same are brought to what they are now.
    past = (*provenance.past_sources, *(source_key(one) for one in provenance.past_sources))
    return frozenset({*(source_key(one) for one in named if one is not None), *past})


def independent(
    memory: Memory, agreeing: Iterable[Memory], kin: Collection[str] = (), against: Collection[str] = ()
) -> tuple[Agreement, ...]:
    """Of the sources that agree with a memory, those that count."""
    counted = (one.agreement for one in weigh(memory, agreeing, kin, against) if one.why == "independent")
    return tuple(sorted(counted, key=_order))


def weigh(
    memory: Memory, agreeing: Iterable[Memory], kin: Collection[str] = (), against: Collection[str] = ()
) -> list[Weighed]:
    """The memories that agree with one and the labels that were given to it, each counted or not: the most
    reliable of each source other than its own. A source that is not known counts for nothing; and when its
    own is not, the weakest may be itself and is left out. `kin` are the ids of memories of one lineage with
    it by links that were set: what was drawn from a text does not bear it out. `against` are those that it is
    in open conflict with."""
    own = own_keys(memory)
    heard = list(agreeing)
    drawn = {one.memory_id for one in heard if one.memory_id in kin or _of_one_lineage(memory, one)}
    given = [(key_of(other), Agreement(other.memory_id, start_of(other))) for other in heard]
    labels = memory.state.standing.labels
    given += [(label_key(one), Agreement(None, LABEL_RELIABILITY, _shown(one))) for one in labels]
    best: dict[str, Agreement] = {}
    for key, agreement in given:
        if key is None or key in own or agreement.memory_id in drawn or agreement.memory_id in against:
            continue
        if key not in best or _order(agreement) < _order(best[key]):
            best[key] = agreement
    doubtful = max(best.values(), key=_order, default=None) if key_of(memory) is None else None

    def why(key: str | None, agreement: Agreement) -> Why:
        if agreement.memory_id in against:
            return "contradicts"
        if agreement.memory_id in drawn:
            return "derived"
        if key is None:
            return "unknown_source"
        if key in own:
            return "own_source"
        if best[key] is not agreement:
            return "same_source"
        return "may_be_own" if agreement is doubtful else "independent"

    return [Weighed(agreement, why(key, agreement)) for key, agreement in given]


def _of_one_lineage(memory: Memory, other: Memory) -> bool:
    """Whether one was derived from the other, or both from one original, by what the records say."""
    origins = {memory.memory_id, memory.source_raw_memory_id} - {None}
    if origins & {other.memory_id, other.source_raw_memory_id}:
        return True
    return other.layer in DRAWN and memory.memory_id in other.state.evidence_ids


def _shown(label: Label) -> str:
    return label.source if label.origin_id is None else f"{label.source} ({label.origin_id})"


def _order(agreement: Agreement) -> tuple[float, bool, str]:
    """The most reliable first; of equal ones that which was there first, so that a repeat changes nothing:
    ids sort by time, and labels stand in the order in which they were given."""
    return -agreement.reliability, agreement.memory_id is None, agreement.memory_id or ""


def _bare(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    host = (parts.hostname or "").removeprefix("www.").rstrip(".")
    if port not in (None, _PORTS.get(parts.scheme)):
        host = f"{host}:{port}"
    scheme = "" if parts.scheme in _PORTS else f"{parts.scheme}://"
    return f"{scheme}{host}{unquote(parts.path)}" + (f"?{parts.query}" if parts.query else "")
