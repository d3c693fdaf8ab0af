"""What becomes of memories by decision: govern, suppress, show again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from models.answers import Reply
from models.confidence import appraised
from models.errors import ConflictState, VersionConflict, invalid
from models.memory import Memory
from models.observation_memory_requests import GovernMemories, Suppress, Unsuppress
from models.observation_view import DELETED, STALE, shown_status
from models.scope import Caller, Partition
from service.brain import Brain
from service.observations import check_found
from service.once import once, replayed
from stores import amendment, suppressions
from stores.acts import Act
from stores.appraisal import READABLE, alive, settle
from stores.observations import find_rows
from stores.suppressions import Target
from stores.writer import Transaction

_ARCHIVED = {"delete": DELETED, "stale": STALE}  # by the action: the reason, which is the status here
_SORTS = ("memory", "topic_key", "entity", "pattern")


async def govern(brain: Brain, caller: Caller, request: GovernMemories) -> Reply:
    """Delete, reject, age or acknowledge memories: all of them or none."""
    act = Act(caller, "govern_memory", brain.meaning.fingerprint(), request.reason)

    def write(transaction: Transaction) -> list[dict[str, Any]]:
        found = _governed(transaction, caller, request)
        if request.dry_run:
            return [_fate(memory, _status(memory, request.action)) for memory in found]
        for memory in found:
            _carry_out(act, transaction, memory, request.action)
        after = {memory.memory_id: memory for memory in alive(transaction, [one.memory_id for one in found])}
        return [_fate(after[one.memory_id], shown_status(after[one.memory_id])) for one in found]

    done, again = await once(brain, caller, act.operation, request, write)
    body = {"action": request.action, "dry_run": request.dry_run, "memories": done}
    return Reply(body | replayed(again))


def _governed(transaction: Transaction, caller: Caller, request: GovernMemories) -> list[Memory]:
    """The memories, by id, as this write sees them, when each of them may be governed so. Raises
    ObservationNotFound, VersionConflict, AuthorityNotAllowed or ConflictState."""
    transaction.flush()
    rows = find_rows(transaction.connection, caller, "memory", request.ids)
    check_found("memory", request.ids, rows)
    found = sorted((row.memory for row in rows), key=lambda memory: memory.number)
    changed = [
        f"{memory.number} is at version {memory.version}, not {expected}"
        for memory in found
        if (expected := request.expected_versions.get(str(memory.number))) not in (None, memory.version)
    ]
    if changed:
        raise VersionConflict(f"Nothing was changed: memory {'; memory '.join(changed)}.")
    for memory in found:
        caller.check_change(memory.source_authority)
        _check(memory, request.action)
    return found


def _check(memory: Memory, action: str) -> None:
    status = memory.state.status
    if status == "quarantined":
        raise ConflictState(f"Memory {memory.number} is quarantined.")
    if action != "acknowledge" and memory.state.provenance.pinned_at is not None:
        raise ConflictState(f"Memory {memory.number} is pinned; unpin it first.")
    if action == "reject" and status not in (*READABLE, "negated"):
        raise ConflictState(f"Memory {memory.number} is {shown_status(memory)}, not in use.")


def _status(memory: Memory, action: str) -> str:
    """The status that an action leads to."""
    return {"delete": DELETED, "stale": STALE, "reject": "rejected"}.get(action, shown_status(memory))


def _fate(memory: Memory, status: str) -> dict[str, Any]:
    return {
        "id": memory.number,
        "memory_id": memory.memory_id,
        "status": status,
        "version": memory.version,
    }


def _carry_out(act: Act, transaction: Transaction, memory: Memory, action: str) -> None:
    [memory] = alive(transaction, [memory.memory_id])  # what was governed before may have changed it
    if action in _ARCHIVED:
        if memory.state.status != "archived" or memory.state.status_reason != _ARCHIVED[action]:
            amendment.hide(act, transaction, memory, "archive", _ARCHIVED[action], revive=False)
    elif action == "reject":
        if memory.state.status != "negated":
            state = replace(memory.state, status="negated", status_reason="rejected")
            changed = act.change(transaction, memory, state, ("status",))
            settle(act, transaction, [changed], [changed])
    else:
        _acknowledge(act, transaction, memory)


def _acknowledge(act: Act, transaction: Transaction, memory: Memory) -> None:
    """It was reviewed: what was flagged is cleared."""
    state = memory.state
    provenance = replace(state.provenance, review_due_at=None, last_reviewed_at=transaction.now)
    state = replace(state, provenance=provenance)
    state = appraised(replace(memory, state=state), replace(state.standing, fallen=()))
    act.change(transaction, memory, state, ("review_due_at", "last_reviewed_at"))


class _Place(NamedTuple):
    """Whose suppression it is, and the memory that it is about, if it is about one."""

    partition: Partition
    memory_id: str | None = None


async def suppress(brain: Brain, caller: Caller, request: Suppress) -> Reply:
    """Hide what a target names from the reads of this view."""
    target = _target(request.target)
    act = Act(caller, "suppress_memory", brain.meaning.fingerprint())

    def write(transaction: Transaction) -> dict[str, Any]:
        place = _place(transaction, caller, target)
        changed = suppressions.put(transaction, place.partition, target, caller.ceiling)
        if changed:
            act.event(transaction, place.partition, place.memory_id, ("suppressed",))
        return {"changed": changed}

    done, again = await once(brain, caller, act.operation, request, write)
    body = {"target": request.target, "suppressed": True, "changed": done["changed"]}
    return Reply(body | replayed(again))


async def unsuppress(brain: Brain, caller: Caller, request: Unsuppress) -> Reply:
    """Show again what a target hid."""
    target = _target(request.target)
    act = Act(caller, "unsuppress_memory", brain.meaning.fingerprint())

    def write(transaction: Transaction) -> dict[str, Any]:
        places = _places(transaction, caller, target)
        for partition in places:
            act.event(transaction, partition, None, ("suppressed",))
        return {"changed": bool(places)}

    done, again = await once(brain, caller, act.operation, request, write)
    body = {"target": request.target, "suppressed": False, "changed": done["changed"]}
    return Reply(body | replayed(again))


def _target(text: str) -> Target:
    sort, colon, value = text.partition(":")
    value = value.strip()
    if not colon or sort not in _SORTS or not value:
        raise invalid("target", "must be memory:<id>, topic_key:<key>, entity:<name> or pattern:<words>")
    if sort == "memory":
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise invalid("target", "memory:<id> takes an id, e.g. memory:7")
        value = str(int(value))
    return Target(sort, value)  # type: ignore[arg-type]


def _place(transaction: Transaction, caller: Caller, target: Target) -> _Place:
    """A memory is hidden for the user whose it is; anything else for the user who asks. Raises
    ObservationNotFound, and AuthorityNotAllowed for a memory of an authority beyond the caller's."""
    if target.sort != "memory":
        return _Place(caller.home)
    transaction.flush()
    number = int(target.value)
    rows = find_rows(transaction.connection, caller, "memory", [number])
    check_found("memory", [number], rows)
    caller.check_change(rows[0].memory.source_authority)
    return _Place(rows[0].memory.partition, rows[0].memory.memory_id)


def _places(transaction: Transaction, caller: Caller, target: Target) -> Sequence[Partition]:
    """Where it was suppressed, among all that the caller reaches."""
    transaction.flush()
    if caller.user is not None or target.sort != "memory":
        partitions = [caller.home]
    else:
        found = suppressions.Suppressions.read(transaction.connection, caller.scope, None)
        partitions = list(found.targets)
    return suppressions.take_away(transaction, partitions, target)
