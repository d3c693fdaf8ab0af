"""Reads the audit log of a scope: its entries, each with its link of the chain and the one before."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, or_, select

from models.scope import Scope
from stores.audit import START, link_hash, read_events, select_events
from stores.ledger import Ledger
from stores.schema import chain, events

_COUNT = "count="  # among the names of fields, which the chain covers


def counting(count: int) -> tuple[str, ...]:
    """The fields of an entry that stands for so many refusals."""
    return (f"{_COUNT}{count}",)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which entries of a scope; None: any. `whole`: with those of the product as a whole, about its keys.
    `store`: with those of no product, for whoever owns the store. `since` and `until` are epoch ms, both
    included."""

    scope: Scope
    user: str | None
    whole: bool
    store: bool = False
    memory_id: str | None = None
    action: str | None = None
    key_id: str | None = None
    refused: bool | None = None
    since: int | None = None
    until: int | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Of rows of `events`."""
        table = events.c
        own = table.agent == self.scope.agent
        products = (self.scope.product, "") if self.store else (self.scope.product,)
        found = [table.product.in_(products), or_(own, table.agent == "") if self.whole else own]
        equal = {"user": self.user, "memory_id": self.memory_id}
        equal |= {"action": self.action, "key_id": self.key_id}
        found += [table[name] == value for name, value in equal.items() if value is not None]
        if self.refused is not None:
            found.append(table.refused.is_not(None) if self.refused else table.refused.is_(None))
        if self.since is not None:
            found.append(table.at >= self.since)
        if self.until is not None:
            found.append(table.at <= self.until)
        return found


@dataclass(frozen=True, slots=True)
class Entry:
    """One event with its link, None when it has none, and the link before it."""

    event: dict[str, Any]
    hash: bytes | None
    previous: bytes

    @property
    def seq(self) -> int:
        seq: int = self.event["seq"]
        return seq

    @property
    def verified(self) -> bool:
        """Whether the link follows from the event and the link before."""
        try:
            return self.hash == link_hash(self.previous, self.event)
        except (TypeError, ValueError, AttributeError):  # no write of ours made the row
            return False

    def fields(self) -> dict[str, Any]:
        """As it is shown; JSON-ready. The salt never is."""
        event = self.event
        names = ("seq", "at", "action", "memory_id", "key_id", "request_id", "refused", "reason")
        fields = event["fields"] if isinstance(event["fields"], list) else []
        return {
            **{name: event[name] for name in names},
            "fields": fields,
            "count": _count(fields),
            "agent_id": event["agent"],
            "user_id": event["user"],
            "digest": None if event["digest"] is None else event["digest"].hex(),
            "hash": None if self.hash is None else self.hash.hex(),
            "previous": self.previous.hex(),
        }


def entries(ledger: Ledger, wanted: Filter, before: int | None, limit: int) -> list[Entry]:
    """The newest entries before an event, at the most `limit`. Raises StoreUnavailable."""
    earlier = chain.alias("earlier")
    previous = select(earlier.c.hash).where(earlier.c.seq < events.c.seq).order_by(earlier.c.seq.desc())
    query = (
        select_events()
        .add_columns(chain.c.hash, previous.limit(1).scalar_subquery().label("previous"))
        .join(chain, chain.c.seq == events.c.seq, isouter=True)
        .where(*wanted.conditions())
        .order_by(None)
        .order_by(events.c.seq.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(events.c.seq < before)
    with ledger.snapshot() as connection:
        return [
            Entry(event, event.pop("hash"), event.pop("previous") or START)
            for event in read_events(connection, query)
        ]


def _count(fields: list[Any]) -> int:
    """How many refusals an entry with these fields stands for."""
    for name in fields:
        if isinstance(name, str) and name.startswith(_COUNT) and name.removeprefix(_COUNT).isdecimal():
            return int(name.removeprefix(_COUNT))
    return 1
