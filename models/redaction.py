"""Secrets and e-mail addresses, taken out of texts that are shown far from where they were said."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

MARK = "[REDACTED]"

_EMAIL = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]+@[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)+")
# What the library leaves to its entropy rules, which take any long word for a secret.
_OURS = (
    re.compile(r"\bbrain_[0-9a-f]{12}_[0-9a-f]{6,64}\b"),
    re.compile(r"\bBearer\s+[A-Za-z0-9._~+/-]{8,}=*", re.IGNORECASE),
    re.compile(r"\b(?:sk|pk|rk|xai|gsk)-[A-Za-z0-9_-]{16,}"),
    re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b"),
    re.compile(r"\bgithub_pat_\w{22,}\b"),
    re.compile(r"\bgh[opsur]_[A-Za-z0-9]{20,}\b"),
    re.compile(r"\bhf_[A-Za-z0-9]{20,}\b"),
    re.compile(r"\bglpat-[\w-]{20,}"),
    re.compile(r"\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*"),
    re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    re.compile(
        r"\b(?:api[_-]?key|token|secret|password|passwd|pwd)\b(\s*[:=]\s*|\s+is\s+)"
        r"(?P<secret>[\"']?[^\s\"',;]{6,}[\"']?)",
        re.IGNORECASE,
    ),
)


def redact(text: str) -> str:
    """The text with `[REDACTED]` in the place of every secret and e-mail address that is found."""
    spans = sorted({*_own_spans(text), *_known_spans(text)})
    kept: list[str] = []
    end = 0
    for start, stop in spans:
        if stop <= end:
            continue
        kept += [text[end:start], MARK] if start >= end else []
        end = stop
    return "".join([*kept, text[end:]])


def _own_spans(text: str) -> Iterator[tuple[int, int]]:
    for pattern in (_EMAIL, *_OURS):
        for match in pattern.finditer(text):
            yield match.span("secret" if "secret" in pattern.groupindex else 0)


def _known_spans(text: str) -> Iterator[tuple[int, int]]:
    """Tokens of known services, by the rules of detect-secrets."""
    for detector in _detectors():
        for secret in detector.analyze_string(text):
            start = text.find(secret)
            while secret and start >= 0:
                yield start, start + len(secret)
                start = text.find(secret, start + len(secret))


@cache
def _detectors() -> tuple[Any, ...]:
    """Those that go by the form of a token. Those that go by entropy or by keywords also take plain words."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector

    public = {"Public IP (ipv4)"}
    found: dict[str, Any] = get_mapping_from_secret_type_to_class()
    return tuple(
        made()
        for name, made in sorted(found.items())
        if issubclass(made, RegexBasedDetector) and name not in public
    )
