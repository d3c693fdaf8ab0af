"""Between a `Memory` and its rows in the ledger."""

from dataclasses import asdict
from typing import Any

from sqlalchemy import Row, Select, select

from models.memory import Memory, State
from models.provenance import details_from
from models.scope import Partition
from stores.schema import memories, versions

Values = dict[str, Any]

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
_COLUMNS = (memories.c.product, memories.c.agent, memories.c.user, *(memories.c[name] for name in _PLAIN))


def select_memories() -> Select[Any]:
    """Memories joined with their current version; the caller adds its own conditions."""
    return select(*_COLUMNS, memories.c.details, versions.c.version, versions.c.state).join(
        versions, (versions.c.memory_id == memories.c.memory_id) & versions.c.to_seq.is_(None)
    )


def memory_from(row: Row[*tuple[Any, ...]]) -> Memory:
    """A record from a row of `select_memories`."""
    values: tuple[Any, ...] = tuple(row)
    plain: Values = dict(zip(_PLAIN, values[3:-3], strict=True))
    details, version, state = values[-3:]
    return Memory(
        partition=Partition(*values[:3]),
        details=details_from(plain["kind"], details),
        version=version,
        state=State.from_row(state),
        **plain,
    )


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
