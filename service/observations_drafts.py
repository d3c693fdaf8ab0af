"""What is written through the observations view, before and after the ledger has it."""

from dataclasses import dataclass, replace
from typing import Any

from models.draft import Draft, content_key
from models.errors import MemoryForgotten
from models.injection import scan_all
from models.layers import Kind, Layer
from models.memory import Memory, State
from models.observation_view import SECOND
from models.provenance import Details, guarded
from models.quarantine import status_with
from models.scope import Caller
from service.brain import Brain
from stores.words import analyze


@dataclass(frozen=True, slots=True)
class Text:
    """A record's text, what of it is scanned besides, and the rest that is written as it is given."""

    kind: Kind
    layer: Layer
    content: str
    details: Details
    project: str
    session_id: str | None
    memory_at: int | None
    state: State
    beside: str = ""


async def draft_of(brain: Brain, caller: Caller, text: Text) -> Draft:
    """The memory that is to be written, embedded where the model is in time. What its text is marked for
    stands in its state; an observation or a summary that is marked is quarantined."""

    def read() -> tuple[tuple[str, ...], tuple[str, ...], str]:
        scanned = "\n".join((text.content, text.beside)) if text.beside else text.content
        reasons = scan_all(scanned, text.project, text.session_id, text.state.frame)
        return reasons, analyze(text.content, None), content_key(text.content)

    (reasons, terms, key), [embedded] = await brain.meaning.of_documents(
        [text.content], read, len(text.beside)
    )
    state = replace(text.state, provenance=guarded(text.state.provenance, reasons))
    state = replace(state, status=status_with(text.kind, state.status, reasons))
    memory = Memory(
        memory_id=brain.new_id(brain.clock()),
        partition=caller.home,
        kind=text.kind,
        layer=text.layer,
        content=text.content,
        source_authority="informal",
        memory_at=text.memory_at,
        project=text.project,
        session_id=text.session_id,
        details=text.details,
        state=state,
    )
    return Draft(memory, terms, key, embedded, "keep")


def written(brain: Brain, done: dict[str, Any]) -> tuple[Memory, dict[str, Any]]:
    """A row that was stored, as it stands, and what every answer says of it. Raises MemoryForgotten when it
    was hidden since."""
    found = brain.current([done["memory_id"]])
    if not found:
        raise MemoryForgotten(f"Memory {done['memory_id']} was stored by this key and forgotten since.")
    memory = found[0]
    body = {
        "id": memory.number,
        "memory_id": memory.memory_id,
        "status": memory.state.status,
        "sensitivity_reasons": list(memory.state.provenance.sensitivity_reasons),
        "indexed": done["indexed"],
    }
    return memory, body


def milliseconds(epoch: int | None) -> int | None:
    """Epoch ms of epoch seconds."""
    return None if epoch is None else epoch * SECOND
