"""SIGKILL, round after round, of a real server under mixed work: `make soak`, or
`python -m tests.faults.soak [--rounds 200] [--seed N] [--data FOLDER]`.

Each client has a user of its own and knows what it was told. A request without an answer is sent again after
the restart, with its key. After each restart everything stands as the clients know it: no acknowledged write
is lost, what was deleted stays deleted, what was purged stays purged, nothing is there twice or by half.
Every tenth round `brain doctor` must find nothing; at the end, ledger ≡ graph ≡ vdb, and no file holds a
purged text.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from service.app import build_brain
from service.settings import Settings
from stores.lock import DataDirectoryLock
from stores.traces import Search
from tests import warm
from tests.equivalence import check
from tests.faults.clients import MEMORY, Client
from tests.hash_encoder import HashEncoder
from tests.processes import environment
from tests.state.brains import drained, model_ready
from tests.test_sigkill import children_of, running
from tests.test_vdb import wait_until_gone

CLIENTS = 4
PATIENCE_S = 60
DOCTOR_EVERY = 10
SAMPLE = 40  # hidden memories that are asked for by id, a round
LISTED = ("active", "superseded", "archived")
ANSWERS = {"forgotten": 410, "purged": 404}


async def work_until_killed(
    url: str, process: warm.Process, clients: Sequence[Client], dice: random.Random
) -> None:
    """All clients at once, until SIGKILL at a random moment after a random number of answers."""
    left = dice.randint(1, 60)

    def acknowledge() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            asyncio.get_running_loop().call_later(dice.random() * 0.02, process.kill)

    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as http:
        await asyncio.gather(*(client.work(http, acknowledge) for client in clients))
    assert await asyncio.to_thread(process.wait, PATIENCE_S) == -9


async def look(url: str, clients: Sequence[Client], dice: random.Random) -> None:
    """Everything stands as the clients know it, and what they have no answer to is done now."""
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as http:
        await asyncio.gather(*(look_at(http, client, dice) for client in clients))


async def look_at(http: httpx.AsyncClient, client: Client, dice: random.Random) -> None:
    await client.settle(http)
    for status in LISTED:
        expected = {memory.memory_id: (memory.text, sorted(memory.tags)) for memory in client.of(status)}
        found = await listed(http, client.user, status)
        assert found.keys() >= expected.keys(), f"lost: {expected.keys() - found.keys()}"
        assert found == expected, f"{client.user}: {status} is not as it was left"
    await look_closer(http, client, dice)


async def listed(http: httpx.AsyncClient, user: str, status: str) -> dict[str, tuple[str, list[str]]]:
    """Text and tags of all memories of a user with this status."""
    found: dict[str, tuple[str, list[str]]] = {}
    cursor: str | None = ""
    while cursor is not None:
        params = {"status": status, "limit": 100} | ({"cursor": cursor} if cursor else {})
        answer = await http.get(MEMORY, params=params, headers={"X-Brain-User": user})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found |= {m["memory_id"]: (m["content"], sorted(m["tags"])) for m in page["memories"]}
        cursor = page["next_cursor"]
    return found


async def look_closer(http: httpx.AsyncClient, client: Client, dice: random.Random) -> None:
    """By id, by search and by link: what is new, and some of what must not be seen."""
    headers = {"X-Brain-User": client.user}
    hidden = [memory for memory in client.memories.values() if memory.status in ANSWERS]
    for memory in dice.sample(hidden, min(SAMPLE, len(hidden))):
        answer = await http.get(f"{MEMORY}/{memory.memory_id}", headers=headers)
        assert answer.status_code == ANSWERS[memory.status], (memory, answer.text)
        assert memory.text not in answer.text
    fresh, client.fresh = [client.memories[id] for id in client.fresh], []
    for memory in fresh:
        answer = await http.post(f"{MEMORY}/search", json={"query": memory.text, "limit": 1}, headers=headers)
        hits = [hit["memory_id"] for hit in answer.json()["results"]]
        assert (hits == [memory.memory_id]) is (memory.status == "active"), (memory, answer.text)
    for one, other in client.links[-3:]:
        if {client.memories[one].status, client.memories[other].status} == {"active"}:
            answer = await http.get(f"{MEMORY}/{one}/related", headers=headers)
            assert other in answer.text, f"{one} and {other} are linked no more"


async def examine(directory: Path) -> None:
    """`brain doctor` beside the server finds nothing."""
    command = ("service.cli", "doctor", "--json", "--data", str(directory))
    done = await asyncio.to_thread(warm.run, *command, env=environment(), given=b"", timeout=120)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


async def verify(directory: Path, purged: Sequence[str]) -> None:
    """In this process, after the last kill: ledger ≡ graph ≡ vdb, with the real Chroma; then every file."""
    settings = Settings.model_validate({"data": {"directory": str(directory)}})
    lock = DataDirectoryLock(directory)
    assert lock.acquire(), "a process that was killed still owns the directory"
    brain = build_brain(settings, load_encoder=HashEncoder)
    await brain.start()
    try:
        await model_ready(brain)
        for shard in brain.shards.due():
            await brain.shards.refilled(shard)
        await drained(brain)
        assert (brain.applier.lag(), brain.applier.parked(), brain.vdb.last_error) == (0, [], None)
        await check(brain)
    finally:
        await brain.close()
        lock.release()
    if purged:
        traces = list(Search(directory, purged).traces())
        assert not traces, f"purged and still there: {traces[:10]}"


async def soak(folder: Path, rounds: int, seed: int, *, doctor_every: int = DOCTOR_EVERY) -> int:
    """All of it, in a folder of its own. How many writes were acknowledged."""
    print(f"{rounds} rounds, seed {seed}, log {folder / 'server.log'}", flush=True)
    dice, directory, begun = random.Random(seed), folder / "data", time.monotonic()
    clients = [Client(number, random.Random(dice.random())) for number in range(CLIENTS)]
    children: list[int] = []
    unanswered = 0
    for number in range(1, rounds + 1):
        async with running(directory) as (process, url):
            unanswered += sum(client.doubt is not None for client in clients)
            await look(url, clients, dice)
            if number % doctor_every == 0:
                await examine(directory)
                known = sum(len(client.memories) for client in clients)
                done = sum(client.acknowledged for client in clients)
                passed = time.monotonic() - begun
                print(
                    f"round {number}: {done} writes acknowledged, {unanswered} sent again, {known} memories, "
                    f"none lost, doctor clean, {passed / number:.1f} s a round",
                    flush=True,
                )
            for child in children:
                wait_until_gone(child)
            children = children_of(process.pid)
            await work_until_killed(url, process, clients, dice)
    async with running(directory) as (_, url):
        await look(url, clients, dice)
    purged = [memory for client in clients for memory in client.of("purged")]
    await verify(directory, [memory.text.split()[0] for memory in purged])
    done = sum(client.acknowledged for client in clients)
    print(
        f"{rounds} SIGKILLs, {done} writes acknowledged, 0 lost; {len(purged)} memories purged, no trace of "
        f"them; {time.monotonic() - begun:.0f} s"
    )
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--data", type=Path, help="an empty folder to work in, kept afterwards")
    given = parser.parse_args()
    if given.data is not None:
        given.data.mkdir(parents=True, exist_ok=True)
        asyncio.run(soak(given.data.absolute(), given.rounds, given.seed))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(soak(Path(folder), given.rounds, given.seed))


if __name__ == "__main__":
    sys.exit(main())
