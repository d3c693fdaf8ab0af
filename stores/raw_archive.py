"""The write of raw messages: into their session, each once. A transcript's messages are told apart by their
ordinals, others by their text."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable, select, update

from models.draft import Draft
from models.errors import ConflictState
from models.memory import Memory, State
from models.provenance import MessageDetails, Provenance, Role
from models.raw_sessions import Mode, SessionName, digest, merged, raw_session_key
from models.scope import Partition
from stores.acts import Act
from stores.insertion import insert_memory
from stores.raw_places import last_position, place_values, recount, reveal
from stores.raw_rows import be, learn_mode, session_row, taint, transcript, transcript_row
from stores.raw_schema import raw_messages, transcripts
from stores.writer import Transaction

_m = raw_messages.c


class Clash(ConflictState):
    """What is brought contradicts what the transcript brought before, in so many messages."""

    def __init__(self, detail: str, count: int):
        super().__init__(detail)
        self.count = count


@dataclass(frozen=True, slots=True)
class Brought:
    """One message, with all that can be found out before the ledger is asked. `at` is epoch ms, None when
    nobody says; `reasons` are the marks of the injection scan."""

    memory_id: str
    ordinal: int
    role: Role
    content: str
    at: int | None
    branch: str | None
    meta: bool
    content_hash: str
    content_key: str
    terms: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Where messages come from. Without a `transcript_id` they are told apart by their text."""

    name: SessionName
    mode: Mode = "unknown"
    transcript_id: str | None = None


@dataclass(slots=True)
class Taken:
    """What became of messages, in numbers. With conflicts nothing was stored, and `detail` says why."""

    inserted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    detail: str | None = None

    def with_part(self, part: "Taken") -> "Taken":
        """What became of these and of one part more of the same transcript."""
        return Taken(
            self.inserted + part.inserted,
            self.duplicates + part.duplicates,
            self.conflicts + part.conflicts,
            part.detail,
        )


@dataclass(slots=True)
class Archive:
    """One session in one write: `open`, `take`, `close`. A clash goes up; whoever rolls the messages back
    then calls `contradict` in the same write.

    A large transcript comes in several writes, so that others need not wait for all of it. Until the `last`
    it is `coming`, and no session shows what is in. Should the last never come, a repeat makes it whole."""

    act: Act
    transaction: Transaction
    source: Source
    last: bool = True
    taken: Taken = field(default_factory=Taken)
    session_row: int = 0
    identity_id: int = 0
    _position: int = 0

    def open(self) -> None:
        """Find or make the rows of session and transcript. They are made for good: call it outside the
        savepoint that holds the messages."""
        name, partition = self.source.name, self.act.caller.home
        self.session_row = session_row(self.transaction, partition, name)
        if self.source.transcript_id is not None:
            named = self.source.transcript_id
            self.identity_id = transcript_row(self.transaction, partition, name, named, self.session_row)
        self._position = 1 + last_position(self.transaction, partition, raw_session_key(name))

    def check(self) -> None:
        """Raises Clash when the transcript is in conflict, or is said to be of another host or mode now."""
        if not self.identity_id:
            return
        known = transcript(self.transaction, self.identity_id)
        if known.state == "conflict":
            raise Clash("the transcript is in conflict", 0)
        if known.session_row != self.session_row:
            raise Clash("the transcript is another host's", 0)
        if merged(known.session_mode, self.source.mode) is None:
            raise Clash(f"the session was {known.session_mode}, not {self.source.mode}", 0)

    def take(self, brought: Sequence[Brought]) -> None:
        """Store what is new. Raises Clash."""
        new = self._new_of_transcript(brought) if self.identity_id else self._new_by_text(brought)
        for one, once_key in new:
            self._store(one, once_key)
        self.taken.inserted += len(new)
        self.taken.duplicates += len(brought) - len(new)

    def close(self) -> None:
        """Bring session and transcript up to date."""
        if not self.last:
            be(self.transaction, self.identity_id, "coming")
            return
        learn_mode(self.transaction, self.session_row, self.identity_id, self.source.mode)
        if self._arrive("active") or self.taken.inserted:
            recount(self.transaction, [self.session_row])

    def contradict(self) -> None:
        """Note that the transcript contradicts itself: its session is in no list from now on."""
        known = transcript(self.transaction, self.identity_id)
        if self._arrive("conflict"):
            recount(self.transaction, [known.session_row])
        be(self.transaction, self.identity_id, "conflict")
        taint(self.transaction, known.session_row, "conflict")

    def _arrive(self, state: str) -> bool:
        """Show what has come of the transcript so far. False when nothing of it waited for the rest."""
        if not self.identity_id or transcript(self.transaction, self.identity_id).state != "coming":
            return False
        be(self.transaction, self.identity_id, state)
        reveal(self.transaction, self.identity_id)
        return True

    @property
    def _session_key(self) -> str:
        return raw_session_key(self.source.name)

    def _new_of_transcript(self, brought: Sequence[Brought]) -> list[tuple[Brought, str | None]]:
        known = _known(self.transaction.execute, self.identity_id, brought)
        if clash := _clash(known, brought):
            raise clash
        return [(one, None) for one in brought if one.ordinal not in known]

    def _new_by_text(self, brought: Sequence[Brought]) -> list[tuple[Brought, str | None]]:
        session = self.source.name.key(self.act.caller.home)
        keys = [digest(session, one.role, one.content_hash) for one in brought]
        known = set(self.transaction.execute(select(_m.once_key).where(_m.once_key.in_(keys))).scalars())
        new: list[tuple[Brought, str | None]] = []
        for one, key in zip(brought, keys, strict=True):
            if key not in known:
                known.add(key)
                new.append((one, key))
        return new

    def _store(self, one: Brought, once_key: str | None) -> None:
        draft = Draft(self._memory(one), one.terms, one.content_key, None, "keep")
        self._position += 1
        insert_memory(self.act, self.transaction, draft, free=True)
        stored = self.transaction.changes[-1].memory
        row = place_values(stored, one.role) | {
            "session_row": self.session_row,
            "identity_id": self.identity_id,
            "ordinal": one.ordinal,
            "content_hash": one.content_hash,
            "once_key": once_key,
            "timed": one.at is not None,
            "shown": self.last,
        }
        self.transaction.insert(raw_messages, [row])

    def _memory(self, one: Brought) -> Memory:
        name = self.source.name
        provenance = Provenance()
        if one.reasons:
            provenance = replace(provenance, security_sensitive=True, sensitivity_reasons=one.reasons)
        return Memory(
            memory_id=one.memory_id,
            partition=self.act.caller.home,
            kind="message",
            layer="l1_raw",
            content=one.content,
            source_authority="informal",
            memory_at=one.at,
            project=name.project,
            session_id=name.session_id,
            session_key=self._session_key,
            session_position=self._position,
            details=MessageDetails(
                role=one.role,
                host=name.host or None,
                source_root=name.source_root,
                session_mode=None if self.source.mode == "unknown" else self.source.mode,
                transcript_id=self.source.transcript_id,
                branch=one.branch,
                ordinal=one.ordinal,
                timed=one.at is not None,
                meta=one.meta,
            ),
            state=State(provenance=provenance),
        )


