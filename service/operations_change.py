"""Operations that change memories, take them away and bring them back."""

from typing import Any

from models import change_answers, change_requests
from service import amendments
from service.operation import ADDS, BRAIN, CORE, Annotations, Operation, Route

CHANGES = Annotations(read_only=False, destructive=False, idempotent=True)
DELETES = Annotations(read_only=False, destructive=True, idempotent=True)

ADMIN = frozenset({"admin"})

OPERATIONS: tuple[Operation[Any], ...] = (
    Operation(
        name="brain_memory_update",
        title="Change a memory",
        description=(
            "Change one memory's text, tags, metadata, validity, doubt or frame, by its id. Use when a "
            "memory that you hold is no longer right or needs other labels; use `brain_memory_supersede` "
            "instead when one new memory replaces several. New text makes a new memory with a new id that "
            "supersedes this one, which stays readable as history; the other fields change in place. What "
            "you leave out is kept. `version_conflict` means that somebody changed it first: read it "
            "again and decide anew. What was said (l1_raw) keeps its text (`immutable_layer`): supersede it."
        ),
        input=change_requests.UpdateMemory,
        output=change_answers.UpdateAnswer,
        route=Route("PATCH", "/brain/memory/{memory_id}"),
        right="write",
        annotations=CHANGES,
        toolsets=CORE,
        run=amendments.update,
    ),
    Operation(
        name="brain_memory_supersede",
        title="Replace memories",
        description=(
            "Store a new memory that replaces one or several current ones, for the caller's product, "
            "agent and user. Use when you learned something that makes older memories obsolete; use "
            "`brain_memory_update` instead when only one memory's text changes. The old ones stay "
            "readable by id and in the history, but searches find the new one. It can be undone by "
            "deleting the new one with `revive`. Where an old one comes from a higher authority, yours is "
            "kept as `conflicted` and `conflicts` names the open conflict; with `on_conflict` error "
            "nothing is written. `conflict_state` names the head to replace instead."
        ),
        input=change_requests.SupersedeMemories,
        output=change_answers.SupersedeAnswer,
        route=Route("POST", "/brain/memory/supersede", 201),
        right="write",
        annotations=ADDS,
        toolsets=BRAIN,
        run=amendments.supersede,
    ),
    Operation(
        name="brain_memory_delete",
        title="Delete a memory",
        description=(
            "Forget or archive one memory by its id: no search, list or profile shows it any more. Use "
            "when a memory is unwanted or was wrong; use `brain_memory_update` instead when something "
            "else is true now. `forget` hides the text everywhere, `archive` keeps it readable by id; "
            "either can be undone by `brain_memory_restore`. What it had superseded does not become "
            "current again unless `revive` is true. A pinned memory is refused with `conflict_state`: "
            "unpin it first. `memory_forgotten` means that it is gone already."
        ),
        input=change_requests.DeleteMemory,
        output=change_answers.DeleteAnswer,
        route=Route("DELETE", "/brain/memory/{memory_id}"),
        right="write",
        annotations=DELETES,
        toolsets=CORE,
        run=amendments.delete,
    ),
    Operation(
        name="brain_memory_restore",
        title="Restore a memory",
        description=(
            "Bring one archived, negated or forgotten memory back, by its id. Use when a deletion was a "
            "mistake; use `brain_memory_add` instead when the memory was purged, for then its text is "
            "gone. It becomes active and is found again at once, or superseded where something newer has "
            "replaced it meanwhile. Nothing else changes. `conflict_state` means that there is nothing to "
            "restore: the memory is in use or was superseded. `memory_not_found` means that no such "
            "memory is left to bring back."
        ),
        input=change_requests.RestoreMemory,
        output=change_answers.RestoreAnswer,
        route=Route("POST", "/brain/memory/{memory_id}/restore"),
        right="write",
        annotations=CHANGES,
        toolsets=BRAIN,
        run=amendments.restore,
    ),
    Operation(
        name="brain_purge",
        title="Destroy memories",
        description=(
            "Destroy memories for good: one, a session's, a user's, or everything of this product and "
            "agent. Use when the law or a person demands that the text be gone from every file; use "
            "`brain_memory_delete` instead when it only has to disappear. It can't be undone; only an id "
            "without text stays. Try `dry_run` first: it counts and names what would go. The receipt says "
            "which files are clean already and which follow; with `wait` all are. What rested on it is "
            "due for review, or goes too with `cascade`."
        ),
        input=change_requests.Purge,
        output=change_answers.PurgeAnswer,
        route=Route("POST", "/brain/purge"),
        right="admin",
        annotations=DELETES,
        toolsets=ADMIN,
        run=amendments.purge,
    ),
)
