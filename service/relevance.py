"""How relevant a row is in itself. Pure.

Fitted to tell questions that a set of memories answers from questions of another set; docs/retrieval.md has
the figures."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from service.ranking import Evidence, Floats, Mask

UNREAD_COSINE = 0.25  # how much nearer texts seem in a script that the model does not read
STRANGER = 3.0  # what a chat loses, in logits, when it is asked about somebody whom nobody there names


@dataclass(frozen=True, slots=True)
class Fit:
    """A logistic regression of relevance."""

    constant: float
    cosine: float
    coverage: float
    late: float = 0.0

    def logit(self, cosine: Floats, coverage: Floats, late: Floats | float = 0.0) -> Any:
        return self.constant + self.cosine * cosine + self.coverage * coverage + self.late * late


@dataclass(frozen=True, slots=True)
class Fits:
    """Of messages and of the rest, each without and with late interaction."""

    chat: Fit
    chat_late: Fit
    plain: Fit
    plain_late: Fit


# The constants are shifted so that a floor of .08 refuses next to no question that has an answer.
ENGLISH = Fits(
    chat=Fit(-6.9, 14.18, 10.04),
    chat_late=Fit(-11.1, 6.64, 5.13, 20.5),
    plain=Fit(-5.7, 16.5, 6.0),
    plain_late=Fit(-5.7, 16.5, 6.0),
)
MULTILINGUAL = Fits(
    chat=Fit(-7.3, 15.96, 9.56),
    chat_late=Fit(-7.3, 15.96, 9.56),
    plain=Fit(-7.0, 21.85, 5.58),
    plain_late=Fit(-8.4, 19.15, 4.35, 5.26),
)
# Of what the model has not seen, and when it is not there: one word in eight is enough.
WORDS = Fit(-3.5, 0.0, 8.0)


def absolute_relevance(e: Evidence, pieces: Floats | None) -> Floats:
    """(n,) 0..1: 1 for an exact identifier, else a logistic regression on the cosine, the share of the words
    and late interaction."""
    unseen = np.isnan(e.dense)
    fits, strange = (MULTILINGUAL, 0.0) if e.multilingual else (ENGLISH, UNREAD_COSINE * e.unread)
    given = np.where(unseen, 0, e.dense - strange), e.coverage
    logit = _by_kind(e.messages, fits.chat, fits.plain, *given)
    logit = np.where(unseen, WORDS.logit(*given), logit)
    if pieces is not None:
        looked_at = ~unseen & ~np.isnan(pieces)
        late = np.where(looked_at, pieces, 0)
        logit = np.where(
            looked_at, _by_kind(e.messages, fits.chat_late, fits.plain_late, *given, late), logit
        )
    logit = logit - STRANGER * e.stranger * e.messages
    relevance: Floats = np.where(e.identifiers > 0, 1, 1 / (1 + np.exp(-logit))).astype(np.float32)
    return relevance


def _by_kind(messages: Mask, chat: Fit, plain: Fit, *given: Floats) -> Any:
    """(n,) the logits of messages by one fit, and of the rest by the other."""
    others = plain.logit(*given)
    return np.where(messages, chat.logit(*given), others) if messages.any() else others
