"""LoCoMo through a real server: recall of the turns that answer a question, and the latency of the search.

    python tests/bench/locomo.py --data locomo10.json --scorer locomo_eval.py [--out run.jsonl] [--cross]

Neither the data (CC BY-NC) nor the scorer is part of this repository. Each conversation is one agent, each
turn one message of layer `l1_raw`, with its speaker, session and the session's date; a photo's caption is
appended to the text. A question is searched in its own conversation, limit 100. The target: R@10 of
categories 1-4 at least .69.
"""

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from server import Service, running, score, show_abstention, show_latency

Rows = list[dict[str, Any]]


def emitted(scorer: Path, data: Path, what: str) -> Rows:
    """What the scorer makes of the data: `corpus` or `queries`, one row for each turn or question."""
    command = [sys.executable, scorer, "--data", data, f"--emit-{what}", "-"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def message(turn: dict[str, Any]) -> dict[str, Any]:
    """A turn as the add route takes it."""
    photo = f" [shares a photo: {turn['caption'].strip()}]" if turn["caption"] else ""
    date = datetime.strptime(turn["date"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    return {
        "content": turn["text"].strip() + photo,
        "kind": "message",
        "layer": "l1_raw",
        "actor": turn["speaker"],
        "session_id": f"session-{turn['session']}",
        "session_position": turn["turn"],
        "memory_at": int(date.timestamp() * 1000),
        "metadata": {"key": turn["dia_id"]},
    }


def run(service: Service, turns: Rows, questions: Rows, *, cross: bool) -> Rows:
    """Store and search everything; the rows of the run file. With `cross` every question is also asked of
    the next conversation, where it should mostly find nothing."""
    conversations: dict[str, Rows] = defaultdict(list)
    for turn in turns:
        conversations[turn["conv"]].append(message(turn))
    for name, messages in conversations.items():
        service.add(name, messages)
    answers = [service.search(question["conv"], question["question"]) for question in questions]
    show_latency(answers)
    for category in sorted({question["category"] for question in questions}):
        pairs = zip(questions, answers, strict=True)
        show_abstention(f"category {category}", [a for q, a in pairs if q["category"] == category])
    if cross:
        names = list(conversations)
        after = dict(zip(names, [*names[1:], names[0]], strict=True))
        elsewhere = [q for q in questions if q["category"] != 5]
        strangers = [service.search(after[q["conv"]], q["question"], limit=1) for q in elsewhere]
        show_abstention("questions 1-4 asked of the next conversation", strangers)
    return [
        {"qid": question["qid"], "ranked": answer.keys, "latency_ms": answer.elapsed_ms}
        for question, answer in zip(questions, answers, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="locomo10.json or a part of it")
    parser.add_argument("--scorer", type=Path, required=True, help="locomo_eval.py")
    parser.add_argument("--out", type=Path, help="keep the run file here")
    parser.add_argument("--cross", action="store_true", help="ask each conversation the other's questions")
    given = parser.parse_args()
    turns, questions = (emitted(given.scorer, given.data, what) for what in ("corpus", "queries"))
    with running() as service:
        rows = run(service, turns, questions, cross=given.cross)
    score(given.scorer, given.data, rows, given.out)


if __name__ == "__main__":
    main()
