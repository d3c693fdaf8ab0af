"""What a session was about, in a word and a line: its intent and topic, and the label made of them."""

from dataclasses import dataclass
from typing import Literal, get_args

Intent = Literal["fea", "des", "fix", "opt", "rel", "exp", "doc", "res"]
"""feature, design, fix, optimise, release, explore, docs, research."""
INTENTS: tuple[Intent, ...] = get_args(Intent)

LabelSource = Literal["summary", "override", "rollup"]
SOURCES: tuple[LabelSource, ...] = get_args(LabelSource)

MAX_TOPIC = 80  # code points
BAR = "\uff5c"  # FULLWIDTH VERTICAL LINE


@dataclass(frozen=True, slots=True)
class Label:
    """What is said of a session; each part may be missing."""

    intent: Intent | None = None
    topic: str | None = None
    source: LabelSource | None = None


def intent_of(text: str | None) -> Intent | None:
    """The intent that a text names, whatever its case and the white space around it; None for another."""
    folded = (text or "").strip().lower()
    return next((intent for intent in INTENTS if intent == folded), None)


def topic_of(text: str | None) -> str | None:
    """The text without the white space around it, when 1 to 80 characters are left; else None."""
    trimmed = (text or "").strip()
    return trimmed if 1 <= len(trimmed) <= MAX_TOPIC else None


def source_of(text: str | None) -> LabelSource | None:
    """One of ours, or None."""
    return next((source for source in SOURCES if source == text), None)


def display_label(mmdd: str, label: Label) -> str | None:
    """`0101｜fix｜Batch text display`; None unless all three are there."""
    if label.intent is None or label.topic is None:
        return None
    return BAR.join((mmdd, label.intent, label.topic))
