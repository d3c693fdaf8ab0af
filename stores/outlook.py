"""What the ledger holds, as a rebuild needs it: what is to be embedded, and what is to stand in Chroma."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

import orjson
from sqlalchemy import ColumnElement, and_, func, or_, select

from models.layers import HIDDEN
from models.scope import Scope
from stores.embedding_run import Mark
from stores.generations import PROGRESS
from stores.ledger import Ledger
from stores.refill import put_row
from stores.schema import events, memories, settings, token_vectors, vectors, versions
from stores.vdb import shard_of

_CURRENT = (versions.c.memory_id == memories.c.memory_id) & versions.c.to_seq.is_(None)


@dataclass(frozen=True, slots=True)
class Todo:
    """Memories to embed, oldest first, and the scopes that they are of. `skipped` were done before an
    interruption; `key` names this piece of work."""

    ids: list[str]
    scopes: frozenset[Scope]
    skipped: int
    key: str


def todo(
    ledger: Ledger, fingerprint: str, scopes: Collection[Scope], layers: Collection[str], *, missing: bool
) -> Todo:
    """The memories in sight of these scopes and layers (empty: all). When `missing`, those alone that have no
    vectors of the fingerprint, of their own or of their word pieces; else those behind the last one that an
    interrupted run of the same kind came to."""
    conditions: list[ColumnElement[bool]] = [versions.c.status.not_in(HIDDEN)]
    if scopes:
        product, agent = memories.c.product, memories.c.agent
        conditions.append(or_(*(and_(product == scope.product, agent == scope.agent) for scope in scopes)))
    if layers:
        conditions.append(memories.c.layer.in_(sorted(layers)))
    query = (
        select(memories.c.memory_id, memories.c.product, memories.c.agent)
        .join(versions, _CURRENT)
        .where(*conditions)
        .order_by(memories.c.seq)
    )
    if missing:
        whole = [
            select(table.c.chunk)
            .where(table.c.memory_id == memories.c.memory_id, table.c.fingerprint == fingerprint)
            .exists()
            for table in (vectors, token_vectors)
        ]
        query = query.where(~and_(*whole))
    key = hashlib.sha256(repr((fingerprint, sorted(scopes), sorted(layers))).encode()).hexdigest()[:16]
    with ledger.snapshot() as connection:
        rows = connection.execute(query).all()
        progress = connection.scalar(select(settings.c.value).where(settings.c.name == PROGRESS))
    ids, found = [row[0] for row in rows], frozenset(Scope(row[1], row[2]) for row in rows)
    skipped = 0
    if not missing and progress is not None:
        kept = orjson.loads(progress)
        if kept["key"] == key and kept["last"] in ids:
            skipped = ids.index(kept["last"]) + 1
    return Todo(ids[skipped:], found, skipped, key)


def marker(key: str) -> Mark:
    """Notes, with each window, how far a piece of work has come: with the same model nothing else tells."""
    return lambda transaction, last: put_row(
        transaction, PROGRESS, orjson.dumps({"key": key, "last": last}).decode()
    )


@dataclass(frozen=True, slots=True)
class Outlook:
    """The ledger after event `seq`. `shown`: by shard, the version of each memory in sight that has vectors;
    `missing`: those in sight that have none."""

    seq: int
    shown: dict[int, dict[str, int]]
    missing: list[str]
    purged: frozenset[str]


def look(ledger: Ledger, fingerprint: str) -> Outlook:
    """One snapshot."""
    columns = (memories.c.memory_id, memories.c.product, memories.c.agent, versions.c.version)
    query = select(*columns, versions.c.status).join(versions, _CURRENT).order_by(memories.c.seq)
    with ledger.snapshot() as connection:
        seq = connection.scalar(select(func.max(events.c.seq))) or 0
        with_vectors = set(
            connection.scalars(
                select(vectors.c.memory_id).where(vectors.c.fingerprint == fingerprint).distinct()
            )
        )
        rows = connection.execute(query).all()
    shards: dict[Scope, int] = {}
    shown: dict[int, dict[str, int]] = {}
    missing, purged = [], []
    for memory_id, product, agent, version, status in rows:
        if status == "purged":
            purged.append(memory_id)
        if status in HIDDEN:
            continue
        scope = Scope(product, agent)
        shard = shards.get(scope)
        if shard is None:
            shard = shards[scope] = shard_of(*scope)
        if memory_id in with_vectors:
            shown.setdefault(shard, {})[memory_id] = version
        else:
            missing.append(memory_id)
    return Outlook(seq, shown, missing, frozenset(purged))
