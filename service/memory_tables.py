"""Memories as tables for a terminal."""

from typing import Any

from rich.table import Table

from service.terminal import cells, date, table

Document = dict[str, Any]


def added_lines(answer: Document) -> list[str]:
    """What an add did."""
    memory = answer["memory"]
    done = "United with the equal memory" if answer["deduplicated"] else "Stored"
    lines = [f"{done} {memory['memory_id']} ({_kind(memory)})."]
    if not answer["indexed"]:
        lines.append("Words find it now, meaning as soon as its vectors have followed.")
    return lines


def memory_table(memory: Document) -> Table:
    """One memory, a line for each of its fields that says something."""
    shown = table("", "")
    rows = (
        ("id", memory["memory_id"]),
        ("text", memory["content"]),
        ("layer", memory["layer"]),
        ("status", memory["status"]),
        ("authority", f"{memory['source_authority']}, confidence {float(memory['confidence']):.2f}"),
        ("speculate", memory["speculate"]),
        ("tags", ", ".join(memory["tags"])),
        ("agent, user", f"{memory['agent_id']}, {memory['user_id']}"),
        ("happened", date(memory["memory_at"])),
        ("written", date(memory["gmt_created"])),
        ("supersedes", ", ".join(memory["supersedes"] or [])),
        ("superseded by", ", ".join(memory["superseded_by"] or [])),
        ("read from", memory["source"]),
    )
    for name, value in rows:
        if value:
            shown.add_row(*cells(name, value))
    return shown


def memories_table(memories: list[Document]) -> Table:
    """Several, a row each."""
    shown = table("memory", "text")
    for memory in memories:
        shown.add_row(*cells(_label(memory), memory["content"]))
    return shown


def hits_table(answer: Document) -> Table:
    """The results of a search, best first."""
    shown = table("score", "memory", "text")
    for hit in answer["results"]:
        shown.add_row(*cells(f"{float(hit['score']):.2f}", _label(hit), hit["content"]))
    return shown


def stats_table(answer: Document) -> Table:
    """The counts, those of nothing left out."""
    shown = table("", "")
    shown.add_row(*cells("memories", answer["total"]))
    for name in ("layers", "statuses", "authorities", "kinds"):
        counts = ", ".join(f"{value} {count}" for value, count in answer[name].items() if count)
        shown.add_row(*cells(name, counts or "–"))
    dimensions = answer["dimensions"]
    model = answer["model"] if dimensions is None else f"{answer['model']}, {dimensions} dimensions"
    shown.add_row(*cells("model", model))
    shown.add_row(*cells("waiting for the vector store", answer["index_lag"]))
    return shown


def _label(memory: Document) -> str:
    return f"{memory['memory_id']}\n{_kind(memory)}\n{date(memory['memory_at'] or memory['gmt_created'])}"


def _kind(memory: Document) -> str:
    status = "" if memory["status"] == "active" else f", {memory['status']}"
    return f"{memory['layer']}, {memory['source_authority']}{status}"
