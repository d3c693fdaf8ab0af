"""The writes that say anew in which frame a memory holds, when it happened, where it stood and where it comes
from. The record's own columns change with them; the version that follows says that they did."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from models.confidence import appraised
from models.errors import ConflictState, invalid
from models.memory import Memory
from models.provenance import MaterialType, Provenance, guarded, layer_of
from models.sources import own_keys
from stores.acts import Act
from stores.amendment import edit
from stores.appraisal import alive, appraise, settle
from stores.history import live, lost_pin
from stores.seats import move
from stores.writer import Transaction

MAX_SOURCES = 16  # keys that a memory was known by; more would be a game with them
_OF_PROVENANCE = ("source", "event_at", "capture_context")


def set_frame(
    act: Act, transaction: Transaction, memory_id: str, frame: str | None, reasons: tuple[str, ...]
) -> tuple[Memory, bool]:
    """Move a memory into another frame, or out of any. `reasons` are what the frame's name is marked for.
    Says whether it lost its pin by that. Raises ConflictState for a member of a chain."""
    memory = live(act, transaction, memory_id)
    provenance = guarded(memory.state.provenance, reasons)
    state = replace(memory.state, frame=frame, provenance=provenance)
    state = appraised(replace(memory, state=state), state.standing)
    edit(act, transaction, memory, state, ("frame",))
    [moved] = alive(transaction, [memory_id])
    return moved, lost_pin(memory, moved)


@dataclass(frozen=True, slots=True)
class Context:
    """What is `given` of the context of a memory; `memory_at` is that of `event_at`, epoch ms, and `reasons`
    what the given texts are marked for."""

    given: Mapping[str, Any]
    memory_at: int | None
    reasons: tuple[str, ...]

    def provenance(self, memory: Memory) -> Provenance:
        """The memory's provenance with it. Raises ConflictState for material of another layer."""
        old = memory.state.provenance
        values = {name: self.given[name] for name in _OF_PROVENANCE if name in self.given}
        if "material_type" in self.given:
            material: MaterialType = self.given["material_type"] or "unspecified"
            if layer_of(material) != layer_of(old.material_type):
                raise ConflictState(
                    f"Memory {memory.memory_id} is {memory.layer}; {material} material would lead to "
                    f"{layer_of(material)}, and no memory changes its layer. Remember it anew."
                )
            values["material_type"] = material
        return replace(guarded(old, self.reasons), **values, contexts=old.contexts + 1)

    def columns(self, memory: Memory) -> dict[str, Any]:
        """What stands otherwise in the record itself. InvalidArgument for a position without session."""
        names = ("session_id", "session_position", "origin_id")
        values = {name: self.given[name] for name in names if name in self.given}
        if "event_at" in self.given:
            values["memory_at"] = self.memory_at
        if "session_id" in values:
            values["session_key"] = values["session_id"]
        session = values.get("session_id", memory.session_id)
        if session is None and values.get("session_position", memory.session_position) is not None:
            raise invalid("session_position", "needs session_id; clear both, or give both")
        return {name: value for name, value in values.items() if value != getattr(memory, name)}


def set_context(act: Act, transaction: Transaction, memory_id: str, context: Context) -> tuple[Memory, bool]:
    """Set the context of a memory anew as far as it is given. Says whether it lost its pin by that, being
    sensitive and corroborated by nobody else any more. Raises what `live` raises, PositionTaken,
    InvalidArgument, and ConflictState for what is no curated memory or has had too many sources."""
    memory = live(act, transaction, memory_id)
    if memory.kind != "memory":
        raise ConflictState(f"Memory {memory_id} is of kind {memory.kind}: its place and time are fixed.")
    columns = context.columns(memory)
    provenance = context.provenance(memory)
    if not columns and replace(provenance, contexts=provenance.contexts - 1) == memory.state.provenance:
        return memory, False
    moved = replace(memory, **columns, state=replace(memory.state, provenance=provenance))
    known = own_keys(memory)
    if not known <= own_keys(moved):
        # Or a source could be named away, and then corroborate what came from it.
        if len(known) > MAX_SOURCES:
            raise ConflictState(f"Memory {memory_id} has had {MAX_SOURCES} sources already.")
        provenance = replace(provenance, past_sources=tuple(sorted(known)))
        moved = replace(moved, state=replace(moved.state, provenance=provenance))
    move(transaction, memory, moved)
    state = appraise(transaction, moved).state
    moved = replace(moved, state=memory.state)  # the record with its new columns, before the change
    changed = act.change(transaction, moved, state, tuple(sorted(context.given)))
    settle(act, transaction, [changed])
    [changed] = alive(transaction, [memory_id])
    return changed, lost_pin(memory, changed)
