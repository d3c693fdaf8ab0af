"""Between a `Memory` and its rows in the ledger."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import ColumnElement, CompoundSelect, Connection, Select, Table, Text, select, type_coerce

from models.layers import HIDDEN
from models.memory import Memory, State
from models.provenance import details_from
from models.scope import Partition
from stores.schema import memories, versions

Values = dict[str, Any]

VARIABLES = 500  # at the most in one statement; SQLite's own limit is in the thousands

_partition = lru_cache(maxsize=1024)(Partition)  # one object for all records of a partition

# In the order of the record's own fields.
_PLAIN = (
    "memory_id",
    "kind",
    "layer",
    "content",
    "source_authority",
    "gmt_created",
    "seq",
    "number",
    "memory_at",
    "actor",
    "project",
    "session_id",
    "session_key",
    "session_position",
    "origin_id",
    "source_raw_memory_id",
)
PLACE = ("product", "agent", "user")  # of the partition
NAMES = (*PLACE, *_PLAIN, "details", "version", "state")
"""Of the columns of `select_memories`."""
_COLUMNS = tuple(memories.c[name] for name in _PLAIN)

_DETAILS = type_coerce(memories.c.details, Text)
_STATE = type_coerce(versions.c.state, Text)  # parsed by us: equal ones are one object in memory


def plain_rows(
    connection: Connection, query: Select[Any] | CompoundSelect[Any], values: Values | None = None
) -> Sequence[Any]:
    """The rows as plain tuples: SQLAlchemy's own take a third of the time of a load."""
    cursor = connection.execute(query, values).cursor
    assert cursor is not None
    return cursor.fetchall()


def select_memories(at: int | None = None) -> Select[Any]:
    """Memories joined with their current version, or that which held after event `at`; the caller adds its
    own conditions."""
    return _select(at, *(memories.c[name] for name in PLACE))


def select_of_one_partition(at: int | None = None) -> Select[Any]:
    """The same without the columns of the partition."""
    return _select(at)


def _select(at: int | None, *place: ColumnElement[Any]) -> Select[Any]:
    return select(*place, *_COLUMNS, _DETAILS, versions.c.version, _STATE).join(
        versions, (versions.c.memory_id == memories.c.memory_id) & holding(at)
    )


def holding(at: int | None) -> ColumnElement[bool]:
    """Whether a version holds now, or held after event `at`."""
    return held(versions, at)


def held(table: Table, at: int | None) -> ColumnElement[bool]:
    """The same of any table whose rows hold from one event to another."""
    if at is None:
        return table.c.to_seq.is_(None)
    return (table.c.from_seq <= at) & (table.c.to_seq.is_(None) | (table.c.to_seq > at))


def shown(at: int | None) -> ColumnElement[bool]:
    """Whether the version that is joined may be shown: what is hidden now was hidden ever since, whatever is
    asked."""
    allowed = versions.c.status.not_in(HIDDEN)
    if at is None:
        return allowed
    now = versions.alias("now")
    hidden = (now.c.memory_id == memories.c.memory_id) & now.c.to_seq.is_(None)
    return allowed & ~select(now.c.version).where(hidden, now.c.status.in_(HIDDEN)).exists()


def memory_from(row: Iterable[Any]) -> Memory:
    """A record from a row of `select_memories`."""
    *values, state = row
    return memory_of([*values, State.from_row(orjson.loads(state))])


def memory_of(row: Iterable[Any]) -> Memory:
    """The same from a row whose state is one already."""
    product, agent, user, memory_id, kind, layer, content, authority, *plain, details, version, state = row
    fields: tuple[Any, ...] = (
        memory_id,
        _partition(product, agent, user),
        # Words of ours, one object for each instead of one for each record.
        sys.intern(kind),
        sys.intern(layer),
        content,
        sys.intern(authority),
        *plain,
        details and details_from(kind, orjson.loads(details)),
        version,
        state,
    )
    return Memory(*fields)


def memory_values(memory: Memory, content_key: str) -> Values:
    """The row of `memories`."""
    product, agent, user = memory.partition
    return {
        **{name: getattr(memory, name) for name in _PLAIN},
        "product": product,
        "agent": agent,
        "user": user,
        "content_key": content_key,
        "details": None if memory.details is None else asdict(memory.details),
    }


def version_values(memory: Memory, seq: int, at: int) -> Values:
    """The row of `versions` for the state that the memory is in since event `seq`."""
    return {
        "memory_id": memory.memory_id,
        "version": memory.version,
        "from_seq": seq,
        "to_seq": None,
        "at": at,
        "status": memory.state.status,
        "state": memory.state.as_row(),
    }


def tag_values(memory: Memory) -> list[Values]:
    return [
        {"memory_id": memory.memory_id, "version": memory.version, "tag": tag} for tag in memory.state.tags
    ]
