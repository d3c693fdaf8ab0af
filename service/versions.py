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
    """Pairs of rows, (k,) each: `olds`, that were replaced, and their `heads`, at the ends of their chains. A
    head stands as often as it has earlier versions."""

    olds: Rows
    heads: Rows

    @classmethod
    def of(cls, corpus: Corpus, filters: Filters, eligible: Mask) -> "Versions":
        """Those that pass every filter but that of the status, and whose head is eligible."""
        replaced = corpus.newer >= 0
        if not replaced.any():  # mostly, and then it costs next to nothing
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))
        heads = np.where(replaced, corpus.newer, np.arange(len(replaced)))
        for _ in range(len(heads).bit_length()):  # each turn reaches twice as far along a chain
            further = heads[heads]
            if np.array_equal(further, heads):
                break
            heads = further
        passing = corpus.eligible(filters.model_copy(update={"statuses": ["superseded"]}))
        olds = np.flatnonzero(passing & replaced & eligible[heads])
        return cls(olds, heads[olds])

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
