"""Operations of the observations view: details, observations, session summaries, saved memories."""

from typing import Any

from models import observation_answers as answers
from models import observation_memory_requests as memory_requests
from models import observation_requests as requests
from service import (
    governance,
    observations,
    observations_finding,
    observations_labels,
    observations_saving,
    observations_writing,
)
from service.operation import ADDS, READS, Annotations, Operation, Route

OBSERVATIONS = frozenset({"observations"})
COUNTS = Annotations(read_only=False, destructive=True, idempotent=False)  # as its contract has it
SETS = Annotations(read_only=False, destructive=False, idempotent=True)
TAKES_AWAY = Annotations(read_only=False, destructive=True, idempotent=True)

OPERATIONS: tuple[Operation[Any], ...] = (
    Operation(
        name="get_observations",
        title="Get Observation Details",
        description=(
            "Get the full details of memories, observations or session summaries by their ids and source. "
            "Use when a search or timeline gave you ids that are worth reading whole; use "
            "`search_observations` instead when you have no ids yet. Of a memory you also learn whether it "
            "may count as current, and why not. Retired and replaced rows are shown too. Each call counts as "
            "an access of memories and observations; nothing else is changed. `not_found` names the ids that "
            "are missing, and then nothing is returned: leave them out. `store_unavailable` means that the "
            "access could not be recorded: call again."
        ),
        input=requests.GetObservations,
        output=answers.ObservationDetailsOutput,
        route=Route("POST", "/brain/observations/get"),
        right="read",
        annotations=COUNTS,
        toolsets=OBSERVATIONS,
        run=observations.get,
        timed=False,
    ),
    Operation(
        name="add_observation",
        title="Add an observation",
        description=(
            "Store what you noted about your work: a bugfix, feature, refactor, discovery, decision or "
            "change, with its files, branch and commit. Use when a step of work is done and somebody may "
            "want to know of it later; use `save_memory` instead when it is a lasting fact, rule or "
            "preference. It is found by words at once and by meaning when `indexed` is true. Text that gives "
            "orders to its reader is stored but quarantined: no search and no detail shows it. "
            "`invalid_argument` names the field; times are epoch seconds."
        ),
        input=requests.AddObservation,
        output=answers.Written,
        route=Route("POST", "/brain/observations", 201),
        right="write",
        annotations=ADDS,
        toolsets=OBSERVATIONS,
        run=observations_writing.add_observation,
    ),
    Operation(
        name="compress_observations",
        title="Merge observations",
        description=(
            "Merge several observations into one that stands for them: it is stored, lists its sources with "
            "their hashes, and they are retired in the same step. Use when many small observations tell one "
            "story; use `govern_memory` instead when a saved memory is to be retired. The sources keep their "
            "text, readable by id with status `compressed`, but searches find the new one only. "
            "`brain_memory_restore` brings a source back. `not_found` names the ids that are missing and "
            "`conflict_state` the one that is not active: nothing is changed then."
        ),
        input=requests.CompressObservations,
        output=answers.CompressAnswer,
        route=Route("POST", "/brain/observations/compress", 201),
        right="write",
        annotations=ADDS,
        toolsets=OBSERVATIONS,
        run=observations_writing.compress,
    ),
    Operation(
        name="search_observations",
        title="Search observations",
        description=(
            "Search observations, session summaries and memories by meaning and words, and get each in few "
            "words with the id and source that `get_observations` takes. Use when you want to know what was "
            "done, noted or decided in a project; use `brain_memory_search` instead when you want whole "
            "texts, tags and authorities, or what was said. Suppressed memories are left out unless you ask. "
            "Nothing is changed. An empty list means that nothing fits: drop `project` or `type`. "
            "`degraded` means that only words could be searched."
        ),
        input=requests.SearchObservations,
        output=answers.SearchObservationsAnswer,
        route=Route("GET", "/brain/observations/search"),
        right="read",
        annotations=READS,
        toolsets=OBSERVATIONS,
        run=observations_finding.search,
    ),
    Operation(
        name="observation_timeline",
        title="Show what stands around an observation",
        description=(
            "Show what was noted before and after one observation, in the order of time and id. Use when you "
            "found one and want to know what led to it and what came of it; use `search_observations` "
            "instead when you look for a subject, whenever it was. The anchor is an id, or the best match of "
            "a query. With `source` the same goes for memories or session summaries. Only active rows stand "
            "around it. Nothing is changed. `not_found` means that there is no such id in this source and "
            "project: search for it."
        ),
        input=requests.ObservationTimeline,
        output=answers.TimelineAnswer,
        route=Route("GET", "/brain/observations/timeline"),
        right="read",
        annotations=READS,
        toolsets=OBSERVATIONS,
        run=observations_finding.timeline,
    ),
    Operation(
        name="add_session_summary",
        title="Add a session summary",
        description=(
            "Store the summary of a session: what was asked, done, decided, learned, left to do, and how the "
            "user likes things; its intent and topic become the session's label. Use when a session ends or "
            "pauses; use `add_observation` instead when you note one step of the work. Name host, project "
            "and session as its messages do, or the label reaches no session. A label that was set by hand "
            "stays. Text that gives orders is quarantined: no read shows it. An unknown intent or a topic "
            "over 80 characters is left out, not refused."
        ),
        input=requests.AddSummary,
        output=answers.SummaryAnswer,
        route=Route("POST", "/brain/session-summaries", 201),
        right="write",
        annotations=ADDS,
        toolsets=OBSERVATIONS,
        run=observations_labels.add_summary,
    ),
    Operation(
        name="set_session_label",
        title="Label a session",
        description=(
            "Set or clear by hand the label of the session that a summary is about: its intent, its topic or "
            "both. Use when the user names or corrects what a session was about; use `add_session_summary` "
            "instead when you sum it up yourself. It holds against later automatic summaries, a cleared "
            "label too, until somebody sets another one. What you leave out stays. `invalid_argument` means "
            "that the intent is none of the codes or the topic is over 80 characters. `conflict_state` means "
            "that the summary names no host and session."
        ),
        input=requests.SetLabel,
        output=answers.LabelAnswer,
        route=Route("PUT", "/brain/session-summaries/{id}/label"),
        right="write",
        annotations=SETS,
        toolsets=OBSERVATIONS,
        run=observations_labels.set_label,
    ),
    Operation(
        name="save_memory",
        title="Save a memory of a project",
        description=(
            "Save a lasting memory of a project: a decision, architecture, procedure, lesson, preference or "
            "fact, with its topic, files, validity and evidence. Use when something will matter in later "
            "sessions; use `brain_memory_add` instead when it has no project, or you need tags, metadata or "
            "an authority. With a `topic_key` it becomes the new version of what is known under that key: it "
            "takes over the id, and the old version stays readable under the id in `superseded`. Where a "
            "higher authority stands, a conflict is opened instead. Times are epoch seconds, else "
            "`invalid_argument`."
        ),
        input=memory_requests.SaveMemory,
        output=answers.SaveAnswer,
        route=Route("POST", "/brain/memories", 201),
        right="write",
        annotations=ADDS,
        toolsets=OBSERVATIONS,
        run=observations_saving.save,
    ),
    Operation(
        name="govern_memory",
        title="Govern memories",
        description=(
            "Decide on saved memories by their ids: delete, reject, mark as stale, or acknowledge them after "
            "a review. Use when memories turned out wrong, outdated or right; use `suppress_memory` instead "
            "when they are right but should not be shown. All of them or none: one that changed since "
            "(`expected_versions`) refuses the call with `version_conflict`. What is deleted, stale or "
            "rejected stays readable by id and is found by no search; `brain_memory_restore` brings it back. "
            "`dry_run` says what would happen. `authority_not_allowed` means that one is above this key."
        ),
        input=memory_requests.GovernMemories,
        output=answers.GovernAnswer,
        route=Route("POST", "/brain/memories/govern"),
        right="write",
        annotations=TAKES_AWAY,
        toolsets=OBSERVATIONS,
        run=governance.govern,
    ),
    Operation(
        name="suppress_memory",
        title="Suppress memories",
        description=(
            "Hide memories from the reads of the observations view without changing them: one by id, a "
            "topic, all that asserts something of an entity, or whatever has certain words. Use when the "
            "user does not want to see something now; use `govern_memory` instead when a memory is wrong or "
            "over. It counts for later memories too, and for this user only; the brain view and its searches "
            "still show them. `unsuppress_memory` with the same target undoes it. `changed` false means that "
            "it was suppressed already. `not_found` means that there is no memory of that id."
        ),
        input=memory_requests.Suppress,
        output=answers.SuppressionAnswer,
        route=Route("POST", "/brain/suppressions"),
        right="write",
        annotations=SETS,
        toolsets=OBSERVATIONS,
        run=governance.suppress,
    ),
    Operation(
        name="unsuppress_memory",
        title="Show suppressed memories again",
        description=(
            "Show again what a suppression hid, by the target that it was given with. Use when the user "
            "wants to see it again; use `get_observations` instead when you only need to look once: it takes "
            "`include_suppressed`. The memories themselves were never changed, so nothing else comes back. "
            "`changed` false means that no suppression of that very target was there: a memory may be hidden "
            "by another one, of its topic, an entity or a pattern. `invalid_argument` names the forms that a "
            "target can have."
        ),
        input=memory_requests.Unsuppress,
        output=answers.SuppressionAnswer,
        route=Route("DELETE", "/brain/suppressions"),
        right="write",
        annotations=SETS,
        toolsets=OBSERVATIONS,
        run=governance.unsuppress,
    ),
)