def bring(
    act: Act, transaction: Transaction, source: Source, brought: Sequence[Brought], *, last: bool = True
) -> Taken:
    """Store messages, all of them or, where they contradict what the transcript brought before, none: then
    the transcript is in conflict for good. When more of the same is to come, they are not the `last`."""
    archive = Archive(act, transaction, source, last)
    archive.open()
    try:
        with transaction.savepoint():
            archive.check()
            archive.take(brought)
            archive.close()
    except Clash as clash:
        archive.contradict()
        archive.taken = Taken(conflicts=clash.count or len(brought), detail=clash.detail)
    return archive.taken


def find_clash(
    connection: Connection, partition: Partition, source: Source, parts: Iterable[Sequence[Brought]]
) -> Clash | None:
    """What contradicts the transcript in any of the parts, before the first of them is written."""
    if source.transcript_id is None:
        return None
    key = source.name.transcript_key(partition, source.transcript_id)
    identity = connection.scalar(select(transcripts.c.identity_id).where(transcripts.c.key == key))
    if identity is None:
        return None
    clashes = (_clash(_known(connection.execute, identity, part), part) for part in parts)
    return next((clash for clash in clashes if clash is not None), None)


def refuse(act: Act, transaction: Transaction, source: Source, clash: Clash) -> Taken:
    """Note the contradiction that was found; nothing is stored."""
    archive = Archive(act, transaction, source)
    archive.open()
    archive.contradict()
    return Taken(conflicts=clash.count, detail=clash.detail)


def _known(
    execute: Callable[[Executable], CursorResult[Any]], identity: int, brought: Sequence[Brought]
) -> dict[int, Any]:
    """What the transcript has where these messages go, by ordinal."""
    if not brought:
        return {}
    ordinals = [one.ordinal for one in brought]
    query = select(_m.ordinal, _m.role, _m.content_hash, _m.epoch, _m.timed).where(
        _m.identity_id == identity, _m.ordinal.between(min(ordinals), max(ordinals))
    )
    return {row.ordinal: row for row in execute(query)}


def _clash(known: dict[int, Any], brought: Sequence[Brought]) -> Clash | None:
    clashes = [one for one in brought if one.ordinal in known and not _same(known[one.ordinal], one)]
    if not clashes:
        return None
    return Clash(f"message {clashes[0].ordinal} is here with another text, role or time", len(clashes))


def _same(known: Any, one: Brought) -> bool:
    """Whether a message is the one that is here. Of what was purged nothing is left to compare."""
    if known.content_hash is None:
        return True
    at = None if one.at is None else one.at // 1000
    times = at is None or not known.timed or at == known.epoch
    return times and (known.role, known.content_hash) == (one.role, one.content_hash)


def note_failure(act: Act, transaction: Transaction, source: Source, line: int | None) -> None:
    """Note that a transcript could not be read, and at which line; nothing of it was stored."""
    archive = Archive(act, transaction, source)
    archive.open()
    failed = {"failure": "parse_error", "failed_line": line, "failed_at": transaction.now}
    these = update(transcripts).where(transcripts.c.identity_id == archive.identity_id)
    transaction.execute(these.values(failed))
