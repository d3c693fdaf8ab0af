"""Whether two sources are one: a label written otherwise, or a repost of one original, says nothing new."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from models.confidence import start_of
from models.folding import fold
from models.memory import Memory
from models.standing import Agreement, Label

# What a bare label is worth as a source: half of an informal statement, since nobody can read what it says.
LABEL_RELIABILITY = 0.35

_PORTS = {"http": 80, "https": 443}
# Beside the characters of format (Cf), what nobody sees: joiners, fillers, selectors of variants.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)

# Why a source counts or not: it is the memory's own, another one of the same source counts already, nobody
# knows where it comes from, or, the memory's own source being unknown, it may be that one.
Why = Literal["independent", "own_source", "same_source", "unknown_source", "may_be_own"]


@dataclass(frozen=True, slots=True)
class Weighed:
    """A source that agrees, and whether it counts."""

    agreement: Agreement
    why: Why


def source_key(label: str) -> str:
    """Equal for labels of one source: folded, without white space, unseen characters and trailing slashes; of
    a URL neither the scheme, the default port, `www.` nor the fragment counts. Empty for a label that says
    nothing."""
    folded = "".join(fold(label).split())
    if not folded.isascii():
        seen = "".join(one for one in folded if unicodedata.category(one) != "Cf")
        folded = fold(_UNSEEN.sub("", seen))
    if "://" in folded:
        folded = _bare(folded)
    return folded.removeprefix("www.").rstrip("/")


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
    named = (memory.origin_id, provenance.source, key_of(memory))
    return frozenset({*(source_key(one) for one in named if one is not None), *provenance.past_sources})


def independent(memory: Memory, agreeing: Iterable[Memory]) -> tuple[Agreement, ...]:
    """Of the sources that agree with a memory, those that count."""
    counted = (one.agreement for one in weigh(memory, agreeing) if one.why == "independent")
    return tuple(sorted(counted, key=_order))


def weigh(memory: Memory, agreeing: Iterable[Memory]) -> list[Weighed]:
    """The memories that agree with one and the labels that were given to it, each counted or not: the most
    reliable of each source other than its own. A source that is not known counts for nothing; and when its
    own is not, the weakest may be itself and is left out."""
    own = own_keys(memory)
    given = [(key_of(other), Agreement(other.memory_id, start_of(other))) for other in agreeing]
    labels = memory.state.standing.labels
    given += [(label_key(one), Agreement(None, LABEL_RELIABILITY, _shown(one))) for one in labels]
    best: dict[str, Agreement] = {}
    for key, agreement in given:
        if key is not None and key not in own and (key not in best or _order(agreement) < _order(best[key])):
            best[key] = agreement
    doubtful = max(best.values(), key=_order, default=None) if key_of(memory) is None else None

    def why(key: str | None, agreement: Agreement) -> Why:
        if key is None:
            return "unknown_source"
        if key in own:
            return "own_source"
        if best[key] is not agreement:
            return "same_source"
        return "may_be_own" if agreement is doubtful else "independent"

    return [Weighed(agreement, why(key, agreement)) for key, agreement in given]


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
