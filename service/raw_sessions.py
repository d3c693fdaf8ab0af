"""The use cases that read raw messages: list sessions, read one, search in all. They write nothing."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from models.answers import Reply
from models.errors import ConflictState, FieldError, InvalidArgument, invalid
from models.raw_labels import Label, display_label
from models.raw_requests import GetRawMessages, ListRawSessions, SearchRaw
from models.raw_search import Wanted
from models.raw_sessions import SessionName
from models.raw_times import bound
from models.redaction import redact
from models.scope import Caller
from service.brain import Brain
from service.cursors import cursor_of, mark_of, read_cursor
from stores import raw_reading
from stores.raw_listing import Listed, Listing, Window
from stores.raw_reading import Place, RawMessage, Search, Session

MAX_SAMPLE = 100
MAX_PAGE = 2_000
_MARK = "rm1_"


class Doubted(ConflictState):
    """A session of which nobody can say for sure where it comes from."""

    hint = (
        "list_raw_sessions names it in excluded_legacy_identities; purge the session and bring its messages "
        "again, from one host."
    )


async def list_sessions(brain: Brain, caller: Caller, request: ListRawSessions) -> Reply:
    since = bound("since", request.since)
    until = bound("until", request.until, end=True)
    if request.latest is not None and request.latest <= 0:
        message = "latest must be positive"
        raise InvalidArgument(message, (FieldError("latest", message),))
    sample = min(max(request.sample or 0, 0), MAX_SAMPLE)
    window = Window(caller.scope, caller.user, since, until, request.project)

    def read() -> dict[str, Any]:
        listing = window.listing(brain.ledger, request.latest, sample)
        zone = ZoneInfo(brain.settings.observations.label_timezone)
        return _listed(listing, zone)

    body = {
        "sample": sample,
        **await asyncio.to_thread(read),
        "since_epoch": since,
        "until_epoch": until,
        "latest": request.latest,
        "project": request.project,
    }
    return Reply(body)


def _listed(listing: Listing, zone: ZoneInfo) -> dict[str, Any]:
    names = sorted({name for name, _ in listing.excluded}, key=lambda name: (*name[1:], name.host))
    return {
        "count": len(listing.sessions),
        "excluded_legacy_rows": sum(rows for _, rows in listing.excluded),
        "excluded_legacy_sessions": len({name[1:] for name in names}),
        "excluded_legacy_identities": [
            {
                "source_root": name.source_root,
                "project": name.project,
                "session_id": name.session_id,
                "host": name.host or None,
            }
            for name in names
        ],
        "sessions": [
            _session(session, listing.labels.get(session.session_row, Label()), texts, zone)
            for session, texts in zip(listing.sessions, listing.samples, strict=True)
        ],
    }


def _session(session: Listed, label: Label, texts: Any, zone: ZoneInfo) -> dict[str, Any]:
    mmdd = month_and_day(session.first_epoch, zone)
    if label.topic is not None:
        label = Label(label.intent, redact(label.topic), label.source)
    return {
        "session_ref": session.name.ref,
        "host": session.host,
        "session_mode": session.mode,
        "source_root": session.source_root,
        "project": session.project,
        "session_id": session.session_id,
        "first_epoch": session.first_epoch,
        "last_epoch": session.last_epoch,
        "message_count": session.messages,
        "user_message_count": session.by_user,
        "assistant_message_count": session.by_assistant,
        "content_hash": session.content_hash,
        "user_message_samples": list(texts),
        "mmdd": mmdd,
        "session_intent": label.intent,
        "session_topic": label.topic,
        "display_label": display_label(mmdd, label),
        "session_intent_source": label.source,
    }


def month_and_day(epoch: int, zone: ZoneInfo) -> str:
    """`0101` for the first of January there, of epoch seconds."""
    return f"{datetime.fromtimestamp(epoch, zone):%m%d}"


async def messages(brain: Brain, caller: Caller, request: GetRawMessages) -> Reply:
    name = _selected(request)
    limit = min(max(request.limit, 1), MAX_PAGE)

    def read() -> dict[str, Any]:
        with brain.ledger.snapshot() as connection:
            found = raw_reading.sessions_named(connection, caller.scope, caller.user, name)
            session = _the_one(name, found)
            mark = mark_of([*name, None if session is None else session.name.host, caller.user])
            cursor = read_cursor(request.cursor, mark, (int, int, int, str), _MARK)
            if session is None:
                return _page(name, None, None, [], 0, None)
            hashed = session.content_hash
            last, after = raw_reading.last_number(connection, session.session_row), None
            if cursor is not None:
                last, hashed, after = cursor[2], cursor[3], Place(*cursor[:2])
            rows, total = raw_reading.page(connection, session.session_row, last, after, limit + 1)
        more = None
        if len(rows) > limit:
            more = cursor_of(mark, *rows[limit - 1].place, last, hashed, prefix=_MARK)
        return _page(session.name, session, hashed, rows[:limit], total, more)

    return Reply(await asyncio.to_thread(read))


def _selected(request: GetRawMessages) -> SessionName:
    if request.session_ref is not None:
        named = SessionName.from_ref(request.session_ref)
        if named is None:
            raise invalid("session_ref", "is none of ours; take it from list_raw_sessions")
        return named
    if request.session_id is None:
        raise invalid("session_id", "is needed, or session_ref in its place")
    return SessionName(request.host or "", request.source_root, request.project, request.session_id)


def _the_one(name: SessionName, found: list[Session]) -> Session | None:
    """The session that is meant. Raises ConflictState when its provenance is in doubt, InvalidArgument when
    it is another host's or not the only one."""
    these = [session for session in found if name.host in ("", session.name.host)]
    if any(not session.name.host for session in found) or any(session.doubted for session in these):
        where = f"({name.source_root}, {name.project}, {name.session_id})"
        raise Doubted(f"raw session provenance is missing or conflicted for {where}")
    if found and not these:
        hosts = ", ".join(sorted({session.name.host for session in found}))
        raise invalid("host", f"host mismatch: this session is of {hosts}, not of {name.host}")
    if len({session.name.host for session in these}) > 1:
        hosts = ", ".join(sorted(session.name.host for session in these))
        raise invalid("host", f"is needed: {hosts} have a session of these names")
    if len(these) > 1:
        users = ", ".join(sorted(session.user for session in these))
        raise invalid("session_id", f"is that of several users' sessions; say which: {users}")
    return these[0] if these else None


