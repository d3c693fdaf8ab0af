"""Our own set (worlds of memories in eleven languages, with questions) through a real server.

    python tests/bench/own.py --data own_dev.json --scorer own_eval.py [--out run.jsonl] [--cross]

The data is not part of this repository. Each world is one agent. What may supersede another does so; a lower
authority's attempt is stored as a memory of its own.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from server import Service, running, score, show_abstention, show_latency

Rows = list[dict[str, Any]]
DISTANCES = (1, 5)  # which worlds `--cross` asks, counted from a question's own


def store(service: Service, agent: str, rows: Rows) -> None:
    """Each memory after those that it supersedes; such a one comes by itself, because it needs their ids."""
    ids: dict[str, str] = {}
    waiting = list(rows)
    while waiting:
        plain = [row for row in waiting if not row.get("supersedes")]
        for row, id in zip(plain, service.add(agent, [memory(row) for row in plain]), strict=True):
            ids[row["key"]] = id
        waiting = [row for row in waiting if row.get("supersedes")]
        ready = [row for row in waiting if all(key in ids for key in row["supersedes"])]
        for row in ready:
            ids[row["key"]] = service.replace(agent, memory(row), [ids[key] for key in row["supersedes"]])
        waiting = [row for row in waiting if row["key"] not in ids]


def memory(row: dict[str, Any]) -> dict[str, Any]:
    """A memory of a world as the add route takes it."""
    fields = {name: value for name, value in row.items() if name not in ("key", "supersedes")}
    return fields | {"metadata": {"key": row["key"]}}


def run(service: Service, worlds: Rows, *, cross: bool) -> Rows:
    """Store and search everything; the rows of the run file. With `cross` every question that has an answer
    is also asked of other worlds, where it should mostly find nothing."""
    for world in worlds:
        store(service, world["world"], world["memories"])
    asked = [(world, number, query) for world in worlds for number, query in enumerate(world["queries"])]
    answers = [service.search(world["world"], query["q"]) for world, _, query in asked]
    show_latency(answers)
    pairs = list(zip(asked, answers, strict=True))
    show_abstention("questions with an answer", [answer for (_, _, q), answer in pairs if q["gold"]])
    show_abstention("questions without one", [answer for (_, _, q), answer in pairs if not q["gold"]])
    if cross:
        strangers = [
            service.search(worlds[(place + distance) % len(worlds)]["world"], query["q"], limit=1)
            for place, world in enumerate(worlds)
            for query in world["queries"]
            for distance in DISTANCES
            if query["gold"]
        ]
        show_abstention("questions asked of other worlds", strangers)
    return [
        {"qid": f"{world['world']}#{number}", "ranked": answer.keys, "abstained": answer.abstained}
        for (world, number, _), answer in pairs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="own_dev.json")
    parser.add_argument("--scorer", type=Path, required=True, help="own_eval.py")
    parser.add_argument("--out", type=Path, help="keep the run file here")
    parser.add_argument("--cross", action="store_true", help="ask each world the questions of others")
    given = parser.parse_args()
    worlds = json.loads(given.data.read_text())
    with running() as service:
        rows = run(service, worlds, cross=given.cross)
    score(given.scorer, given.data, rows, given.out)


if __name__ == "__main__":
    main()
