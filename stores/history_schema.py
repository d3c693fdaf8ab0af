"""The ledger's table for what the record can't hold of the history view; beside `stores.schema`."""

from typing import Any

from sqlalchemy import Column, ForeignKey, Index, String, Table, bindparam, func, select

from stores.schema import Big, metadata

# Positions in sessions that a memory had before it was moved: nobody else may ever have them.
vacated = Table(
    "vacated",
    metadata,
    Column("product", String, primary_key=True),
    Column("agent", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("session_key", String, primary_key=True),
    Column("session_position", Big, primary_key=True),
    Column("memory_id", String, ForeignKey("memories.memory_id"), nullable=False),
    Index("vacated_by_memory", "memory_id"),
)

_KEY = ("product", "agent", "user", "session_key")
_in_session: list[Any] = [vacated.c[name] == bindparam(name) for name in _KEY]
LAST_VACATED = select(func.max(vacated.c.session_position)).where(*_in_session)
VACATED = select(vacated.c.memory_id).where(*_in_session, vacated.c.session_position == bindparam("position"))
"""Which memory had a place before."""