def _page(
    name: SessionName,
    session: Session | None,
    hashed: str | None,
    rows: list[RawMessage],
    total: int,
    cursor: str | None,
) -> dict[str, Any]:
    return {
        "session_ref": name.ref,
        "host": name.host or None,
        "source_root": name.source_root,
        "project": name.project,
        "session_id": name.session_id,
        "session_mode": "unknown" if session is None else session.mode,
        "content_hash": hashed,
        "total": total,
        "messages": [_message(row) for row in rows],
        "next_cursor": cursor,
    }


def _message(row: RawMessage) -> dict[str, Any]:
    return {
        "id": row.place.number,
        "memory_id": row.memory_id,
        "role": row.role,
        "content": row.content,
        "created_at_epoch": row.place.epoch,
        "ordinal": row.ordinal if row.identity_id else None,
        "transcript_id": row.details.transcript_id,
        "branch": row.details.branch,
        "meta": row.details.meta,
    }


async def search(brain: Brain, caller: Caller, request: SearchRaw) -> Reply:
    wanted = Search(
        caller.scope,
        caller.user,
        request.query,
        request.project,
        request.branch,
        request.role,
        bound("since", request.since),
        bound("until", request.until, end=True),
    )
    mark = mark_of(wanted)
    cursor = read_cursor(request.cursor, mark, (int, int), _MARK)
    before = None if cursor is None else Place(*cursor)

    def read() -> list[RawMessage]:
        with brain.ledger.snapshot() as connection:
            return list(islice(wanted.find(connection, before), request.limit + 1))

    found = await asyncio.to_thread(read)
    shown = found[: request.limit]
    snippet: Callable[[str], str] = Wanted(request.query).snippet
    body = {
        "messages": [_hit(row, snippet(row.content)) for row in shown],
        "next_cursor": cursor_of(mark, *shown[-1].place, prefix=_MARK) if len(found) > len(shown) else None,
    }
    return Reply(body)


def _hit(row: RawMessage, snippet: str) -> dict[str, Any]:
    details, ref = row.details, None
    if details.host and details.source_root is not None and row.session_id is not None:
        ref = SessionName(details.host, details.source_root, row.project, row.session_id).ref
    return {
        "id": row.place.number,
        "memory_id": row.memory_id,
        "role": row.role,
        "snippet": snippet,
        "created_at_epoch": row.place.epoch,
        "project": row.project,
        "branch": details.branch,
        "session_id": row.session_id,
        "session_ref": ref,
    }
