"""Operations that store memories, find them and count them."""

from typing import Any

from models import answers, requests, view_requests
from service import additions, memories
from service.operation import ADDS, BRAIN, CORE, KIB, READS, Operation, Route

OPERATIONS: tuple[Operation[Any], ...] = (
    Operation(
        name="brain_memory_get",
        title="Get a memory",
        description=(
            "Get one memory by its id, with its text, layer, status, authority, confidence and times, "
            "from the caller's own product and agent. Use when you hold an id from an earlier answer and "
            "need the whole record; use `brain_memory_search` instead when you only know what it is "
            "about. Nothing is changed by reading, and a memory can be read as soon as its add has "
            "answered. Superseded and raw memories are readable too. `memory_not_found` means that the id "
            "is unknown here: search again; `memory_forgotten` means that its text is gone for good "
            "reason."
        ),
        input=requests.GetMemory,
        output=answers.MemoryAnswer,
        route=Route("GET", "/brain/memory/{memory_id}"),
        right="read",
        annotations=READS,
        toolsets=CORE,
        run=memories.get,
    ),
    Operation(
        name="brain_memory_add",
        title="Add a memory",
        description=(
            "Store one memory, or one conversation's messages, for the caller's product, agent and user. "
            "Use when you learned something worth keeping: a fact, a preference, a decision, or what was "
            "said; use `brain_memory_search` instead when you want to know what is stored already. The "
            "text is kept byte for byte and is found by search as soon as this answers. An equal active "
            "memory is united with it unless `on_duplicate` says otherwise; nothing else is changed. Give "
            "an `idempotency_key` to retry safely. On `invalid_argument`, mend the field that `errors` "
            "names and call again."
        ),
        input=requests.AddMemory,
        output=answers.AddAnswer,
        route=Route("POST", "/brain/memory", 201),
        right="write",
        annotations=ADDS,
        toolsets=CORE,
        run=additions.add,
    ),
    Operation(
        name="brain_memory_add_batch",
        title="Add many memories",
        description=(
            "Store up to 1,000 memories in one call for the caller's product, agent and user. Use when "
            "you import or have collected many; use `brain_memory_add` instead when there is only one. "
            "Each item takes what that tool takes and answers for itself, in order, so that one bad item "
            "stores the others all the same; with `atomic` true one bad item stores nothing. Stored items "
            "can be found at once. Items whose `status` is 400 or more carry an `error`: mend and send "
            "only these again. Give an `idempotency_key` to retry the whole call safely."
        ),
        input=requests.AddBatch,
        output=answers.BatchAnswer,
        route=Route("POST", "/brain/memory/batch", 207, max_body=64 * KIB * KIB),
        right="write",
        annotations=ADDS,
        toolsets=BRAIN,
        run=additions.add_batch,
    ),
    Operation(
        name="brain_memory_search",
        title="Search memories",
        description=(
            "Search the caller's memories by meaning, by words and by exact identifiers, best first. Use "
            "when you need what is known about something and have no id; use `brain_memory_list` instead "
            "when you want all memories of a kind in the order of writing. Filters apply before the best "
            "are chosen, so a filter never hides a match. Searching changes nothing. `abstained` true "
            "means that nothing stored is relevant: say so, or ask in other words, rather than guess. "
            "`degraded` true means that a part was not ready: repeat a little later for better results."
        ),
        input=requests.SearchMemories,
        output=answers.SearchAnswer,
        route=Route("POST", "/brain/memory/search"),
        right="read",
        annotations=READS,
        toolsets=CORE,
        run=memories.search,
    ),
    Operation(
        name="brain_memory_list",
        title="List memories",
        description=(
            "List the caller's memories in the order in which they were written, page by page. Use when "
            "you want everything of a layer, tag, session or status; use `brain_memory_search` instead "
            "when you look for what fits a question. Nothing is changed. A page never repeats or skips a "
            "memory while others write: pass `next_cursor` back as `cursor`, with the same filters, until "
            "it is null. `total` counts all that match. On `invalid_argument` for `cursor`, start again "
            "without it."
        ),
        input=view_requests.ListMemories,
        output=answers.ListAnswer,
        route=Route("GET", "/brain/memory"),
        right="read",
        annotations=READS,
        toolsets=CORE,
        run=memories.page,
    ),
    Operation(
        name="brain_stats",
        title="Count memories",
        description=(
            "Count the caller's memories by layer, status, authority and kind, and name the embedding "
            "model in use. Use when you want to know how much is stored or whether the vector store has "
            "caught up; use `brain_memory_list` instead when you want the memories themselves. Nothing is "
            "changed, no text is shown. `index_lag` above 0 only means that the vector store is behind: "
            "reads and searches are complete all the same. `dimensions` is null while the model is "
            "loading: ask again in some seconds."
        ),
        input=view_requests.GetStats,
        output=answers.StatsAnswer,
        route=Route("GET", "/brain/stats"),
        right="read",
        annotations=READS,
        toolsets=BRAIN,
        run=memories.stats,
    ),
)
