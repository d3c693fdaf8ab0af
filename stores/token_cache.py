"""Word pieces in memory: reading those of a search's best rows from the ledger takes longer than comparing
them."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from models.token_codes import TokenCodes

BUDGET = 64_000_000  # bytes: about 13,000 memories of 30 pieces
OBJECTS = 700  # bytes of a chunk beside its arrays' contents

Read = Callable[[Sequence[str], str], Mapping[str, list[TokenCodes]]]


class TokenCache:
    """The pieces that were read last. May be called from any thread; `read` gives what is stored of some
    memories under a fingerprint, and raises what it raises."""

    def __init__(self, read: Read, budget: int = BUDGET):
        self._read = read
        self._budget = budget
        self._changed = threading.Lock()  # guards what follows
        self._held: OrderedDict[str, list[TokenCodes]] = OrderedDict()
        self._fingerprint: str | None = None
        self._times_cleared = 0
        self.size_bytes = 0

    def of(self, memory_ids: Sequence[str], fingerprint: str) -> dict[str, list[TokenCodes]]:
        """The pieces of those memories that have any, by chunk."""
        with self._changed:
            if fingerprint != self._fingerprint:
                self._clear()
                self._fingerprint = fingerprint
            found = {id: chunks for id in memory_ids if (chunks := self._held.get(id)) is not None}
            for id in found:
                self._held.move_to_end(id)
            cleared = self._times_cleared
        missing = [id for id in memory_ids if id not in found]
        if missing:
            # What has no pieces yet is asked for each time: they may come with the next commit.
            read = self._read(missing, fingerprint)
            found |= read
            with self._changed:
                if cleared == self._times_cleared:  # else it may be of before
                    self._keep(read)
        return found

    def forget(self, memory_id: str) -> None:
        """Let go of a memory that is shown to nobody any more."""
        with self._changed:
            self._times_cleared += 1  # one that is being read now is not kept either
            self._drop(memory_id)

    def clear(self) -> None:
        """What is stored has changed."""
        with self._changed:
            self._clear()

    def _clear(self) -> None:
        self._held.clear()
        self.size_bytes = 0
        self._times_cleared += 1

    def _keep(self, read: Mapping[str, list[TokenCodes]]) -> None:
        for id, chunks in read.items():
            self._drop(id)
            self._held[id] = chunks
            self.size_bytes += _size(chunks)
        while self.size_bytes > self._budget:
            self._drop(next(iter(self._held)))

    def _drop(self, memory_id: str) -> None:
        chunks = self._held.pop(memory_id, None)
        if chunks is not None:
            self.size_bytes -= _size(chunks)


def _size(chunks: Sequence[TokenCodes]) -> int:
    return sum(chunk.codes.nbytes + chunk.scales.nbytes + chunk.pieces.nbytes + OBJECTS for chunk in chunks)
