"""What other memory services write, as lines of our own export. The ids follow from what was written there,
so that the same file gives the same memories again, and a file that has grown adds what is new in it.

mcp-memory   the knowledge graph of the reference MCP memory server, JSONL. An entity becomes a memory of
             layer l5_knowledge, each of its observations one of l2_fact that is `related` to it, and a
             relation one of l2_fact that is `related` to both entities, which are `related` too.
mem0         what mem0 gives of memories (`get_all`, an export), JSON or JSONL: a list, or an object with
             `results` or `memories`. Each becomes a memory of layer l2_fact.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal

from models import verbatim
from models.authority import Authority, initial_confidence
from models.errors import BadJson
from models.identity import uuid7

Document = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Of a mem0 object: what has a place of its own in a memory. All the rest is kept in its metadata.
_MEM0_PLACED = ("memory", "metadata", "user_id", "agent_id", "run_id", "actor_id", "categories")


class Unreadable(Exception):
    """A line, or an item, that is not of the format. The text says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where what is imported goes, and how binding it is. None: as the file says, or the default."""

    product: str | None = None
    agent: str | None = None
    user: str | None = None
    authority: Authority = "informal"


Item = tuple[int, Document | Unreadable]
"""The number of a line, or of an item of a list, and a memory that it gives."""


def from_mcp_memory(file: BinaryIO, target: Target) -> Iterator[Item]:
    """The memories of a JSONL graph, in its order; several for a line with observations."""
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            for document in _of_graph(_object(line), target):
                yield number, document
        except Unreadable as fault:
            yield number, fault


def from_mem0(file: BinaryIO, target: Target) -> Iterator[Item]:
    """The memories of an export of mem0, in its order."""
    for number, found in _mem0_items(file):
        if isinstance(found, Unreadable):
            yield number, found
            continue
        try:
            yield number, _of_mem0(found, target)
        except Unreadable as fault:
            yield number, fault


Source = Literal["mcp-memory", "mem0"]
IMPORTERS: dict[str, Callable[[BinaryIO, Target], Iterator[Item]]] = {
    "mcp-memory": from_mcp_memory,
    "mem0": from_mem0,
}


# The reference MCP memory server


def _of_graph(row: Document, target: Target) -> Iterator[Document]:
    if row.get("type") == "entity":
        name, type = _text(row, "name"), _text(row, "entityType")
        observations = row.get("observations", [])
        if not isinstance(observations, list) or not all(isinstance(one, str) for one in observations):
            raise Unreadable("observations must be a list of texts")
        entity = _entity_id(name, target)
        yield _memory(
            entity, f"{name} ({type})", "l5_knowledge", {"entity": name, "entityType": type}, target, name
        )
        for text in dict.fromkeys(observations):
            id = _id(target, "observation", name, text)
            said = {"entity": name, "observation": text}
            yield _memory(id, f"{name}: {text}", "l2_fact", said, target, name, [(id, entity)])
    elif row.get("type") == "relation":
        start, type, end = _text(row, "from"), _text(row, "relationType"), _text(row, "to")
        id = _id(target, "relation", start, type, end)
        ends = [_entity_id(start, target), _entity_id(end, target)]
        links = [(id, one) for one in dict.fromkeys(ends)] + ([(ends[0], ends[1])] if start != end else [])
        said = {"from": start, "relationType": type, "to": end}
        yield _memory(id, f"{start} {type} {end}", "l2_fact", said, target, start, links)
    else:
        raise Unreadable("type must be entity or relation")


def _entity_id(name: str, target: Target) -> str:
    return _id(target, "entity", name)


def _memory(
    id: str,
    content: str,
    layer: str,
    said: Document,
    target: Target,
    origin: str,
    links: list[tuple[str, str]] | None = None,
) -> Document:
    """A line of our export. `origin` is the entity that it is about."""
    product = target.product or "default"
    return {
        "memory_id": id,
        "product": product,
        "agent": target.agent or "default",
        "user": target.user or product,
        "kind": "memory",
        "layer": layer,
        "content": content,
        "source_authority": target.authority,
        "origin_id": _label(f"mcp-memory:{origin}"),
        "versions": [{"version": 1, "state": _state({"mcp_memory": said}, target)}],
        "links": [{"from_id": start, "type": "related", "to_id": end} for start, end in links or ()],
    }


# mem0


def _mem0_items(file: BinaryIO) -> Iterator[tuple[int, Document | Unreadable]]:
    """The objects of a list, counted from 1, or those of the lines of JSONL, by line."""
    text = file.read()
    try:
        whole = verbatim.parse(text)
    except BadJson as error:
        lines = [(number, line) for number, line in enumerate(text.split(b"\n"), 1) if line.strip()]
        if len(lines) < 2 or text.lstrip()[:1] != b"{":
            raise Unreadable(error.detail.replace("The body is", "The file is", 1)) from None
        for number, line in lines:
            try:
                yield number, _object(line)
            except Unreadable as fault:
                yield number, fault
        return
    if isinstance(whole, dict):
        named = [whole[name] for name in ("results", "memories") if isinstance(whole.get(name), list)]
        whole = named[0] if named else [whole]
    if not isinstance(whole, list):
        raise Unreadable("The file is neither a list nor an object with `results` or `memories`.")
    for number, one in enumerate(whole, 1):
        yield number, one if isinstance(one, dict) else Unreadable("must be an object")


def _of_mem0(row: Document, target: Target) -> Document:
    content, theirs = _text(row, "memory"), _text(row, "id")
    metadata = row.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise Unreadable("metadata must be an object")
    tags = row.get("categories") or []
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise Unreadable("categories must be a list of texts")
    created = _time(row, "created_at")
    product = target.product or "default"
    agent = target.agent or _optional(row, "agent_id") or "default"
    user = target.user or _optional(row, "user_id") or product
    session, actor = _optional(row, "run_id"), _optional(row, "actor_id")
    rest = {name: value for name, value in row.items() if name not in _MEM0_PLACED}
    until = _time(row, "expiration_date")
    state = _state({**metadata, "mem0": rest}, target)
    state |= {} if until is None else {"valid_until": until}
    state |= {"tags": list(dict.fromkeys(tags))} if tags else {}
    id = uuid7(created or 0, _digest("mem0", product, agent, user, theirs))
    placed = {"session_id": session, "session_key": session, "actor": actor, "gmt_created": created}
    return {
        "memory_id": id,
        "product": product,
        "agent": agent,
        "user": user,
        "kind": "memory",
        "layer": "l2_fact",
        "content": content,
        "source_authority": target.authority,
        "origin_id": _label(f"mem0:{theirs}"),
        **{name: value for name, value in placed.items() if value is not None},
        "versions": [{"version": 1, **({} if created is None else {"at": created}), "state": state}],
    }


# Both


def _state(custom: Document, target: Target) -> Document:
    return {"custom": custom, "confidence": initial_confidence(target.authority, "stated", None)}


def _id(target: Target, *parts: str) -> str:
    product = target.product or "default"
    place = (product, target.agent or "default", target.user or product)
    return uuid7(0, _digest("mcp-memory", *place, *parts))


def _digest(*parts: str) -> bytes:
    """10 bytes that stand for the parts; the same everywhere."""
    return hashlib.sha256(json.dumps(parts).encode()).digest()[:10]


def _label(text: str) -> str:
    """As much of it as an origin takes; the id stands for the whole."""
    return text[:256]


def _object(line: bytes) -> Document:
    try:
        found = verbatim.parse(line)
    except BadJson as error:
        raise Unreadable(error.detail.replace("The body is", "it is", 1)) from None
    if not isinstance(found, dict):
        raise Unreadable("must be an object")
    return found


def _text(row: Document, name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Unreadable(f"{name} must be a text")
    return value


def _optional(row: Document, name: str) -> str | None:
    return None if row.get(name) in (None, "") else _text(row, name)


def _time(row: Document, name: str) -> int | None:
    """Epoch ms of an ISO 8601 time or date; UTC where it names no offset."""
    text = _optional(row, name)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Unreadable(f"{name} must be a time like 2026-01-31T12:00:00Z") from None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return (found - _EPOCH) // (datetime.resolution * 1000)
