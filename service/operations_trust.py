"""Operations of trust: conflicts, feedback, and the log of what was done and by whom."""

from typing import Any

from models import audit_answers, audit_requests, trust_answers, trust_requests
from service import audit, conflicts
from service.operation import BRAIN, READS, Annotations, Operation, Route

ADMIN = frozenset({"admin"})
SETTLES = Annotations(read_only=False, destructive=False, idempotent=True)

OPERATIONS: tuple[Operation[Any], ...] = (
    Operation(
        name="brain_conflicts",
        title="List open conflicts",
        description=(
            "List the open conflicts: pairs of memories that contradict each other and that no rule could "
            "settle, newest first, each with both sides, the rule that opened it and the side that the rule "
            "proposes. Use when an answer carries a conflict id, or to find what needs a decision; use "
            "`brain_memory_search` instead when you look for a memory. Nothing is changed by reading. A pair "
            "of which a side was hidden or replaced is left out. An empty list means that nothing is "
            "contested. On `invalid_argument` for cursor, start again without it."
        ),
        input=trust_requests.ListConflicts,
        output=trust_answers.ConflictsAnswer,
        route=Route("GET", "/brain/conflicts"),
        right="read",
        annotations=READS,
        toolsets=BRAIN,
        run=conflicts.page,
    ),
    Operation(
        name="brain_conflict_resolve",
        title="Resolve a conflict",
        description=(
            "Close an open conflict: the `adopted` side is current from then on and the other becomes its "
            "history; with null both stand. Use when you or the user decided which of the two holds; use "
            "`brain_memory_supersede` instead when a third text is right and neither of them. Both stay "
            "readable by id. It can't be undone, but a later supersede can replace the adopted one. "
            "`authority_not_allowed` means that the side that would lose is of a higher authority than this "
            "key may claim: leave it to somebody who may. `conflict_state` means that it is resolved already."
        ),
        input=trust_requests.ResolveConflict,
        output=trust_answers.ResolveAnswer,
        route=Route("POST", "/brain/conflicts/{conflict_id}/resolve"),
        right="write",
        annotations=SETTLES,
        toolsets=BRAIN,
        run=conflicts.resolve,
    ),
    Operation(
        name="brain_memory_feedback",
        title="Say whether a memory holds",
        description=(
            "Say of a memory that it was `confirmed`, `useful`, `outdated` or `wrong`; its confidence "
            "follows by rule, once for each key and verdict. Use when you checked a memory or acted on it; "
            "use `brain_memory_supersede` instead when you know what holds now. `confirmed` is a review too "
            "and clears what was flagged, `outdated` makes it due for review, `wrong` takes it out of "
            "searches as negated, which `confirmed` or `brain_memory_restore` undoes. `changed` false means "
            "that nothing new was said. `authority_not_allowed` means that it is above this key's authority."
        ),
        input=trust_requests.GiveFeedback,
        output=trust_answers.FeedbackAnswer,
        route=Route("POST", "/brain/memory/{memory_id}/feedback"),
        right="write",
        annotations=SETTLES,
        toolsets=BRAIN,
        run=conflicts.feedback,
    ),
    Operation(
        name="brain_audit",
        title="Read the audit log",
        description=(
            "Read the audit log: every write, and every call that was refused, with its time, the key that "
            "was used, the memory, the names of the fields and the hash that chains it to the entry before, "
            "newest first. Use when you must find out who did or tried something; use "
            "`brain_memory_history` instead when you want to see what a memory said earlier. No text of a "
            "memory is shown and nothing is changed. `verified` false means that the log was tampered with: "
            "tell the operator to run `brain doctor --audit`. `forbidden` means that the key has no admin "
            "right: ask the operator for one that has."
        ),
        input=audit_requests.GetAudit,
        output=audit_answers.AuditAnswer,
        route=Route("GET", "/brain/audit"),
        right="admin",
        annotations=READS,
        toolsets=ADMIN,
        run=audit.page,
    ),
)
