"""What runs in the one child process that holds Chroma: the only module that imports chromadb.

The parent (`stores.vdb`) imports this module to name its functions, so chromadb is imported inside functions
only. Why a child: a Chroma write holds the interpreter lock for tens of milliseconds, and a broken index ends
its process.

One shard is one directory with one Chroma collection:

    <memory_id>        vector of the first chunk; scope, user, layer, kind, version, record (one JSON string)
    <memory_id>#1…n    vectors of the further chunks; parent (the memory_id), scope, user

Never the user's metadata as keys, never a document, never Chroma's own embedding function. Vectors are
float32, distances are cosine distances (0 … 2). Every function raises `WorkerError` and nothing else.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

import numpy as np

from models.priority import give_way
from stores import malloc

if TYPE_CHECKING:
    from stores.vdb import VdbRow

P = ParamSpec("P")
T = TypeVar("T")

ROWS_PER_CALL = 5_000  # Chroma refuses more than 5,461 rows in one call
PAGE = 1_000  # rows read at once by `rows`: Chroma sends each row's whole record along
NICE = 10  # nobody waits for a memory to reach Chroma
LOCK_WAIT_S = 5.0
_LOCK_POLL_S = 0.02
_COLLECTION = "memories"
_HNSW = {"space": "cosine", "ef_search": 100}


class WorkerError(Exception):
    """A call failed in the child; the argument is the reason, as text (not all of Chroma's errors pickle)."""


class _NoEmbedding:
    """Stands where Chroma would put its default model, which it downloads: a call is a mistake of ours."""

    def __call__(self, input: Any) -> NoReturn:  # Chroma checks the argument's name
        raise AssertionError("Chroma was asked to embed: rows and queries must carry their vectors")

    embed_query = __call__

    @staticmethod
    def name() -> str:
        return "brain-memory-none"


class _Shards:
    """The open shards of one root. Its lock is taken before the first is opened, and kept until death."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock: int | None = None
        self._open: dict[str, tuple[Any, Any]] = {}
        self.put: dict[str, set[str]] = {}  # all ids that were ever put into a directory that was made here

    def collection(self, shard_dir: str, *, create: bool = False) -> Any:
        """The shard's collection, opened when needed; None if there is none and `create` is false."""
        if shard_dir not in self._open:
            exists = Path(shard_dir, "chroma.sqlite3").exists()
            if not create and not exists:
                return None
            self._take_lock()
            if not exists:
                self.put[shard_dir] = set()
            with malloc.wiping(not exists):
                self._open[shard_dir] = _open(shard_dir)
                self._open[shard_dir][1].count()  # the first call loads the index
        elif not Path(shard_dir, "chroma.sqlite3").exists():
            # Reads would go on with the deleted files; an outage of the whole shard has it filled anew.
            raise WorkerError("its files were deleted")
        return self._open[shard_dir][1]

    def close(self, shard_dir: str) -> None:
        self.put.pop(shard_dir, None)
        client, _ = self._open.pop(shard_dir, (None, None))
        if client is not None:
            client.close()

    def _take_lock(self) -> None:
        """Two processes on one Chroma directory silently lose rows for ever: wait for the other to be gone.

        The other is normally the dying child of a killed parent, so the wait is short; it is bounded, so that
        a second *living* server is named and not waited for. The kernel releases the lock at our death.
        """
        if self._lock is not None:
            return
        self._root.mkdir(parents=True, exist_ok=True)
        path = self._root / "worker.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    raise WorkerError(f"another process holds {path}") from None
                time.sleep(_LOCK_POLL_S)
        self._lock = descriptor


def _open(shard_dir: str) -> tuple[Any, Any]:
    import chromadb
    from chromadb.api.shared_system_client import SharedSystemClient
    from chromadb.config import Settings

    Path(shard_dir).mkdir(parents=True, exist_ok=True)
    try:
        client = chromadb.PersistentClient(shard_dir, settings=Settings(anonymized_telemetry=False))
    except BaseException:
        # Chroma 1.5.9 keeps the half-started client under its path and would hand it to the next attempt.
        SharedSystemClient._identifier_to_system.pop(shard_dir, None)
        raise
    configuration: Any = {"hnsw": dict(_HNSW)}
    client.get_or_create_collection(_COLLECTION, embedding_function=None, configuration=configuration)
    guard: Any = _NoEmbedding()
    return client, client.get_collection(_COLLECTION, embedding_function=guard)


shards: _Shards  # this process's one state: set by `initialize`, which runs in the child only


def initialize(root: str) -> None:
    """Make this process a fit home for Chroma under `root`: see the comments. Runs once, before any call."""
    global shards
    threading.Thread(target=_die_with_parent, daemon=True, name="die-with-parent").start()
    os.dup2(2, 1)  # a `brain mcp` parent speaks JSON-RPC on the stdout that we inherited
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; our parent ends us
    os.environ["ANONYMIZED_TELEMETRY"] = "False"
    malloc.wipe()
    give_way(NICE)
    import chromadb  # noqa: F401  (0.7 s: paid at the start and not by the first call)

    shards = _Shards(Path(root))


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def boundary(function: Callable[P, T]) -> Callable[P, T]:
    """The one place where Chroma's errors, which have no common type, become ours."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except WorkerError:
            raise
        # BaseException: a panic in Chroma's Rust half is not an Exception.
        except BaseException as error:  # noqa: BLE001
            raise WorkerError(f"{type(error).__name__}: {error}") from None

    return call


@boundary
def ping() -> int:
    """The child's process id."""
    return os.getpid()


@boundary
def put(shard_dir: str, rows: Sequence[VdbRow]) -> None:
    """Store rows, replacing whatever these memories had (of two rows of one memory the later wins).

    Delete, then add: upserting in place merges metadata and makes live rows unfindable. First rows go out
    first and come in last, so that a memory which `stored` names has all its chunks, whenever we are killed.
    """
    collection = shards.collection(shard_dir, create=True)
    latest = {row.memory_id: row for row in rows}
    known = shards.put.get(shard_dir)  # to look for what can't be there takes half of the time
    _delete(collection, [memory_id for memory_id in latest if known is None or memory_id in known])
    if known is not None:
        known.update(latest)  # first: an add may fail half-way
    entries = [
        (f"{row.memory_id}#{number}", vector, {"parent": row.memory_id, "scope": row.scope, "user": row.user})
        for row in latest.values()
        for number, vector in enumerate(row.vectors[1:], start=1)
    ] + [(row.memory_id, row.vectors[0], _metadata(row)) for row in latest.values()]
    for part in _parts(entries):
        ids, vectors, metadatas = zip(*part, strict=True)
        collection.add(ids=list(ids), embeddings=np.stack(vectors), metadatas=list(metadatas))


def _metadata(row: VdbRow) -> dict[str, Any]:
    keys = ("scope", "user", "layer", "kind", "version", "record")
    return {key: getattr(row, key) for key in keys}


@boundary
def remove(shard_dir: str, memory_ids: Sequence[str]) -> None:
    """Delete these memories with all their chunks; unknown ids and shards are no error."""
    collection = shards.collection(shard_dir)
    if collection is not None:
        _delete(collection, memory_ids)


def _delete(collection: Any, memory_ids: Sequence[str]) -> None:
    present: list[str] = []
    for part in _parts(list(dict.fromkeys(memory_ids))):
        present += collection.get(ids=part, include=[])["ids"]
    for part in _parts(list(dict.fromkeys(memory_ids))):
        present += collection.get(where={"parent": {"$in": part}}, include=[])["ids"]
    for part in _parts(present):
        collection.delete(ids=part)


@boundary
def get(shard_dir: str, memory_ids: Sequence[str]) -> dict[str, str]:
    """The record JSON of those of these memories that are stored."""
    collection = shards.collection(shard_dir)
    found: dict[str, str] = {}
    if collection is not None:
        for part in _parts(list(dict.fromkeys(memory_ids))):
            answer = collection.get(ids=part, include=["metadatas"])
            records = (metadata["record"] for metadata in answer["metadatas"])
            found.update(zip(answer["ids"], records, strict=True))
    return found


@boundary
def query(shard_dir: str, vector: bytes, scope: str, user: str | None, k: int) -> list[tuple[str, float]]:
    """The k memories of a scope (of one user in it) nearest to a vector (float32 bytes): id, cosine distance.

    A memory counts once, by its best chunk: when its chunks fill the answer, more rows are asked for.
    """
    collection = shards.collection(shard_dir)
    if collection is None:
        return []
    where: dict[str, Any] = {"scope": scope}
    if user is not None:
        where = {"$and": [where, {"user": user}]}
    embedding = np.frombuffer(vector, dtype=np.float32)
    rows = min(k, ROWS_PER_CALL)
    while True:
        answer = collection.query(
            query_embeddings=[embedding], n_results=rows, where=where, include=["distances"]
        )
        best: dict[str, float] = {}
        for row_id, distance in zip(answer["ids"][0], answer["distances"][0], strict=True):
            best.setdefault(row_id.partition("#")[0], float(distance))  # nearest first: the first is the best
        if len(best) >= k or len(answer["ids"][0]) < rows or rows == ROWS_PER_CALL:
            return list(best.items())[:k]
        rows = min(rows * 4, ROWS_PER_CALL)


@boundary
def rows(shard_dir: str, offset: int) -> tuple[list[tuple[str, int | None, bytes]], bool]:
    """The PAGE rows from `offset` on, and whether more may follow: each row's id, and of a first row the
    version and the digest of the record (None and nothing of a chunk's)."""
    collection = shards.collection(shard_dir)
    if collection is None:
        return [], False
    page = collection.get(limit=PAGE, offset=offset, include=["metadatas"])
    found = [
        (row_id, metadata.get("version"), digest(metadata["record"]) if "record" in metadata else b"")
        for row_id, metadata in zip(page["ids"], page["metadatas"], strict=True)
    ]
    return found, len(found) == PAGE


def digest(record: str) -> bytes:
    """What is compared of a record instead of all its text."""
    return hashlib.blake2b(record.encode(), digest_size=12).digest()


@boundary
def close(shard_dir: str) -> None:
    """Close the shard, so that its directory may be deleted; a later call opens it again."""
    shards.close(shard_dir)


def _parts(items: list[T]) -> Iterator[list[T]]:
    return (items[start : start + ROWS_PER_CALL] for start in range(0, len(items), ROWS_PER_CALL))
