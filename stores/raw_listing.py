"""Lists of raw sessions, straight from the rows that the writes keep up to date: nothing is counted or hashed
here, and only the texts that are shown are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    and_,
    bindparam,
    func,
    or_,
    select,
    union_all,
)

from models.raw_labels import Label
from models.raw_sessions import SAMPLE_CHARACTERS, SessionName
from models.scope import Scope
from stores.ledger import Ledger
from stores.raw_schema import raw_messages, raw_sessions
from stores.rows import plain_rows
from stores.schema import memories
from stores.session_labels import label_of, labels_of

AT_ONCE = 50  # sessions whose samples are read by one statement; SQLite unites 500 at the most

_m, _s = raw_messages.c, raw_sessions.c


class Listed(NamedTuple):
    """A session as it is listed. Epochs are seconds."""

    session_row: int
    user: str
    host: str
    source_root: str
    project: str
    session_id: str
    mode: str
    first_epoch: int
    last_epoch: int
    messages: int
    by_user: int
    by_assistant: int
    content_hash: str

    @property
    def name(self) -> SessionName:
        return SessionName(self.host, self.source_root, self.project, self.session_id)


_LISTED = (
    *(_s.session_row, _s.user, _s.host, _s.source_root, _s.project, _s.session_id, _s.session_mode),
    *(_s.first_epoch, _s.last_epoch, _s.message_count, _s.user_count, _s.assistant_count, _s.content_hash),
)
_TIE = (_s.source_root, _s.host, _s.project, _s.session_id, _s.user)


@dataclass(frozen=True, slots=True)
class Listing:
    """What was found: the sessions, their labels by `session_row`, their samples, and the excluded ones as
    (name, rows), where the host of a name is empty when messages without one are the reason."""

    sessions: Sequence[Listed]
    labels: dict[int, Label]
    samples: Sequence[Sequence[str]]
    excluded: Sequence[tuple[SessionName, int]]


@dataclass(frozen=True, slots=True)
class Window:
    """Which sessions: those with a message between two epochs (seconds), both inclusive; None is no bound."""

    scope: Scope
    user: str | None
    since: int | None = None
    until: int | None = None
    project: str | None = None

    def listing(self, ledger: Ledger, latest: int | None, sample: int) -> Listing:
        """The first sessions first, or only the `latest`, newest first; with the first `sample` texts of the
        user in each."""
        asked = {name: value for name, value in self._values().items() if value is not None}
        shape = frozenset(asked)
        with ledger.snapshot() as connection:
            if latest is None:
                rows = plain_rows(connection, _sessions(shape, newest=False), asked)
            else:
                rows = plain_rows(connection, _sessions(shape, newest=True), {**asked, "latest": latest})
            sessions = [Listed(*row[:-1]) for row in rows]
            labelled = {row[-1]: session.session_row for row, session in zip(rows, sessions, strict=True)}
            labelled.pop(None, None)
            found = [] if not labelled else labels_of(connection, list(labelled))
            labels = {labelled[memory_id]: label for memory_id, label in found}
            samples = _samples(connection, [session.session_row for session in sessions], sample)
            excluded = [_excluded_name(row) for row in plain_rows(connection, _excluded(shape), asked)]
        return Listing(sessions, labels, samples, excluded)

    def _values(self) -> dict[str, Any]:
        return {
            "product": self.scope.product,
            "agent": self.scope.agent,
            "user": self.user,
            "project": self.project,
            "since": self.since,
            "until": self.until,
        }


# Statements by what they ask for: to build one costs more than to run it.


@cache
def _sessions(shape: frozenset[str], *, newest: bool) -> Select[Any]:
    """The columns of `Listed`, and the id of the summary that labels each."""
    order = (_s.last_epoch.desc() if newest else _s.first_epoch, *_TIE)
    query = select(*_LISTED).where(*_conditions(shape, excluded=False)).order_by(*order)
    if not newest:
        return query.add_columns(label_of(_s).label("label"))
    # Only of those that are shown, the label is looked up.
    inner = query.add_columns(_s.product, _s.agent).limit(bindparam("latest")).subquery()
    c = inner.c
    columns = [c[column.name] for column in _LISTED]
    ties = (c[column.name] for column in _TIE)
    return select(*columns, label_of(c).label("label")).order_by(c.last_epoch.desc(), *ties)


@cache
def _excluded(shape: frozenset[str]) -> Select[Any]:
    columns = (_s.host, _s.source_root, _s.project, _s.session_id, _s.taint, _s.message_count)
    return select(*columns).where(*_conditions(shape, excluded=True))


def _conditions(shape: frozenset[str], *, excluded: bool) -> list[ColumnElement[bool]]:
    since: BindParameter[int] = bindparam("since")
    until: BindParameter[int] = bindparam("until")
    conditions: list[ColumnElement[bool]] = [_s.excluded.is_(excluded), _s.last_epoch.is_not(None)]
    equal = ("product", "agent", "user", "project")
    conditions += [_s[name] == bindparam(name) for name in equal if name in shape]
    if "since" in shape:
        conditions.append(_s.last_epoch >= since)
    if "until" in shape:
        conditions.append(_s.first_epoch <= until)
    if {"since", "until"} <= shape:
        # One that begins before and ends after the window may have nothing in it.
        of_it = and_(_m.session_row == _s.session_row, _m.shown.is_(True))
        inside = select(_m.memory_id).where(of_it, _m.epoch.between(since, until))
        conditions.append(or_(_s.first_epoch >= since, _s.last_epoch <= until, inside.exists()))
    return conditions


def _excluded_name(row: Sequence[Any]) -> tuple[SessionName, int]:
    host, root, project, session_id, taint, messages = row
    # One that is sound itself is left out for those of the same names without a host.
    return SessionName(host if taint is not None else "", root, project, session_id), messages


def _samples(connection: Connection, sessions: Sequence[int], sample: int) -> list[list[str]]:
    """The first texts of the user in each session."""
    texts: dict[int, list[str]] = {session: [] for session in sessions}
    if sample:
        for start in range(0, len(sessions), AT_ONCE):
            some = sessions[start : start + AT_ONCE]
            asked = {f"s{place}": session for place, session in enumerate(some)}
            for session, text in plain_rows(connection, _first_texts(len(some)), asked | {"sample": sample}):
                texts[session].append(text)
    return list(texts.values())


@cache
def _first_texts(sessions: int) -> CompoundSelect[Any]:
    """Of so many sessions, in one statement: each reads a few rows of an index."""
    cut = func.substr(memories.c.content, 1, SAMPLE_CHARACTERS).label("text")
    parts = []
    for place in range(sessions):
        of_user = and_(_m.role == "user", _m.shown.is_(True), _m.session_row == bindparam(f"s{place}"))
        part = (
            select(_m.session_row, cut)
            .join(memories, _m.memory_id == memories.c.memory_id)
            .where(of_user)
            .order_by(_m.epoch, _m.number)
            .limit(bindparam("sample"))
        )
        parts.append(select(part.subquery()))
    return union_all(*parts)
