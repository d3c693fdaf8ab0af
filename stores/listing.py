"""Pages and counts, straight from the ledger: in the order of writing, whatever is resident."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select

from models.memory import Memory
from models.scope import Scope
from stores.ledger import Ledger
from stores.rows import holding, memory_from, select_memories, shown
from stores.schema import memories, tags, versions


@dataclass(frozen=True, slots=True)
class Listing:
    """Which memories of a scope, of one user in it or of all (None), in which order."""

    scope: Scope
    user: str | None
    equal: tuple[tuple[str, str], ...] = ()  # column of `memories` and its value
    status: str | None = None
    tag: str | None = None
    updated_since: int | None = None
    newest_first: bool = True
    as_of: int | None = None  # epoch ms; None: as it is now

    def _conditions(self, at: int | None = None) -> list[ColumnElement[bool]]:
        conditions = [
            memories.c.product == self.scope.product,
            memories.c.agent == self.scope.agent,
            shown(at),
            *(memories.c[name] == value for name, value in self.equal),
        ]
        if self.user is not None:
            conditions.append(memories.c.user == self.user)
        if self.status is not None:
            conditions.append(versions.c.status == self.status)
        if self.updated_since is not None:
            conditions.append(versions.c.at >= self.updated_since)
        if self.tag is not None:
            tagged = (
                (tags.c.memory_id == memories.c.memory_id)
                & (tags.c.version == versions.c.version)
                & (tags.c.tag == self.tag)
            )
            conditions.append(select(tags.c.tag).where(tagged).exists())
        return conditions

    def page(
        self, ledger: Ledger, after: int | None, limit: int, at: int | None = None
    ) -> tuple[list[Memory], int]:
        """The next `limit` memories after event `after`, as they are or as they were after event `at`, and
        how many match in all."""
        conditions = self._conditions(at)
        query = select_memories(at).where(*conditions)
        seq = memories.c.seq
        if after is not None:
            query = query.where(seq < after if self.newest_first else seq > after)
        query = query.order_by(seq.desc() if self.newest_first else seq).limit(limit)
        total = _counted(at).where(*conditions)
        with ledger.snapshot() as connection:
            rows = [memory_from(row) for row in connection.execute(query)]
            return rows, connection.scalar(total) or 0

    def count(self, ledger: Ledger, by: str) -> dict[str, int]:
        """How many match, by the values of a column of `memories`, or by `status`."""
        column: Any = versions.c.status if by == "status" else memories.c[by]
        query = _counted().add_columns(column).where(*self._conditions()).group_by(column).order_by(column)
        with ledger.snapshot() as connection:
            return {value: count for count, value in connection.execute(query)}


def _counted(at: int | None = None) -> Any:
    return (
        select(func.count())
        .select_from(memories)
        .join(versions, (versions.c.memory_id == memories.c.memory_id) & holding(at))
    )
