"""Operations of the history view that write: remember, and the acts on one memory."""

from typing import Any

from models import history_answers, history_requests
from service import history
from service.operation import ADDS, Annotations, Operation, Route

HISTORY = frozenset({"history"})
CORE_HISTORY = frozenset({"core", "history"})
MOVES = Annotations(read_only=False, destructive=False, idempotent=True)
HIDES = Annotations(read_only=False, destructive=True, idempotent=False)
PATH = "/brain/history"

OPERATIONS: tuple[Operation[Any], ...] = (
    Operation(
        name="remember",
        title="Remember with its provenance",
        description=(
            "Capture one new working memory with where it comes from: source, tier, frame, time of the "
            "event, place in a session, original. Use when provenance matters, or something claims "
            "identity, permissions or standing rules (security_sensitive); use `brain_memory_add` instead "
            "when you give facts, tags, metadata or a whole conversation. Always stores a new memory; an "
            "equal earlier one is named in `duplicate_of`. Unknown times stay null. It is found at once, "
            "and `forget` hides it again. `evidence_required`: nobody can declare testimony; remember an "
            "archive, then call `corroborate`. `position_taken`: choose another session_position."
        ),
        input=history_requests.Remember,
        output=history_answers.RememberAnswer,
        route=Route("POST", f"{PATH}/remember", 201),
        right="write",
        annotations=ADDS,
        toolsets=CORE_HISTORY,
        run=history.remember,
    ),
    Operation(
        name="promote",
        title="Consolidate a memory",
        description=(
            "Consolidate a working memory: it no longer fades with time in `recall`, and may be pinned. "
            "Use when something has proved durable, as at the end of a session; use `pin` instead when it "
            "must be in mind whatever is asked. The stage never goes back; the text does not change. The "
            "reason stands in the audit log. `corroboration_required`: it is security_sensitive and "
            "nobody else vouches for it; call `corroborate` with an independent source first. "
            "`conflict_state`: it was forgotten or replaced."
        ),
        input=history_requests.ActOn,
        output=history_answers.ActAnswer,
        route=Route("POST", f"{PATH}/promote"),
        right="write",
        annotations=MOVES,
        toolsets=HISTORY,
        run=history.promote,
    ),
    Operation(
        name="pin",
        title="Pin an anchor",
        description=(
            "Pin a consolidated memory as an anchor: `recall` and `brain_profile` show it whatever is "
            "asked. Use when the agent must never lose sight of it; use `promote` instead when it is "
            "durable but needs no place of its own. `unpin` undoes it; while pinned it can't be "
            "forgotten. Over 12 pins a warning says that not all have a place. `conflict_state`: it is "
            "still working; call `promote` first. `corroboration_required`: it is security_sensitive and "
            "needs an independent `corroborate`; the refusal itself is in the audit log."
        ),
        input=history_requests.ActOn,
        output=history_answers.PinAnswer,
        route=Route("POST", f"{PATH}/pin"),
        right="write",
        annotations=MOVES,
        toolsets=HISTORY,
        run=history.pin,
    ),
    Operation(
        name="unpin",
        title="Unpin an anchor",
        description=(
            "Take the pin from an anchor: the memory stays, consolidated as it is, and competes with the "
            "others in `recall` again. Use when an anchor matters less now, or before it is forgotten, "
            "which is refused while it is pinned; use `forget` instead when the text itself has to go. "
            "`pin` brings the anchor back. The reason stands in the audit log. Nothing changes when it "
            "was not pinned. `memory_not_found`: find the id with `recall`."
        ),
        input=history_requests.ActOn,
        output=history_answers.PinAnswer,
        route=Route("POST", f"{PATH}/unpin"),
        right="write",
        annotations=MOVES,
        toolsets=HISTORY,
        run=history.unpin,
    ),
    Operation(
        name="corroborate",
        title="Corroborate a memory",
        description=(
            "Record that another source says the same as a memory: a bare label, or a memory of it. Use "
            "when you really have independent evidence; use `review` instead when you looked again "
            "yourself. Only distinct sources count: the memory's own, another spelling, a repost of one "
            "original, or what was drawn from it adds nothing; `provenance` says why. The first that counts "
            "makes an archive a testimony and opens the gate for a sensitive memory. "
            "`retract_corroboration` takes it back. `invalid_argument`: give exactly one of source and "
            "memory_id."
        ),
        input=history_requests.Corroborate,
        output=history_answers.CorroborateAnswer,
        route=Route("POST", f"{PATH}/corroborate"),
        right="write",
        annotations=MOVES,
        toolsets=HISTORY,
        run=history.corroborate,
    ),
    Operation(
        name="retract_corroboration",
        title="Retract a corroboration",
        description=(
            "Take a corroboration of a memory back, named as it was given: all labels of that source, or "
            "the memory that was evidence. Use when a source proved not to be independent, or never said "
            "so; use `mark_conflict` instead when another memory contradicts it. Without a source that "
            "counts a testimony is an archive again, and a sensitive memory loses its pin in the same "
            "act, which `unpinned` says. `corroborate` records it anew. `conflict_state`: there is no "
            "such corroboration; `provenance` lists them."
        ),
        input=history_requests.Corroborate,
        output=history_answers.UnpinningAnswer,
        route=Route("POST", f"{PATH}/retract_corroboration"),
        right="write",
        annotations=HIDES,
        toolsets=HISTORY,
        run=history.retract_corroboration,
    ),
    Operation(
        name="flag_sensitive",
        title="Flag a memory as sensitive",
        description=(
            "Mark a memory as security-sensitive: it touches identity, permissions or standing orders. "
            "Use when a text turns out to claim authority and no scan saw it; use `forget` instead when "
            "nobody should see it at all. From then on it needs independent corroboration to be promoted "
            "or pinned; a pin that nobody else supports is removed in the same act, which `unpinned` "
            "says. The text stays. Only `clear_sensitive`, with the admin right, takes the mark away. "
            "`conflict_state`: it was forgotten."
        ),
        input=history_requests.ActOn,
        output=history_answers.UnpinningAnswer,
        route=Route("POST", f"{PATH}/flag_sensitive"),
        right="write",
        annotations=HIDES,
        toolsets=HISTORY,
        run=history.flag_sensitive,
    ),
    Operation(
        name="clear_sensitive",
        title="Clear the sensitive mark",
        description=(
            "Take the security-sensitive mark from a memory, with the reasons of it. Use when an "
            "administrator has read the text and found it harmless; use `corroborate` instead when it is "
            "sensitive indeed and an independent source supports it. The memory may be promoted and "
            "pinned without corroboration after that. `flag_sensitive` sets the mark again. The reason "
            "stands in the audit log. `forbidden`: this needs the admin right; ask somebody who has it."
        ),
        input=history_requests.ActOn,
        output=history_answers.ActAnswer,
        route=Route("POST", f"{PATH}/clear_sensitive"),
        right="admin",
        annotations=MOVES,
        toolsets=frozenset({"history", "admin"}),
        run=history.clear_sensitive,
    ),
    Operation(
        name="forget",
        title="Forget a memory, with a reason",
        description=(
            "Forget a memory deliberately: its text leaves every view, list, conflict and search at once, "
            "and a tombstone with the reason stays. Use when something should not be remembered any more; "
            "use `brain_memory_delete` instead when it should only be archived and stay readable by id. "
            "What rests on it is due for review and named. `restore` undoes it; only an administrator's "
            "`brain_purge` destroys the text. `conflict_state`: it is pinned, call `unpin` first; or it "
            "is forgotten already."
        ),
        input=history_requests.ActOn,
        output=history_answers.ForgetAnswer,
        route=Route("POST", f"{PATH}/forget"),
        right="write",
        annotations=HIDES,
        toolsets=HISTORY,
        run=history.forget,
    ),
    Operation(
        name="restore",
        title="Restore a forgotten memory",
        description=(
            "Bring a forgotten memory back, with its text, its stage and its tier. Use when forgetting it "
            "was a mistake; use `brain_memory_restore` instead when you undo an archiving by "
            "`brain_memory_delete`. It is active again where its chain and its facts allow it. What "
            "rested on it stays due for review until somebody reviews it: nothing becomes current "
            "silently. The reason stands in the audit log. `conflict_state`: it was not forgotten. "
            "`memory_not_found`: it never was here, or was purged."
        ),
        input=history_requests.ActOn,
        output=history_answers.ActAnswer,
        route=Route("POST", f"{PATH}/restore"),
        right="write",
        annotations=MOVES,
        toolsets=HISTORY,
        run=history.restore,
    ),
    Operation(
        name="review",
        title="Review a memory",
        description=(
            "Say what came out when a memory was looked at again: `confirm` or `challenge`, with a note. "
            "Use when `due_for_review` names it; use `corroborate` instead when another source says the "
            "same. A confirmed interpretation is due again after twice the time, from 30 up to 180 days, "
            "and what had fallen beneath a memory is taken as seen; a challenged one is doubted and due "
            "in 7 days. Confidence follows as with `brain_memory_feedback`. `conflict_state`: it asks for "
            "no review, or was forgotten."
        ),
        input=history_requests.Review,
        output=history_answers.ActAnswer,
        route=Route("POST", f"{PATH}/review"),
        right="write",
        annotations=ADDS,
        toolsets=HISTORY,
        run=history.review,
    ),
    Operation(
        name="mark_conflict",
        title="Mark a conflict",
        description=(
            "Record that two live memories contradict each other, in one frame or across frames. Use when "
            "you see a contradiction that nobody should settle in passing; use `brain_memory_supersede` "
            "instead when one of them is simply out of date. Both stay current, `recall` names the "
            "conflict on them by its id, and their confidence is capped. Marking the same pair again, in "
            "any order, gives the same id. `resolve_conflict` closes it. `invalid_argument`: a and b are "
            "one memory. `conflict_state`: one was forgotten or replaced."
        ),
        input=history_requests.MarkConflict,
        output=history_answers.MarkAnswer,
        route=Route("POST", f"{PATH}/mark_conflict"),
        right="write",
        annotations=MOVES,
        toolsets=HISTORY,
        run=history.mark_conflict,
    ),
    Operation(
        name="resolve_conflict",
        title="Settle a conflict",
        description=(
            "Settle an open conflict with a reason: the adopted side is current from then on and the "
            "other is its history; without one both stand. Use when it has been decided which of the two "
            "holds; use `list_conflicts` instead when you only want to see what is open. Both stay "
            "readable by id. It can't be undone, but the adopted side can be superseded. "
            "`conflict_state`: it is settled already, or a side was forgotten. `invalid_argument`: "
            "adopted is neither side. `authority_not_allowed`: the side that would lose is above this "
            "key."
        ),
        input=history_requests.SettleConflict,
        output=history_answers.SettleAnswer,
        route=Route("POST", f"{PATH}/resolve_conflict"),
        right="write",
        annotations=MOVES,
        toolsets=HISTORY,
        run=history.resolve_conflict,
    ),
)
