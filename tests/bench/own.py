"""Our own set (worlds of memories in eleven languages, with questions) through a real server.

    python tests/bench/own.py --data own_dev.json --scorer own_eval.py [--out run.jsonl] [--cross]

The data is not part of this repository. Each world is one agent. What a memory supersedes can't be written
yet, so it is left out: figures that depend on it (best@1 of supersession, violations) are too low for now.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from server import Service, running, score, show_abstention, show_latency

Rows = list[dict[str, Any]]
DISTANCES = (1, 5)  # which worlds `--cross` asks, counted from a question's own


def memory(row: dict[str, Any]) -> dict[str, Any]:
    """A memory of a world as the add route takes it."""
    fields = {name: value for name, value in row.items() if name not in ("key", "supersedes")}
    return fields | {"metadata": {"key": row["key"]}}


def run(service: Service, worlds: Rows, *, cross: bool) -> Rows:
    """Store and search everything; the rows of the run file. With `cross` every question that has an answer
    is also asked of other worlds, where it should mostly find nothing."""
    for world in worlds:
        service.add(world["world"], [memory(row) for row in world["memories"]])
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
