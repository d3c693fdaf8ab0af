"""The sources of a merged observation, named by their numbers, which may be others in another ledger."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from models.memory import Memory
from models.observation_view import made_at
from models.provenance import ObservationDetails
from models.transfer import Link


def source_digest(content: str) -> str:
    """What is kept of a source's text, `sha256:<hex>`."""
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


def renumbered(memory: Memory, links: Iterable[Link], known: Mapping[str, Memory]) -> Memory:
    """The memory with its sources under the numbers that they have here, those of them that its links lead
    to, which are told apart by text and time. Others keep the number that they had."""
    details = memory.details
    if not isinstance(details, ObservationDetails) or not details.compressed:
        return memory
    ends = (link.to_id for link in links if (link.from_id, link.type) == (memory.memory_id, "derived_from"))
    numbers: dict[tuple[str, int], list[int]] = {}
    for source in sorted((known[id] for id in ends if id in known), key=lambda one: one.number):
        numbers.setdefault((source_digest(source.content), made_at(source)), []).append(source.number)
    compressed = []
    for one in sorted(details.compressed, key=lambda one: one.number):
        same = numbers.get((one.digest, one.made_at))
        compressed.append(replace(one, number=same.pop(0)) if same else one)
    return replace(memory, details=replace(details, compressed=tuple(compressed)))
