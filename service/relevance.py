"""How relevant a row is in itself. Pure.

Fitted to tell questions that a set of memories answers from questions of another set; docs/retrieval.md has
the figures."""

from dataclasses import dataclass

import numpy as np

from service.ranking import Evidence, Floats

UNREAD_COSINE = 0.25  # how much nearer texts seem in a script that the model does not read
STRANGER = 3.0  # what a chat loses, in logits, when it is asked about somebody whom nobody there names


@dataclass(frozen=True, slots=True)
class Fit:
    """A logistic regression of relevance."""

    constant: float
    cosine: float
    coverage: float
    late: float = 0.0


# The constants are shifted so that a floor of .08 refuses next to no question that has an answer.
CHAT_LATE = Fit(-11.1, 6.64, 5.13, 20.5)
CHAT = Fit(-6.9, 14.18, 10.04)
PLAIN = Fit(-5.7, 16.5, 6.0)
# Of what the model has not seen, and when it is not there: one word in eight is enough.
WORDS = Fit(-3.5, 0.0, 8.0)


def absolute_relevance(e: Evidence, pieces: Floats | None) -> Floats:
    """(n,) 0..1: 1 for an exact identifier, else a logistic regression on the cosine, the share of the words
    and, in chats, late interaction."""
    unseen = np.isnan(e.dense)
    cosine = np.where(unseen, 0, e.dense - UNREAD_COSINE * e.unread)
    logit = np.where(e.messages, _logit(CHAT, cosine, e.coverage), _logit(PLAIN, cosine, e.coverage))
    logit = np.where(unseen, _logit(WORDS, cosine, e.coverage), logit)
    if pieces is not None:
        looked_at = e.messages & ~unseen & ~np.isnan(pieces)
        late = np.where(looked_at, pieces, 0)
        logit = np.where(looked_at, _logit(CHAT_LATE, cosine, e.coverage) + CHAT_LATE.late * late, logit)
    logit = logit - STRANGER * e.stranger * e.messages
    relevance: Floats = np.where(e.identifiers > 0, 1, 1 / (1 + np.exp(-logit))).astype(np.float32)
    return relevance


def _logit(fit: Fit, cosine: Floats, coverage: Floats) -> Floats:
    return fit.constant + fit.cosine * cosine + fit.coverage * coverage
