"""SIGKILL of a real server, again and again, while clients write: what was acknowledged is there."""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from models.scope import Scope
from service.app import build_brain
from service.callers import PRODUCT
from service.settings import Settings
from stores.audit_checks import audit
from stores.lock import DataDirectoryLock, Owner
from tests import warm
from tests.equivalence import check
from tests.hash_encoder import HashEncoder
from tests.processes import logged
from tests.state.brains import drained, model_ready
from tests.test_vdb import wait_until_gone

ROUNDS = int(os.environ.get("SIGKILL_ROUNDS", "20"))
CLIENTS = 4
SEED = int(os.environ.get("SIGKILL_SEED", "20251130"))
WORDS = "amber birch cobalt delta ember fjord grove harbor iris juniper kelp lagoon".split()
PATIENCE_S = 60

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass(frozen=True)
class Sent:
    """A write as a client sent it: all of its texts, and what makes a repetition of it harmless."""

    user: str
    path: str
    body: dict[str, Any]
    texts: tuple[str, ...]


@dataclass
class Record:
    """What the clients know."""

    acknowledged: dict[str, tuple[str, str]] = field(default_factory=dict)  # id -> user, text
    unanswered: list[Sent] = field(default_factory=list)
    writes: int = 0  # that were acknowledged, of one memory or several


def make(random: random.Random, user: str, name: str) -> Sent:
    """A write of a random kind. Its texts are its own: `name` is in each, written like an identifier."""
    kind = random.choice(["add", "remember", "batch", "atomic", "messages"])
    count = 1 if kind in ("add", "remember") else random.randint(2, 6)
    texts = tuple(f"{name}x{n} {' '.join(random.choices(WORDS, k=6))}" for n in range(count))
    key = {"idempotency_key": name}
    if kind == "add":
        return Sent(user, "/brain/memory", {"content": texts[0], **key}, texts)
    if kind == "remember":
        return Sent(user, "/brain/history/remember", {"content": texts[0], "source": name, **key}, texts)
    if kind == "messages":
        turns = [{"role": "user", "content": text} for text in texts]
        return Sent(user, "/brain/memory", {"messages": turns, "session_id": user, **key}, texts)
    items = [{"content": text} for text in texts]
    return Sent(user, "/brain/memory/batch", {"items": items, "atomic": kind == "atomic", **key}, texts)


async def send(http: httpx.AsyncClient, sent: Sent, record: Record) -> None:
    """Raises httpx.TransportError when the server dies before it has answered."""
    answer = await http.post(sent.path, json=sent.body, headers={"X-Brain-User": sent.user})
    assert answer.status_code in (200, 201, 207), answer.text
    body = answer.json()
    results = body["results"] if sent.path.endswith("batch") else [body]
    ids = [id for result in results for id in result.get("memory_ids") or [result["memory_id"]]]
    assert len(ids) == len(sent.texts)
    record.writes += 1
    record.acknowledged.update((id, (sent.user, text)) for id, text in zip(ids, sent.texts, strict=True))


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[tuple[warm.Process, str]]:
    """A real server over this directory, and where it listens; killed at the end."""
    process = logged(directory, "tests.kill_server", str(directory))
    try:
        yield process, (await card(directory, process)).url
    finally:
        process.kill()
        await asyncio.to_thread(process.wait, PATIENCE_S)


async def card(directory: Path, process: warm.Process) -> Owner:
    lock = DataDirectoryLock(directory)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            owner = lock.owner()
            if owner is not None and owner.pid == process.pid:  # not the one that was killed before
                return owner
            assert process.poll() is None, "the server did not start; see server.log"
            await asyncio.sleep(0.01)


async def write_until_killed(
    url: str, process: warm.Process, dice: random.Random, record: Record, name: str
) -> None:
    """Four clients write until a random number of writes is acknowledged, then SIGKILL, wherever they are."""
    left = dice.randint(1, 40)

    async def client(number: int, dice: random.Random) -> None:
        nonlocal left
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as http:
            for count in range(10_000):
                sent = make(dice, f"user{number}", f"{name}c{number}w{count}")
                try:
                    await send(http, sent, record)
                except httpx.TransportError:
                    record.unanswered.append(sent)
                    return
                left -= 1
                if left == 0:
                    process.kill()

    await asyncio.gather(*(client(number, random.Random(dice.random())) for number in range(CLIENTS)))


