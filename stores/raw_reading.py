"""Reads of raw messages: one session page by page, and a search through all of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from sqlalchemy import ColumnElement, Connection, Select, Text, and_, func, or_, select, type_coerce

from models.provenance import MessageDetails, details_from
from models.raw_search import Wanted
from models.raw_sessions import SessionName
from models.scope import Scope
from stores.raw_schema import raw_messages, raw_sessions
from stores.rows import plain_rows
from stores.schema import memories

_m, _s = raw_messages.c, raw_sessions.c
_DETAILS = type_coerce(memories.c.details, Text)


class Place(NamedTuple):
    """Where a page ends: order is by (epoch, number)."""

    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class RawMessage:
    """A message as the ledger has it. `epoch` is seconds."""

    place: Place
    memory_id: str
    identity_id: int
    ordinal: int
    role: Any
    content: str
    project: str
    session_id: str | None
    details: MessageDetails


@dataclass(frozen=True, slots=True)
class Session:
    """One user's session of a name. Doubted when its provenance is, or when it has no host."""

    session_row: int
    user: str
    name: SessionName
    mode: Any
    content_hash: str
    messages: int
    doubted: bool


def sessions_named(
    connection: Connection, scope: Scope, user: str | None, name: SessionName
) -> list[Session]:
    """The sessions of all hosts with a root, project and id that have messages."""
    query = select(raw_sessions).where(
        _s.product == scope.product,
        _s.agent == scope.agent,
        _s.source_root == name.source_root,
        _s.project == name.project,
        _s.session_id == name.session_id,
        _s.message_count > 0,
    )
    if user is not None:
        query = query.where(_s.user == user)
    return [
        Session(
            row.session_row,
            row.user,
            name._replace(host=row.host),
            row.session_mode,
            row.content_hash,
            row.message_count,
            row.excluded,
        )
        for row in connection.execute(query)
    ]


def last_number(connection: Connection, session_row: int) -> int:
    """The highest number of the messages that it shows, so that later ones can be told from them."""
    these = (_m.session_row == session_row) & _m.shown.is_(True)
    return connection.scalar(select(func.max(_m.number)).where(these)) or 0


def page(
    connection: Connection, session_row: int, last: int, after: Place | None, limit: int
) -> tuple[list[RawMessage], int]:
    """Messages of a session up to number `last`, and how many there are of these in all."""
    these = [_m.session_row == session_row, _m.shown.is_(True), _m.number <= last]
    total = connection.scalar(select(func.count()).where(*these)) or 0
    query = _select().where(*these).order_by(_m.epoch, _m.number).limit(limit)
    if after is not None:
        later = and_(_m.epoch == after.epoch, _m.number > after.number)
        query = query.where(or_(_m.epoch > after.epoch, later))
    return [_message(row) for row in plain_rows(connection, query)], total


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for, in whose messages; epochs (seconds) are inclusive, None is no bound."""

    scope: Scope
    user: str | None
    query: str
    project: str | None = None
    branch: str | None = None
    role: str | None = None
    since: int | None = None
    until: int | None = None

    def find(self, connection: Connection, before: Place | None) -> Iterator[RawMessage]:
        """Every message that fits, newest first, as long as somebody asks for more."""
        wanted = Wanted(self.query)
        query = _select().where(*self._conditions(), *_holding(wanted))
        if before is not None:
            earlier = and_(_m.epoch == before.epoch, _m.number < before.number)
            query = query.where(or_(_m.epoch < before.epoch, earlier))
        result = connection.execute(query.order_by(_m.epoch.desc(), _m.number.desc()))
        try:
            for row in result:
                message = _message(row)
                if wanted.fits(message.content) and self.branch in (None, message.details.branch):
                    yield message
        finally:
            result.close()

    def _conditions(self) -> list[ColumnElement[bool]]:
        conditions = [
            _m.product == self.scope.product,
            _m.agent == self.scope.agent,
            _m.shown.is_(True),
        ]
        for column, value in ((_m.user, self.user), (memories.c.project, self.project), (_m.role, self.role)):
            if value is not None:
                conditions.append(column == value)
        if self.since is not None:
            conditions.append(_m.epoch >= self.since)
        if self.until is not None:
            conditions.append(_m.epoch <= self.until)
        return conditions


def _holding(wanted: Wanted) -> list[ColumnElement[bool]]:
    """What the database can say of the words, so that few texts have to be looked at here."""
    content = memories.c.content
    return [
        or_(_m.ascii.is_(False), content.icontains(word, autoescape=True))
        if word.isascii()
        else content.contains(word, autoescape=True)
        for word in wanted.certain
    ]


def _select() -> Select[Any]:
    return select(
        _m.epoch,
        _m.number,
        _m.memory_id,
        _m.identity_id,
        _m.ordinal,
        _m.role,
        memories.c.content,
        memories.c.project,
        memories.c.session_id,
        _DETAILS,
    ).join(memories, memories.c.memory_id == _m.memory_id)


def _message(row: Any) -> RawMessage:
    epoch, number, *plain, details = row
    found = details_from("message", orjson.loads(details)) if details else None
    known = found if isinstance(found, MessageDetails) else MessageDetails()
    fields: tuple[Any, ...] = (Place(epoch, number), *plain, known)
    return RawMessage(*fields)
