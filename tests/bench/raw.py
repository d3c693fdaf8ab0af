"""200,000 raw messages in 2,000 sessions: a month's list against the bare SQL that reads the same rows, and a
search through all of them. In this process: what HTTP costs is measured elsewhere."""

import asyncio
import sqlite3
import tempfile
import time
from functools import partial
from pathlib import Path

from measure import Figure, at_most, median, ratio
from texts import sentences

from models.draft import content_key
from models.identity import uuid7
from models.raw_requests import ListRawSessions, SearchRaw
from models.raw_sessions import SessionName, message_hash
from models.scope import Caller, Scope
from service import app, raw_sessions
from service.brain import Brain
from service.settings import Settings
from stores.acts import Act
from stores.raw_archive import Brought, Source, bring
from stores.words import analyze
from tests.hash_encoder import HashEncoder

SESSIONS, MESSAGES = 2_000, 100  # messages in each
YEAR_S, START = 365 * 86_400, 1_735_689_600  # 2025-01-01
MONTH = "2025-06-01", "2025-06-30"
LATEST, SAMPLE = 20, 3
ROUNDS, TIMES = 15, 10
CALLER = Caller(Scope("default", "bench"), None, frozenset({"read", "write"}), "bench")

_SESSIONS = """
SELECT source_root, host, project, session_id, session_mode, first_epoch, last_epoch, message_count,
       user_count, assistant_count, content_hash, session_row FROM raw_sessions
WHERE product = 'default' AND agent = 'bench' AND excluded = 0 AND last_epoch >= ? AND first_epoch <= ?
ORDER BY last_epoch DESC LIMIT ?
"""
_LABEL = """
SELECT l.intent, l.topic, l.source FROM session_labels l
JOIN versions v ON v.memory_id = l.memory_id AND v.to_seq IS NULL
WHERE l.product = 'default' AND l.agent = 'bench' AND l.user = 'default' AND l.host = ? AND l.project = ?
  AND l.session_id = ?
ORDER BY l.at DESC, l.number DESC LIMIT 1
"""
_EXCLUDED = """
SELECT host, source_root, project, session_id, message_count FROM raw_sessions
WHERE product = 'default' AND agent = 'bench' AND excluded = 1 AND last_epoch >= ? AND first_epoch <= ?
"""
_SAMPLES = """
SELECT substr(m.content, 1, 200) FROM raw_messages r JOIN memories m ON m.memory_id = r.memory_id
WHERE r.session_row = ? AND r.role = 'user' AND r.shown ORDER BY r.epoch, r.number LIMIT ?
"""


def figures() -> list[Figure]:
    """The target is in issue 7."""
    with tempfile.TemporaryDirectory(prefix="brain-bench-") as scratch:
        return asyncio.run(_figures(Path(scratch)))


async def _figures(data: Path) -> list[Figure]:
    settings = Settings.model_validate({"data": {"directory": str(data)}})
    brain = app.build_brain(settings, load_encoder=HashEncoder)
    await brain.vdb.close()  # neither Chroma nor the model has a part in this
    brain.embedder.close()
    await brain.start()
    try:
        started = time.perf_counter()
        await _fill(brain)
        filled = SESSIONS * MESSAGES / (time.perf_counter() - started)
        return [
            Figure("200,000 raw messages: stored, with their words", "", f"{filled:,.0f} a second"),
            await _listing(brain, data),
            await _search(brain),
        ]
    finally:
        await brain.close()


async def _fill(brain: Brain) -> None:
    texts = sentences(SESSIONS * MESSAGES // 10, 1)
    for number in range(SESSIONS):
        begun = START + number * YEAR_S // SESSIONS
        brought = [_brought(texts, number, place, begun + 30 * place) for place in range(MESSAGES)]
        source = Source(
            SessionName("claude-code", "local", f"/repo/{number % 20}", f"s{number}"), "unknown", "t"
        )
        act = Act(CALLER, "bench", None)
        await brain.write(partial(bring, act, source=source, brought=brought))


def _brought(texts: list[str], session: int, place: int, at: int) -> Brought:
    content = f"{texts[(session * MESSAGES + place) % len(texts)]} Turn {place} of session {session}."
    return Brought(
        uuid7(at * 1000),
        place,
        "assistant" if place % 2 else "user",
        content,
        at * 1000,
        None,
        False,
        message_hash(content),
        content_key(content),
        analyze(content),
        (),
    )


async def _listing(brain: Brain, data: Path) -> Figure:
    """CPU time of both, of this thread and the one that reads."""
    request = ListRawSessions(since=MONTH[0], until=MONTH[1], latest=LATEST, sample=SAMPLE)
    bare = sqlite3.connect(f"file:{data / 'ledger.sqlite3'}?mode=ro", uri=True, check_same_thread=False)
    since, until = 1_748_736_000, 1_751_327_999

    def floor() -> None:
        rows = bare.execute(_SESSIONS, (since, until, LATEST)).fetchall()
        samples = [bare.execute(_SAMPLES, (row[-1], SAMPLE)).fetchall() for row in rows]
        for row in rows:
            bare.execute(_LABEL, row[1:4]).fetchall()
        bare.execute(_EXCLUDED, (since, until)).fetchall()
        assert len(samples) == LATEST and all(len(sample) == SAMPLE for sample in samples)

    found = (await raw_sessions.list_sessions(brain, CALLER, request)).body
    assert found["count"] == LATEST and len(found["sessions"][0]["user_message_samples"]) == SAMPLE
    ours, floors = [], []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(TIMES):
            await raw_sessions.list_sessions(brain, CALLER, request)
        ours.append((time.process_time() - started) / TIMES)
        started = time.process_time()
        for _ in range(TIMES):
            floor()
        floors.append((time.process_time() - started) / TIMES)
    bare.close()
    beside = f"{median(ours) * 1000:.2f} ms against {median(floors) * 1000:.2f} ms CPU"
    value = ratio(ours, floors)
    return at_most("200,000 raw messages: list a month, latest 20, sample 3, over bare SQL", value, 3, beside)


async def _search(brain: Brain) -> Figure:
    async def took(query: str) -> float:
        started = time.perf_counter()
        await raw_sessions.search(brain, CALLER, SearchRaw(query=query))
        return (time.perf_counter() - started) * 1000

    frequent = [await took("turn 7") for _ in range(5)]
    missing = [await took("nobody ever said this") for _ in range(5)]
    measured = (
        f"{median(frequent):.0f} ms for what is everywhere, {median(missing):.0f} ms for what is nowhere"
    )
    return Figure("200,000 raw messages: search in all of them", "", measured)


if __name__ == "__main__":
    for figure in figures():
        print(figure.row())
