"""The least that can be done for the same result, in this process: embed, commit, score, read the rows."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from models.embedding import BATCH, DEFAULT_MODEL, EXPORTS, Chunk, Floats, OnnxEncoder
from models.multilingual import PASSAGE, TWIN, VECTORS, MultilingualVectors


class Models:
    """The two models that the server serves with, one after the other."""

    def __init__(self) -> None:
        self._pieces = OnnxEncoder(DEFAULT_MODEL, EXPORTS / TWIN)
        self._vectors = MultilingualVectors(EXPORTS / TWIN / VECTORS)
        self.chunk = self._pieces.chunk

    def encode(self, chunks: Sequence[Chunk]) -> list[Floats]:
        """The vector of each chunk; its pieces are made and left."""
        self._pieces.encode(chunks)
        return [self._vectors.of(chunk.text, PASSAGE) for chunk in chunks]


def embed(model: Models, text: str) -> Floats:
    return model.encode(model.chunk(text))[0]


def raw_encode(model: Models, texts: Sequence[str]) -> float:
    """Seconds to embed texts, sorted by length so that little is padded."""
    started = time.perf_counter()
    chunks = sorted((chunk for text in texts for chunk in model.chunk(text)), key=len)
    for start in range(0, len(chunks), BATCH):
        model.encode(chunks[start : start + BATCH])
    return time.perf_counter() - started


class Rows:
    """A table with a text and a vector, in SQLite, as durable as the ledger."""

    def __init__(self, file: Path):
        self._connection = sqlite3.connect(file, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT, vector BLOB)")

    def add(self, text: str, vector: Floats) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("INSERT INTO rows (text, vector) VALUES (?, ?)", (text, vector.tobytes()))
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def each_ms(work: Callable[[str], Any], texts: Sequence[str]) -> list[float]:
    """Milliseconds that each text took."""
    taken = []
    for text in texts:
        started = time.perf_counter()
        work(text)
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def nearest(matrix: Floats, vector: Floats, count: int = 10) -> Any:
    """The rows of (n, dimensions) that are nearest to a vector, by exact scoring."""
    cosines = matrix @ vector
    best = np.argpartition(-cosines, count)[:count]
    return best[np.argsort(-cosines[best])]


_PARTITION = "WHERE m.product = 'default' AND m.agent = ? AND m.user = 'default' ORDER BY m.seq"
_ROWS = (
    f"SELECT m.*, v.version, v.state FROM memories m JOIN versions v USING (memory_id) {_PARTITION}",
    f"SELECT m.memory_id, t.terms FROM memories m JOIN tokens t USING (memory_id) {_PARTITION}",
    f"SELECT m.memory_id, x.vector FROM memories m JOIN vectors x USING (memory_id) {_PARTITION}",
)


def read_rows(ledger: Path, agent: str) -> tuple[float, Floats]:
    """Seconds to read all rows of an agent from the ledger with plain sqlite3, and its vectors."""
    started = time.perf_counter()
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        found = [connection.execute(query, (agent,)).fetchall() for query in _ROWS]
    matrix = np.frombuffer(b"".join(blob for _, blob in found[-1]), "<f4").reshape(len(found[-1]), -1)
    return time.perf_counter() - started, matrix
