"""Writes the fixture of a schema: `python -m tests.schema_fixture FOLDER` makes FOLDER/NNNN.sql, the ledger
as this code writes it, and NNNN.json, what it answered then. docs/faults.md says when and how."""

import json
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from service.operations import BY_NAME
from tests.serving import Api, eventually, server, succeeded

AGENT = "fixture"
SEARCHES = ["Which ferry sails at noon?", "zinc order ZX-4711", "turn two of the talk"]


def write_memories(api: Api) -> list[str]:
    """Something of every kind that this code can write. Their ids."""
    ada, bob = api.of(AGENT, "ada"), api.of(AGENT, "bob")
    metadata = {"big": 2**60, "share": 2.50, "deep": {"list": [1, None, "café 日本"]}}
    labels = {"tags": ["harbour", "noon"], "metadata": metadata, "memory_at": 1_700_000_000_000}
    added = [ada.add("The ferry to the island sails at noon.", layer="l5_knowledge", **labels)]
    added += [
        bob.add(f"Bob orders zinc, number ZX-{number}.", source_authority="team") for number in (4711, 4712)
    ]
    turns = [{"role": "user", "content": f"Turn {word} of the talk."} for word in ("one", "two", "three")]
    added.append(ada.add(messages=turns, session_id="talk"))
    results = ada.batch([{"content": f"Item {n} of a batch."} for n in range(6)])["results"]
    ids = [memory_id for one in [*added, *results] for memory_id in one["memory_ids"]]
    return ids + (change_memories(ada, results) if "brain_purge" in BY_NAME else [])


def change_memories(api: Api, results: list[Any]) -> list[str]:
    """Every change. The ids of what is new."""
    changed, replaced, other, forgotten, archived, purged = [one["memory_ids"][0] for one in results]
    path = "/brain/memory"
    new = [
        succeeded(api.request("PATCH", f"{path}/{changed}", {"content": "Item 0, said better."})),
        succeeded(
            api.post(f"{path}/supersede", {"content": "Items 1 and 2.", "supersedes": [replaced, other]})
        ),
    ]
    ids: list[str] = [one["memory"]["memory_id"] for one in new]
    succeeded(api.request("PATCH", f"{path}/{ids[0]}", {"tags": ["better"]}))
    succeeded(api.request("DELETE", f"{path}/{forgotten}"))
    succeeded(api.request("DELETE", f"{path}/{archived}", params={"mode": "archive"}))
    succeeded(api.request("PUT", f"/brain/links/{ids[0]}/explains/{ids[1]}"))
    succeeded(api.post("/brain/purge", {"memory_id": purged, "wait": True}))
    return ids + (contradict(api) if "brain_conflicts" in BY_NAME else [])


def contradict(api: Api) -> list[str]:
    """Facts that agree, replace each other and contradict each other, one conflict that is open and one that
    is resolved, feedback, and what rests on what fell. The ids."""

    def state(question: str, answer: str, **fields: Any) -> tuple[str, list[str]]:
        fact = {"subject": "ferry", "predicate": question, "object": answer, "single_valued": True}
        done = api.add(f"The ferry: {question} {answer}.", facts=[fact], **fields)
        return done["memory"]["memory_id"], done["conflicts"]

    high, low = {"source_authority": "policy"}, {"source_authority": "team"}
    early, _ = state("calls at", "Elba", actor="Ann", memory_at=1_000)
    resting = api.add("Sail to Elba.", evidence_ids=[early])["memory"]["memory_id"]
    late, _ = state("calls at", "Giglio", actor="Ann", memory_at=2_000)
    same = api.add(
        "Giglio it is.",
        facts=[{"subject": "ferry", "predicate": "calls at", "object": "giglio"}],
        actor="Bob",
    )["memory"]["memory_id"]
    rule, _ = state("costs", "nine", **high)
    denial, _ = state("costs", "ten", **low)
    old, _ = state("takes", "an hour", **high)
    new, opened = state("takes", "two hours", **low)
    succeeded(api.post(f"/brain/conflicts/{opened[0]}/resolve", {"adopted": new, "reason": "Measured."}))
    for verdict in ("useful", "confirmed"):
        succeeded(api.post(f"/brain/memory/{late}/feedback", {"verdict": verdict}))
    return [early, resting, late, same, rule, denial, old, new]


def answers(api: Api, ids: list[str]) -> dict[str, Any]:
    """What is to be asked again: by id, history where there is one, and searches."""
    api = api.of(AGENT)
    found: dict[str, Any] = {"memories": {}, "histories": {}, "searches": {}}
    for memory_id in ids:
        answer = api.get(f"/brain/memory/{memory_id}")
        found["memories"][memory_id] = answer.json() | {"http_status": answer.status_code}
        if "brain_memory_history" in BY_NAME:
            history = api.get(f"/brain/memory/{memory_id}/history").json()
            found["histories"][memory_id] = history.get("versions")
    for query in SEARCHES:
        found["searches"][query] = api.search(query, limit=1)["results"][0]["memory_id"]
    found["total"] = api.list()["total"]
    return found


def main(folder: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        data = Path(temporary) / "data"
        with server(data) as running:
            eventually(lambda: running.api.readyz()["status"] == "ready")
            ids = write_memories(running.api)
            running.settle()
            known = answers(running.api, ids)
            if (Path(__file__).parent / "keyed.py").exists():
                order = {"product": "default", "rights": ["read", "write", "admin"]}
                owner = {"authorization": f"Bearer {running.owner.token}"}
                made = running.api.post("/internal/keys", order, headers=owner)
                known["credential"] = succeeded(made)["credential"]
        ledger = sqlite3.connect(data / "ledger.sqlite3")
        [[revision]] = ledger.execute("SELECT version_num FROM alembic_version")
        target = Path(folder)
        (target / f"{revision}.sql").write_text("\n".join(ledger.iterdump()) + "\n", encoding="utf-8")
        text = json.dumps(known, ensure_ascii=False, indent=1)
        (target / f"{revision}.json").write_text(text + "\n", encoding="utf-8")
        ledger.close()


if __name__ == "__main__":
    main(sys.argv[1])