async def everything(http: httpx.AsyncClient) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    cursor: str | None = ""
    while cursor is not None:
        answer = await http.get(
            "/brain/memory", params={"limit": 100, **({"cursor": cursor} if cursor else {})}
        )
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found |= {m["memory_id"]: (m["user_id"], m["content"]) for m in page["memories"]}
        cursor = page["next_cursor"]
    return found


async def look(url: str, record: Record, new: set[str]) -> None:
    """All that was acknowledged is there, the `new` by every way there is; the rest is whole or absent."""
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as http:
        stored = await everything(http)
        missing = record.acknowledged.keys() - stored.keys()
        assert not missing, f"acknowledged and gone: {missing}"
        assert record.acknowledged.items() <= stored.items()
        for memory_id in new:
            user, text = record.acknowledged[memory_id]
            by_id = await http.get(f"/brain/memory/{memory_id}")
            assert (by_id.status_code, by_id.json()["content"]) == (200, text)
            query = {"query": text, "limit": 1}
            hits = await http.post("/brain/memory/search", json=query, headers={"X-Brain-User": user})
            assert [hit["memory_id"] for hit in hits.json()["results"]] == [memory_id], text
            recalled = await http.post("/brain/history/recall", json=query, headers={"X-Brain-User": user})
            assert [memory["id"] for memory in recalled.json()["memories"]] == [memory_id], text
        texts = [text for _, text in stored.values()]
        assert len(texts) == len(set(texts)), "something is there twice"
        for sent in record.unanswered:
            there = set(sent.texts) & set(texts)
            assert there in (set(), set(sent.texts)), f"half a write is there: {sent}"
        unanswered, record.unanswered = record.unanswered, []
        for sent in unanswered:  # the client tries again, with the same key: it is there once, then
            await send(http, sent, record)


async def test_what_was_acknowledged_survives_sigkill_at_any_moment(tmp_path: Path) -> None:
    print(f"SIGKILL_SEED={SEED}, rounds {ROUNDS}, log {tmp_path / 'server.log'}")
    dice, record, directory = random.Random(SEED), Record(), tmp_path / "data"
    new: set[str] = set()
    children: list[int] = []
    for number in range(ROUNDS):
        async with running(directory) as (process, url):
            await look(url, record, new)
            for child in children:
                wait_until_gone(child)
            before = set(record.acknowledged)
            children = children_of(process.pid)
            await write_until_killed(url, process, dice, record, f"r{number}")
            assert await asyncio.to_thread(process.wait, PATIENCE_S) == -9
            new = record.acknowledged.keys() - before
    # The history contract's 22nd example asks for so many in twelve rounds.
    assert record.writes >= (300 if ROUNDS >= 12 else ROUNDS)
    await verify(directory, record)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def verify(directory: Path, record: Record) -> None:
    """In this process, after the last kill: ledger ≡ graph ≡ vdb, with the real Chroma."""
    settings = Settings.model_validate({"data": {"directory": str(directory)}})
    lock = DataDirectoryLock(directory)
    assert lock.acquire(), "a process that was killed still owns the directory"
    brain = build_brain(settings, load_encoder=HashEncoder)
    await brain.start()
    try:
        await model_ready(brain)
        await drained(brain)
        assert (brain.applier.lag(), brain.applier.parked(), brain.vdb.last_error) == (0, [], None)
        await check(brain)
        with brain.ledger.snapshot() as connection:
            assert list(audit(connection)) == [], "the chain of the audit log holds"
        users = brain.ledger.users(Scope(PRODUCT, "default"))
        assert users == sorted({user for user, _ in record.acknowledged.values()})
    finally:
        await brain.close()
        lock.release()
