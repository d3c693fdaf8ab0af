"""Verifies the audit chain: every event hashed again, in order, with a few rows in memory at a time."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, and_, func, select

from stores.audit import START, Head, kept_head, link_hash, read_events, salted_digest, select_events
from stores.findings import Finding
from stores.schema import chain, events, memories

CHECK = "audit"
MOST = 1_000  # entries named of one finding, so that a file that is wrong all over needs no memory for it

Row = dict[str, Any]

CHANGED = "entries of the audit log, or what stood before them, were changed or taken away"
MISSING = "entries of the audit log are gone; their links are still there"
UNCHAINED = "entries of the audit log have no link in the chain: they were put in, or their links are gone"
CUT = "the audit log ends before the entry that was written last"
HEADLESS = "the audit log does not end with the entry that was written last, or nothing names that one"
REWRITTEN = "memories have another text than the one that was written"


def audit(connection: Connection) -> Iterator[Finding]:
    """The whole chain, its end, and that the memories have the texts that their first events vouch for."""
    found: dict[str, list[str]] = {}

    def note(what: str, subject: object) -> None:
        subjects = found.setdefault(what, [])
        if len(subjects) < MOST:
            subjects.append(str(subject))

    last = Head()
    through = START  # the link that entries without one would have led to: the next may follow that too
    for seq, event, link in _side_by_side(connection):
        if link is None:
            note(UNCHAINED, seq)
            through = _hash(through, event)
            continue
        if event is None:
            note(MISSING, seq)
        elif link not in (_hash(last.hash, event), _hash(through, event)):
            note(CHANGED, seq)
        last, through = Head(seq, link), link
    kept = kept_head(connection)
    if kept is not None and kept.seq > last.seq:
        note(CUT, kept.seq)
    elif (kept or Head()) != last:
        note(HEADLESS, last.seq if kept is None else kept.seq)
    for memory_id in _rewritten(connection):
        note(REWRITTEN, memory_id)
    for what, subjects in found.items():
        yield Finding(CHECK, what, tuple(subjects))


def extent(connection: Connection) -> dict[str, Any]:
    """How many entries there are, and the last: its number and hash. JSON-ready. Whoever keeps the hash
    elsewhere can tell later whether somebody wrote the whole log anew."""
    head = kept_head(connection) or Head()
    count = connection.scalar(select(func.count()).select_from(chain)) or 0
    return {"entries": count, "seq": head.seq, "hash": head.hash.hex()}


def _hash(previous: bytes, event: Row | None) -> bytes:
    """Empty for a row that no write of ours made."""
    try:
        return b"" if event is None else link_hash(previous, event)
    except (TypeError, ValueError, AttributeError):
        return b""


def _side_by_side(connection: Connection) -> Iterator[tuple[int, Row | None, bytes | None]]:
    """Every number that has an event or a link, in order, with both. Either may be missing."""
    rows = read_events(connection, select_events())
    links = iter(connection.execute(select(chain.c.seq, chain.c.hash).order_by(chain.c.seq)))
    event, link = next(rows, None), next(links, None)
    while event is not None or link is not None:
        if link is None or (event is not None and event["seq"] < link.seq):
            assert event is not None
            yield event["seq"], event, None
            event = next(rows, None)
        elif event is None or link.seq < event["seq"]:
            yield link.seq, None, link.hash
            link = next(links, None)
        else:
            yield link.seq, event, link.hash
            event, link = next(rows, None), next(links, None)


def _rewritten(connection: Connection) -> Iterator[str]:
    """Memories whose text is not that of the event that wrote them. Those that were purged have no salt."""
    query = (
        select(memories.c.memory_id, memories.c.content, events.c.reason, events.c.salt, events.c.digest)
        .join(events, and_(events.c.seq == memories.c.seq, events.c.memory_id == memories.c.memory_id))
        .where(events.c.salt.is_not(None))
        .order_by(memories.c.seq)
    )
    for row in connection.execute(query):
        try:
            same = salted_digest(row.salt, row.reason, {"content": row.content}) == row.digest
        except (TypeError, ValueError):
            same = False
        if not same:
            yield row.memory_id
