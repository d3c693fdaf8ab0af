"""Operations that show memories in their context: history, links, profile, intentions, scopes."""

from typing import Any

from models import view_answers as answers
from models import view_requests as requests
from service import links, views
from service.operation import BRAIN, READS, Annotations, Operation, Route

ADMIN = frozenset({"admin"})
SETS = Annotations(read_only=False, destructive=False, idempotent=True)
PARTS = Annotations(read_only=False, destructive=True, idempotent=True)

_LINK = "/brain/links/{from_id}/{type}/{to_id}"

OPERATIONS: tuple[Operation[Any], ...] = (
    Operation(
        name="brain_memory_history",
        title="Show a memory's history",
        description=(
            "Show how a memory came to be what it is: every version of it and of all that it replaced or "
            "was replaced by, and what was done to them, latest first. Use when you need to know what was "
            "believed earlier, since when, or which key changed it; use `brain_memory_get` instead when "
            "you only need it as it stands, or stood at one time. Nothing is changed by reading. A "
            "forgotten memory of the chain appears without its text, tags and metadata. `truncated` true "
            "means that the chain is longer. On `memory_not_found`, search for the id again."
        ),
        input=requests.GetHistory,
        output=answers.HistoryAnswer,
        route=Route("GET", "/brain/memory/{memory_id}/history"),
        right="read",
        annotations=READS,
        toolsets=BRAIN,
        run=views.history,
    ),
    Operation(
        name="brain_memory_related",
        title="Follow a memory's links",
        description=(
            "Follow the links of a memory, up to three steps: evidence, sources, what it explains, updates "
            "or replaced, the turns beside it and its session. Use when you have a memory and want what "
            "belongs to it; use `brain_memory_search` instead when you look for what is alike in meaning. "
            "Nothing is changed by reading. Memories of any status that can be read are shown, forgotten "
            "ones never, nearest first. `truncated` true means that there is more: name `types`, or raise "
            "`limit`. On `memory_not_found`, search for the id again."
        ),
        input=requests.GetRelated,
        output=answers.RelatedAnswer,
        route=Route("GET", "/brain/memory/{memory_id}/related"),
        right="read",
        annotations=READS,
        toolsets=BRAIN,
        run=links.related,
    ),
    Operation(
        name="brain_memory_link",
        title="Link two memories",
        description=(
            "Link one memory to another: it is `related`, `updates`, `explains`, is `evidence_for`, or was "
            "`derived_from` the other. Use when you found out how two stored memories belong together; use "
            "`brain_memory_supersede` instead when one is to replace the other. Neither text changes; "
            "evidence also enters the other's `evidence_ids`, which makes a new version of it. A link that "
            "is there already is left as it is and `created` is false, so the call can be repeated. "
            "`brain_memory_unlink` undoes it. On `memory_not_found`, search for the ids again."
        ),
        input=requests.Link,
        output=answers.LinkAnswer,
        route=Route("PUT", _LINK),
        right="write",
        annotations=SETS,
        toolsets=BRAIN,
        run=links.link,
    ),
    Operation(
        name="brain_memory_unlink",
        title="Part two memories",
        description=(
            "Take the link of one type between two memories away. Use when a link was wrong or holds no "
            "longer; use `brain_memory_delete` instead when a memory itself should go. Both memories stay; "
            "evidence also leaves the other's `evidence_ids`, which makes a new version of it. Without such "
            "a link nothing happens and `removed` is false, so the call can be repeated. "
            "`brain_memory_link` sets it again. `conflict_state` means that the source was named when the "
            "memory was written, which stays. On `memory_not_found`, search for the ids again."
        ),
        input=requests.Link,
        output=answers.UnlinkAnswer,
        route=Route("DELETE", _LINK),
        right="write",
        annotations=PARTS,
        toolsets=BRAIN,
        run=links.unlink,
    ),
    Operation(
        name="brain_profile",
        title="Read the profile",
        description=(
            "Read what is known of the user for good: basic facts, identity and preferences, pinned "
            "memories, and patterns that were drawn from several. Use when a conversation begins, before "
            "any question is asked; use `brain_memory_search` instead when you have a question. Only "
            "active memories are shown, each list with the highest authority first, then confidence, then "
            "the newest. Nothing is changed by reading. `conflicts` names open disagreements: say so "
            "rather than rely on such a memory. `truncated` true means that `limit` cut a list: raise it, "
            "or list that layer."
        ),
        input=requests.GetProfile,
        output=answers.ProfileAnswer,
        route=Route("GET", "/brain/profile"),
        right="read",
        annotations=READS,
        toolsets=BRAIN,
        run=views.profile,
    ),
    Operation(
        name="brain_intentions",
        title="Read plans and commitments",
        description=(
            "Read the plans and commitments (layer l7_intention): those that are due by `due_before`, those "
            "that are active beyond it, and those whose time is over. Use when you decide what to do next or "
            "remind somebody; use `brain_memory_list` instead when you want another layer. Each list is "
            "sorted by `valid_until`. Nothing is changed by reading; within a minute of its end an "
            "intention is archived, and stays in `expired`. To plan anew, add an intention with a later "
            "`valid_until`. On `invalid_argument`, mend the field that `errors` names."
        ),
        input=requests.GetIntentions,
        output=answers.IntentionsAnswer,
        route=Route("GET", "/brain/intentions"),
        right="read",
        annotations=READS,
        toolsets=BRAIN,
        run=views.intentions,
    ),
    Operation(
        name="brain_scopes",
        title="List agents and users",
        description=(
            "List the agents of the caller's product and their users, by name, with the number of memories "
            "that each has. Use when you administer the store and need to know who writes to it; use "
            "`brain_stats` instead when you want the counts of one agent by layer and status. No text is "
            "shown and nothing is changed; forgotten memories don't count. `truncated` true means that "
            "there are more users than `limit`: raise it. `forbidden` means that the key has no admin "
            "right: ask the operator for one that has."
        ),
        input=requests.ListScopes,
        output=answers.ScopesAnswer,
        route=Route("GET", "/brain/admin/scopes"),
        right="admin",
        annotations=READS,
        toolsets=ADMIN,
        run=views.scopes,
    ),
)
