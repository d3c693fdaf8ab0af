"""A brain's start, its end and what comes at the same time: no fault leaves something behind or hides it."""

import asyncio
import threading
from pathlib import Path

import pytest

from models.errors import StoreUnavailable
from stores.ledger import Ledger
from tests.hash_encoder import HashEncoder
from tests.state.brains import add, call, caller, make_brain, model_ready, running, search

pytestmark = pytest.mark.anyio
ME = caller("me")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_searches_at_the_same_time_on_a_cold_scope_all_see_every_user(tmp_path: Path) -> None:
    async with running(tmp_path) as brain:
        ids = [await add(brain, caller(user), "amber fox") for user in ("u", "v")]
    async with running(tmp_path) as brain:
        found = await asyncio.gather(*(search(brain, caller(None), "amber") for _ in range(5)))
        assert [sorted(hits) for hits in found] == [sorted(ids)] * 5


async def test_a_ledger_fault_is_an_error_and_never_an_empty_search_then_or_later(tmp_path: Path) -> None:
    async with running(tmp_path) as brain:
        memory_id = await add(brain, ME, "amber fox")
        brain.residents.evict_all()
        everyone = caller(None)
        await brain.write(lambda t: t.connection.exec_driver_sql("ALTER TABLE memories RENAME TO away"))
        status, body = await call(brain, "brain_memory_search", everyone, query="amber")
        assert (status, body["code"]) == (503, "store_unavailable")
        await brain.write(lambda t: t.connection.exec_driver_sql("ALTER TABLE away RENAME TO memories"))
        assert await search(brain, everyone, "amber") == [memory_id]


async def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite3").write_text("this is not a database, and it is long enough to be read so")
    threads = set(threading.enumerate())
    brain = make_brain(tmp_path)
    with pytest.raises(StoreUnavailable):
        await brain.start()
    left = {thread.name for thread in set(threading.enumerate()) - threads}
    assert not [name for name in left if name.startswith(("ledger", "embedder", "partition"))]
    with pytest.raises(StoreUnavailable, match="closed"):
        await brain.write(lambda _: None)
    (tmp_path / "ledger.sqlite3").unlink()
    async with running(tmp_path) as again:
        await add(again, ME, "one")


async def test_closing_a_brain_that_never_started_or_twice_is_harmless(tmp_path: Path) -> None:
    brain = make_brain(tmp_path)
    await brain.close()
    async with running(tmp_path) as brain:
        await add(brain, ME, "one")
        await brain.close()


async def test_writes_while_the_brain_closes_are_stored_or_refused_and_never_left(tmp_path: Path) -> None:
    brain = make_brain(tmp_path)
    await brain.start()
    writes = [asyncio.create_task(call(brain, "brain_memory_add", ME, content=f"n {n}")) for n in range(30)]
    await asyncio.sleep(0)
    await brain.close()
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*writes)
    stored = [body["memory"]["memory_id"] for status, body in answers if status == 201]
    assert {status for status, _ in answers} <= {201, 503}
    async with running(tmp_path) as brain:
        assert len([id for id in stored if brain.ledger.find(id)]) == len(stored)


async def test_a_read_that_is_under_way_when_the_ledger_closes_ends_well(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.sqlite3", lambda: 1, lambda committed: None)
    ledger.open()
    inside, go_on = threading.Event(), threading.Event()

    def read() -> int:
        with ledger.snapshot() as connection:
            inside.set()
            assert go_on.wait(20)
            return int(connection.exec_driver_sql("SELECT count(*) FROM memories").scalar_one())

    reading = asyncio.create_task(asyncio.to_thread(read))
    await asyncio.to_thread(inside.wait, 20)
    ledger.stop_writing()
    closing = asyncio.create_task(asyncio.to_thread(ledger.close))
    await asyncio.sleep(0)
    go_on.set()
    assert await reading == 0
    await closing
    with pytest.raises(StoreUnavailable, match="closed"):
        ledger.find("m")


async def test_the_models_fingerprint_is_taken_although_the_ledger_refused_it_first(tmp_path: Path) -> None:
    loaded = threading.Event()

    def load() -> HashEncoder:
        assert loaded.wait(20)
        return HashEncoder()

    async with running(tmp_path, load=load) as brain:
        await brain.write(lambda t: t.connection.exec_driver_sql("ALTER TABLE settings RENAME TO away"))
        loaded.set()
        await asyncio.wrap_future(brain.embedder.embed_query("loaded"))
        assert brain.meaning.fingerprint() is None
        await brain.write(lambda t: t.connection.exec_driver_sql("ALTER TABLE away RENAME TO settings"))
        await model_ready(brain)
