"""The use cases that change memories, take them away and bring them back."""

from dataclasses import dataclass, replace
from typing import Any

from models import verbatim
from models.answers import Reply
from models.change_requests import DeleteMemory, Purge, RestoreMemory, SupersedeMemories, UpdateMemory
from models.confidence import appraised
from models.draft import Draft, content_key
from models.errors import ConflictState, ImmutableLayer, invalid
from models.facts import Fact
from models.injection import scan, scan_label
from models.memory import Memory, State
from models.provenance import MemoryDetails, Provenance, guarded
from models.scope import Caller
from models.standing import Standing
from models.token_codes import Embedded
from service.additions import facts_of, items_of
from service.brain import Brain
from service.once import once, replayed, shown
from stores import amendment, refill
from stores import purge as purging
from stores.acts import Act
from stores.appraisal import appraise
from stores.dependents import MAX_FLAGGED, dependents
from stores.insertion import grounded
from stores.purge import Target
from stores.vdb import shard_of
from stores.words import analyze
from stores.writer import Transaction

SHOWN = 1_000  # ids in a receipt
BACKUPS = "Backups and exports made earlier still hold the text: destroy them yourself."


async def update(brain: Brain, caller: Caller, request: UpdateMemory) -> Reply:
    """Edit in place, or store new content as a new memory that supersedes this one."""
    act = Act(caller, "brain_memory_update", brain.meaning.fingerprint())
    rewriting = None if request.content is None else await _rewritten(brain, request)

    def write(transaction: Transaction) -> dict[str, Any]:
        memory = act.find(transaction, request.memory_id, request.expected_version)
        if memory.state.status != "active":
            raise ConflictState(f"Memory {memory.memory_id} is {memory.state.status}, not active.")
        state = _edited(memory, request)
        if rewriting is None or (request.content == memory.content and request.facts is None):
            amendment.edit(act, transaction, memory, state, tuple(sorted(request.given)))
            return {"memory_id": memory.memory_id, "superseded": [], "conflicts": []}
        if memory.layer == "l1_raw":
            raise ImmutableLayer(f"Memory {memory.memory_id} is l1_raw, what was said.")
        draft = rewriting.after(memory, state)
        draft = replace(draft, memory=appraise(transaction, draft.memory))
        made = amendment.supersede(act, transaction, draft)
        return {
            "memory_id": made.memory_id,
            "superseded": list(made.superseded),
            "conflicts": list(made.conflicts),
        }

    done, again = await once(brain, caller, act.operation, request, write)
    body = {
        "memory": shown(brain, done["memory_id"]),
        "superseded": done["superseded"],
        "conflicts": done.get("conflicts", []),
    }
    return Reply(body | replayed(again))


async def supersede(brain: Brain, caller: Caller, request: SupersedeMemories) -> Reply:
    """Store a new memory as the successor of others."""
    act = Act(caller, "brain_memory_supersede", brain.meaning.fingerprint(), request.reason)
    [item] = await items_of(brain, caller, [request])
    [draft] = item.drafts
    state = replace(draft.memory.state, status_reason=request.reason)
    draft = replace(draft, memory=replace(draft.memory, state=state))

    def write(transaction: Transaction) -> dict[str, Any]:
        made = amendment.supersede(act, transaction, grounded(act, transaction, draft))
        return {
            "memory_id": made.memory_id,
            "superseded": list(made.superseded),
            "conflicts": list(made.conflicts),
            "indexed": made.indexed,
        }

    done, again = await once(brain, caller, act.operation, request, write)
    body = {
        "memory": shown(brain, done["memory_id"]),
        "superseded": done["superseded"],
        "conflicts": done.get("conflicts", []),
        "indexed": done["indexed"],
    }
    return Reply(body | replayed(again))


async def delete(brain: Brain, caller: Caller, request: DeleteMemory) -> Reply:
    """Forget or archive a memory."""
    act = Act(caller, "brain_memory_delete", brain.meaning.fingerprint(), request.reason)

    def write(transaction: Transaction) -> dict[str, Any]:
        memory = act.find(transaction, request.memory_id, request.expected_version)
        revived = amendment.hide(
            act, transaction, memory, request.mode, request.reason, revive=request.revive
        )
        after = act.find(transaction, memory.memory_id, forgotten=True)
        return {
            "memory_id": memory.memory_id,
            "status": after.state.status,
            "version": after.version,
            "revived": list(revived),
        }

    done, again = await once(brain, caller, act.operation, request, write)
    return Reply(done | replayed(again))


async def restore(brain: Brain, caller: Caller, request: RestoreMemory) -> Reply:
    """Bring an archived, negated or forgotten memory back."""
    act = Act(caller, "brain_memory_restore", brain.meaning.fingerprint(), request.reason)

    def write(transaction: Transaction) -> dict[str, Any]:
        memory = act.find(transaction, request.memory_id, request.expected_version, forgotten=True)
        amendment.bring_back(act, transaction, memory, request.reason)
        return {"memory_id": memory.memory_id}

    done, again = await once(brain, caller, act.operation, request, write)
    return Reply({"memory": shown(brain, done["memory_id"])} | replayed(again))


