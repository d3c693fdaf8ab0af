"""The audit chain: each event's hash covers the event and the hash before it, so that a row that was changed
or is gone shows. Reasons and salts stand outside it: a purge destroys both, and the chain still verifies.

The head, the last link there is, is kept in `settings` too, so that a lost end of the chain shows."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from sqlalchemy import Connection, Select, Text, bindparam, func, insert, select, type_coerce, update

from stores.schema import chain, events, settings

HEAD = "audit.head"  # the setting that names the last link: its seq and its hash
START = bytes(32)  # what the first link follows
SALT_BYTES = 16
_BATCH = 5_000  # events that are chained with one statement

# What a link covers, in this order; `fields` and the digest come last.
_COVERED = ("seq", "at", "product", "agent", "user", "action", "memory_id", "key_id", "request_id", "refused")

_INSERT = insert(chain)
_MOVE_HEAD = update(settings).where(settings.c.name == HEAD).values(value=bindparam("at_head"))


@dataclass(frozen=True, slots=True)
class Head:
    """A link of the chain: the event's number and the hash. Events up to `known` were there when the file was
    opened: any of them that have no link are none of ours."""

    seq: int = 0
    hash: bytes = START
    known: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.seq} {self.hash.hex()}"

    @classmethod
    def parse(cls, text: str | None) -> "Head | None":
        """The inverse of `str`; None for anything else."""
        seq, _, digits = (text or "").partition(" ")
        try:
            head = cls(int(seq), bytes.fromhex(digits))
        except ValueError:
            return None
        return head if len(head.hash) == len(START) else None


def salted_digest(salt: bytes, reason: str | None, changed: Mapping[str, Any]) -> bytes:
    """SHA-256 of the salt and of what an event says beside its names: the reason, and what the changed fields
    hold since. With the salt gone it tells nothing of either."""
    said = orjson.dumps([reason, dict(changed)], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(salt + said).digest()


def sealed(reason: str | None, changed: Mapping[str, Any] | None) -> tuple[bytes | None, bytes | None]:
    """A new salt and the digest; None both when there is nothing to tell."""
    if reason is None and not changed:
        return None, None
    salt = os.urandom(SALT_BYTES)
    return salt, salted_digest(salt, reason, changed or {})


def link_hash(previous: bytes, event: Mapping[str, Any]) -> bytes:
    """The link of an event, a row of `events`, after the hash before it: SHA-256 of both. Raises TypeError or
    ValueError for a row that no write of ours made."""
    digest: bytes | None = event["digest"]
    values = [event[name] for name in _COVERED]
    row = orjson.dumps([*values, event["fields"], None if digest is None else digest.hex()])
    return hashlib.sha256(previous + row).digest()


def append(connection: Connection, head: Head, rows: Sequence[Mapping[str, Any]]) -> Head:
    """Chain new events, in the order of `seq`, in the transaction that wrote them. Returns the new head."""
    links = []
    for row in rows:
        head = Head(row["seq"], link_hash(head.hash, row), head.known)
        links.append({"seq": head.seq, "hash": head.hash})
    connection.execute(_INSERT, links)
    if not connection.execute(_MOVE_HEAD, {"at_head": str(head)}).rowcount:
        connection.execute(insert(settings).values(name=HEAD, value=str(head)))
    return head


def take_up(connection: Connection) -> Head:
    """The head to go on from. Events of a schema without a chain are chained here, once. Events that appear
    unchained in a file that has a chain are none of ours, and are left for the doctor to find."""
    kept = kept_head(connection)
    last = connection.execute(select(chain.c.seq, chain.c.hash).order_by(chain.c.seq.desc()).limit(1)).first()
    if kept is None and last is None:
        return append_stored(connection)
    head = kept or Head(*last)  # type: ignore[misc]
    return replace(head, known=last_seq(connection))


def append_stored(connection: Connection) -> Head:
    """Chain all events that there are, read from their table in parts. Returns the head."""
    head, following = Head(), select_events().limit(_BATCH)
    while rows := list(read_events(connection, following.where(events.c.seq > head.seq))):
        head = append(connection, head, rows)
    return head


def last_seq(connection: Connection) -> int:
    """The highest number that any event ever had, as far as this file knows."""
    kept = kept_head(connection)
    numbers = [connection.scalar(select(func.max(table.c.seq))) for table in (events, chain)]
    return max(0 if kept is None else kept.seq, *(number or 0 for number in numbers))


def kept_head(connection: Connection) -> Head | None:
    """The head as `settings` has it; None when it is not there, or is no head."""
    return Head.parse(connection.scalar(select(settings.c.value).where(settings.c.name == HEAD)))


def select_events() -> Select[Any]:
    """Events in order, with all that `read_events` wants; the caller adds its own conditions."""
    fields = type_coerce(events.c.fields, Text).label("fields")  # parsed by us: it may be broken
    others = (column for column in events.c if column.name != "fields")
    return select(*others, fields).order_by(events.c.seq)


def read_events(connection: Connection, query: Select[Any]) -> Iterator[dict[str, Any]]:
    """The rows of a query made with `select_events`, one by one, as `link_hash` takes them. What can't be
    parsed of `fields` stays as it is."""
    for row in connection.execute(query).mappings():
        event = dict(row)
        try:
            event["fields"] = orjson.loads(event["fields"])
        except (ValueError, TypeError):
            event["fields"] = {"broken": True}
        yield event
