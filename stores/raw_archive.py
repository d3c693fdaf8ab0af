"""The write of raw messages: into their session, each once. A transcript's messages are told apart by their
ordinals, others by their text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import select, update

from models.draft import Draft
from models.errors import ConflictState
from models.memory import Memory, State
from models.provenance import MessageDetails, Provenance, Role
from models.raw_sessions import Mode, SessionName, digest, merged, raw_session_key
from stores.acts import Act
from stores.insertion import insert_memory
from stores.raw_places import last_position, place_values, recount
from stores.raw_rows import learn_mode, session_row, taint, transcript, transcript_row
from stores.raw_schema import raw_messages, transcripts
from stores.writer import Transaction

KEPT = 1_000  # new messages of one write that those in memory are told one by one; of more, to load anew

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
    identity_id: int = 0


@dataclass(slots=True)
class Archive:
    """One session in one write: `open`, then `take` slice after slice, then `close`. A clash goes up; whoever
    rolls the slices back then calls `contradict` in the same write."""

    act: Act
    transaction: Transaction
    source: Source
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
        if self.taken.inserted > KEPT:
            self.transaction.shed()

    def close(self) -> None:
        """Bring session and transcript up to date."""
        learn_mode(self.transaction, self.session_row, self.identity_id, self.source.mode)
        if self.taken.inserted:
            recount(self.transaction, [self.session_row])

    def contradict(self) -> None:
        """Note that the transcript contradicts itself: its session is in no list from now on."""
        known = transcript(self.transaction, self.identity_id)
        this = update(transcripts).where(transcripts.c.identity_id == self.identity_id)
        self.transaction.execute(this.values(state="conflict"))
        taint(self.transaction, known.session_row, "conflict")

    @property
    def _session_key(self) -> str:
        return raw_session_key(self.source.name)

    def _new_of_transcript(self, brought: Sequence[Brought]) -> list[tuple[Brought, str | None]]:
        if not brought:
            return []
        ordinals = [one.ordinal for one in brought]
        query = select(_m.ordinal, _m.role, _m.content_hash, _m.epoch, _m.timed).where(
            _m.identity_id == self.identity_id, _m.ordinal.between(min(ordinals), max(ordinals))
        )
        known = {row.ordinal: row for row in self.transaction.execute(query)}
        clashes = [one for one in brought if one.ordinal in known and not _same(known[one.ordinal], one)]
        if clashes:
            raise Clash(f"message {clashes[0].ordinal} is here with another text, role or time", len(clashes))
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
    act: Act, transaction: Transaction, source: Source, slices: Iterable[Sequence[Brought]], total: int
) -> Taken:
    """Store `total` messages, all of them or, where they contradict what the transcript brought before, none:
    then the transcript is in conflict for good. Memory holds a slice at a time."""
    archive = Archive(act, transaction, source)
    archive.open()
    try:
        with transaction.savepoint():
            archive.check()
            for some in slices:
                archive.take(some)
            archive.close()
    except Clash as clash:
        archive.contradict()
        archive.taken = Taken(conflicts=clash.count or total, detail=clash.detail)
    archive.taken.identity_id = archive.identity_id
    return archive.taken


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
