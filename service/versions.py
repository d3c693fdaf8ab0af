"""The earlier versions of a memory as further texts of it: whoever asks in the words of one that was replaced
is answered with what replaced it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.requests import Filters
from service.corpus import Corpus, Floats, Mask, Rows


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """Pairs of rows, (k,) each: `olds`, that were replaced, and their `heads`, the last eligible ones of
    their chains. A head stands as often as it has earlier versions."""

    olds: Rows
    heads: Rows

    @classmethod
    def of(cls, corpus: Corpus, filters: Filters, eligible: Mask) -> "Versions":
        """Those that pass every filter but that of the status, and lead to an eligible row."""
        nothing = np.zeros(0, np.int64)
        if corpus.newer.max(initial=-1) < 0:  # mostly, and then it costs next to nothing
            return cls(nothing, nothing)
        passing = corpus.eligible(filters.model_copy(update={"statuses": ["superseded"]}))
        olds = np.flatnonzero(passing & (corpus.newer >= 0))
        heads = np.full(len(olds), -1, np.int64)
        going, at = np.arange(len(olds)), corpus.newer[olds]
        while len(going):
            found = eligible[at]
            heads[going[found]] = at[found]
            at = corpus.newer[at]
            going, at = going[at >= 0], at[at >= 0]
        led = heads >= 0
        return cls(olds[led], heads[led])

    def raise_heads(self, values: NDArray[Any]) -> None:
        """Give each head the greatest of its own value and those of its earlier versions, in place. `values`
        (…, n); NaN is less than any."""
        if len(self.olds):
            np.fmax.at(values.T, self.heads, values.T[self.olds])

    def nearest(self, values: Floats) -> "Versions":
        """For each head one earlier version, that of the greatest of the values (n,)."""
        order = np.lexsort((np.nan_to_num(values[self.olds], nan=-np.inf), self.heads))
        heads = self.heads[order]
        last = np.append(heads[1:] != heads[:-1], True)[: len(heads)]
        return Versions(self.olds[order][last], heads[last])

    def of_heads(self, rows: Mask) -> "Versions":
        """Those whose heads are among the rows (n,)."""
        among = rows[self.heads]
        return Versions(self.olds[among], self.heads[among])