async def purge(brain: Brain, caller: Caller, request: Purge) -> Reply:
    """Destroy memories. The ledger and memory at once; the log and Chroma's files in the background, or
    before the answer with `wait`."""
    act = Act(caller, "brain_purge", brain.meaning.fingerprint())
    target = _target(caller, request)
    shard = shard_of(*caller.scope)

    def write(transaction: Transaction) -> tuple[list[str], list[str]]:
        connection = transaction.connection
        if request.memory_id is not None:
            act.find(transaction, request.memory_id, forgotten=True)
        doomed = target.memories(connection)
        resting = dependents(connection, doomed, None if request.cascade else MAX_FLAGGED)
        doomed, review = (doomed + resting, []) if request.cascade else (doomed, resting)
        if not request.dry_run and doomed:
            purging.purge(act, transaction, doomed, review)
            refill.request(transaction, shard)
        return [memory.memory_id for memory in doomed], [memory.memory_id for memory in review]

    gone, review = await brain.write(write)
    destroyed = bool(gone) and not request.dry_run
    done = await brain.clean_files(shard, wait=request.wait) if destroyed else (True, True)
    receipt = {
        "purged": gone[:SHOWN],
        "count": len(gone),
        "review": review[:SHOWN],
        "dry_run": request.dry_run,
        "done": {"ledger": "done", **dict(zip(("wal", "vdb"), map(_word, done), strict=True))},
        "backups": BACKUPS,
    }
    return Reply(receipt)


def _target(caller: Caller, request: Purge) -> Target:
    if request.all and request.confirm != caller.scope.agent:
        raise invalid("confirm", f"must be the agent's name, {caller.scope.agent!r}")
    if request.user_id is not None and caller.user not in (None, request.user_id):
        raise invalid("user_id", "is another user than the one who calls")
    user = request.user_id if request.user_id is not None else caller.user
    return Target(caller.scope, user, request.memory_id, request.session_id)


def _word(done: bool) -> str:
    return "done" if done else "pending"


def _edited(memory: Memory, request: UpdateMemory) -> State:
    """The memory's state with what the request names."""
    given = request.given
    values: dict[str, Any] = {}
    if request.tags is not None:
        values["tags"] = tuple(request.tags)
    if request.metadata is not None:
        values["custom"] = verbatim.dump(request.metadata)
    values |= {
        name: getattr(request, name) for name in ("valid_from", "valid_until", "frame") if name in given
    }
    if "confidence" in given:
        values["stated_confidence"] = request.confidence
    if request.frame is not None:
        values["provenance"] = guarded(memory.state.provenance, scan_label(request.frame))
    state = replace(memory.state, **values)
    state = appraised(replace(memory, state=state), state.standing)
    if (
        state.valid_from is not None
        and state.valid_until is not None
        and state.valid_from >= state.valid_until
    ):
        raise invalid("valid_until", "must be after valid_from")
    return state


@dataclass(frozen=True, slots=True, eq=False)
class _Rewriting:
    """New content for a memory, with all that takes long done before the write."""

    memory_id: str  # of the new memory
    content: str
    terms: tuple[str, ...]
    content_key: str
    embedded: Embedded | None
    facts: tuple[Fact, ...]
    reasons: tuple[str, ...]  # why it is sensitive

    def after(self, old: Memory, state: State) -> Draft:
        """The successor of a memory: everything else is carried over, but for its place in a session, what it
        asserted, and what was said of the old text. What it rests on that fell is still to be reviewed."""
        details = old.details
        if self.facts and not isinstance(details, MemoryDetails | None):
            raise invalid("facts", f"do not go with a memory of kind {old.kind}")
        if isinstance(details, MemoryDetails | None):
            details = replace(details or MemoryDetails(), facts=self.facts)
        state = replace(
            state,
            standing=Standing(fallen=state.standing.fallen),
            provenance=_carried(guarded(state.provenance, self.reasons)),
            # What stood behind the old text says nothing of one that gives orders.
            evidence_ids=() if self.reasons else state.evidence_ids,
        )
        new = replace(
            old,
            memory_id=self.memory_id,
            content=self.content,
            session_position=None,
            details=None if details == MemoryDetails() else details,
            version=1,
            state=replace(state, supersedes=(old.memory_id,), superseded_by=()),
        )
        return Draft(new, self.terms, self.content_key, self.embedded, "keep")


def _carried(provenance: Provenance) -> Provenance:
    """What a new text keeps of the old one's standing in the history view: nobody has corroborated it, so
    that a sensitive one is neither consolidated nor pinned."""
    if not provenance.security_sensitive:
        return provenance
    return replace(
        provenance, stage="working", consolidated_at=None, consolidation_reason=None, pinned_at=None
    )


async def _rewritten(brain: Brain, request: UpdateMemory) -> _Rewriting:
    content = request.content
    assert content is not None
    # Only for the actor, who never changes; whether the caller may touch the memory, the write finds out.
    actor = next((memory.actor for memory in brain.current([request.memory_id])), None)

    def read() -> tuple[tuple[str, ...], str, tuple[str, ...]]:
        return analyze(content, actor), content_key(content), scan(content)

    (terms, key, reasons), [embedded] = await brain.meaning.of_documents([content], read)
    new_id = brain.new_id(brain.clock())
    return _Rewriting(new_id, content, terms, key, embedded, facts_of(request.facts or ()), reasons)
