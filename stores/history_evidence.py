"""The writes by which a memory gains and loses corroboration: by another memory, as evidence is linked, or by
the bare label of a source. What counts, one rule says (models/sources.py); the tier follows from that."""

from dataclasses import replace

from models.confidence import appraised
from models.errors import ConflictState, invalid
from models.memory import Memory
from models.sources import label_key
from models.standing import MAX_LABELS, Label
from stores.acts import Act
from stores.appraisal import alive, appraise, settle
from stores.changes import Edge
from stores.history import live, lost_pin
from stores.links import link, unlink
from stores.writer import Transaction


def corroborate(act: Act, transaction: Transaction, memory_id: str, by: str | Label) -> tuple[Memory, bool]:
    """Record that a memory, by its id, or a source, by its label, says the same. False when that was known.
    Raises what `live` raises, and InvalidArgument."""
    memory = live(act, transaction, memory_id)
    if isinstance(by, str):
        _other(act, transaction, memory_id, by)
        done = link(act, transaction, Edge(by, "evidence_for", memory_id))
        return _now(transaction, memory_id), done
    labels = memory.state.standing.labels
    if any((one.source, one.origin_id) == (by.source, by.origin_id) for one in labels):
        return memory, False
    if len(labels) >= MAX_LABELS:
        raise invalid("source", f"the memory has {MAX_LABELS} labels already; give a memory_id")
    return _with_labels(act, transaction, memory, (*labels, by)), True


def retract(act: Act, transaction: Transaction, memory_id: str, by: str | Label) -> tuple[Memory, bool]:
    """Take a corroboration back, with every label of its source. Says whether the memory lost its pin by
    that, being sensitive. Raises what `live` raises, and ConflictState when there is no such one."""
    memory = live(act, transaction, memory_id)
    if isinstance(by, str):
        _other(act, transaction, memory_id, by)
        if by not in memory.state.evidence_ids:
            raise ConflictState(f"Memory {by[:64]!r} does not corroborate {memory_id}.")
        unlink(act, transaction, Edge(by, "evidence_for", memory_id))
        left = _now(transaction, memory_id)
    else:
        labels = memory.state.standing.labels
        kept = tuple(one for one in labels if label_key(one) != label_key(by))
        if kept == labels:
            raise ConflictState(f"No label of this source corroborates {memory_id}.")
        left = _with_labels(act, transaction, memory, kept)
    return left, lost_pin(memory, left)


def _with_labels(act: Act, transaction: Transaction, memory: Memory, labels: tuple[Label, ...]) -> Memory:
    standing = replace(memory.state.standing, labels=labels)
    named = replace(memory, state=appraised(memory, standing))
    state = appraise(transaction, named).state
    changed = act.change(transaction, memory, state, ("corroborations",))
    if state.confidence != memory.state.confidence:
        settle(act, transaction, [changed])
    return _now(transaction, memory.memory_id)


def _other(act: Act, transaction: Transaction, memory_id: str, other_id: str) -> None:
    """The memory that corroborates has to be another one that can be read."""
    if other_id == memory_id:
        raise invalid("memory_id", "must be another memory: none corroborates itself")
    other = act.find(transaction, other_id, forgotten=True)
    if other.hidden:
        raise ConflictState(f"Memory {other_id} was forgotten; restore it first.")


def _now(transaction: Transaction, memory_id: str) -> Memory:
    [memory] = alive(transaction, [memory_id])
    return memory
