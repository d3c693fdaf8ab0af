"""The use cases that change memories, take them away and bring them back."""

from dataclasses import dataclass, replace
from typing import Any

from models import verbatim
from models.answers import Reply
from models.authority import Statement, initial_confidence
from models.change_requests import DeleteMemory, Purge, RestoreMemory, SupersedeMemories, UpdateMemory
from models.draft import Draft, content_key
from models.errors import ConflictState, ImmutableLayer, MemoryForgotten, invalid
from models.memory import Memory, State
from models.requests import Request
from models.scope import Caller
from models.token_codes import Embedded
from service.additions import items_of, off_loop
from service.brain import Brain
from service.fields import memory_fields
from stores import amendment, refill
from stores import purge as purging
from stores.acts import Act
from stores.idempotency import Once
from stores.insertion import check_lineage
from stores.purge import Target
from stores.vdb import shard_of
from stores.words import analyze
from stores.writer import Transaction

SHOWN = 1_000  # ids in a receipt
BACKUPS = "Backups and exports made earlier still hold the text: destroy them yourself."


async def update(brain: Brain, caller: Caller, request: UpdateMemory) -> Reply:
    """Edit in place, or store new content as a new memory that supersedes this one."""
    act = Act(caller, "brain_memory_update", brain.meaning.fingerprint())
    draft = None if request.content is None else await _rewritten(brain, request.memory_id, request.content)

    def write(transaction: Transaction) -> dict[str, Any]:
        memory = act.find(transaction, request.memory_id, request.expected_version)
        if memory.state.status != "active":
            raise ConflictState(f"Memory {memory.memory_id} is {memory.state.status}, not active.")
        state = _edited(memory, request)
        if draft is None or request.content == memory.content:
            amendment.edit(act, transaction, memory, state, tuple(sorted(request.given)))
            return {"memory_id": memory.memory_id, "superseded": []}
        if memory.layer == "l1_raw":
            raise ImmutableLayer(f"Memory {memory.memory_id} is l1_raw, what was said.")
        made = amendment.supersede(act, transaction, draft.after(memory, state))
        return {"memory_id": made.memory_id, "superseded": [memory.memory_id]}

    done, replayed = await _once(brain, caller, act.operation, request, write)
    body = {"memory": _shown(brain, done["memory_id"]), "superseded": done["superseded"]}
    return Reply(body | _replayed(replayed))


async def supersede(brain: Brain, caller: Caller, request: SupersedeMemories) -> Reply:
    """Store a new memory as the successor of others."""
    act = Act(caller, "brain_memory_supersede", brain.meaning.fingerprint())
    [item] = await items_of(brain, caller, [request])
    [draft] = item.drafts
    state = replace(draft.memory.state, status_reason=request.reason)
    draft = replace(draft, memory=replace(draft.memory, state=state))

    def write(transaction: Transaction) -> dict[str, Any]:
        check_lineage(act, transaction, draft.memory)
        made = amendment.supersede(act, transaction, draft)
        superseded = list(draft.memory.state.supersedes)
        return {"memory_id": made.memory_id, "superseded": superseded, "indexed": made.indexed}

    done, replayed = await _once(brain, caller, act.operation, request, write)
    body = {
        "memory": _shown(brain, done["memory_id"]),
        "superseded": done["superseded"],
        "conflicts": [],
        "indexed": done["indexed"],
    }
    return Reply(body | _replayed(replayed))


async def delete(brain: Brain, caller: Caller, request: DeleteMemory) -> Reply:
    """Forget or archive a memory."""
    act = Act(caller, "brain_memory_delete", brain.meaning.fingerprint())

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

    done, replayed = await _once(brain, caller, act.operation, request, write)
    return Reply(done | _replayed(replayed))


async def restore(brain: Brain, caller: Caller, request: RestoreMemory) -> Reply:
    """Bring an archived, negated or forgotten memory back."""
    act = Act(caller, "brain_memory_restore", brain.meaning.fingerprint())

    def write(transaction: Transaction) -> dict[str, Any]:
        memory = act.find(transaction, request.memory_id, request.expected_version, forgotten=True)
        amendment.bring_back(act, transaction, memory, request.reason)
        return {"memory_id": memory.memory_id}

    done, replayed = await _once(brain, caller, act.operation, request, write)
    return Reply({"memory": _shown(brain, done["memory_id"])} | _replayed(replayed))


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
        resting = purging.dependents(connection, doomed, transitively=request.cascade)
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
        statement: Statement = "derived" if memory.source_raw_memory_id else "stated"
        values["stated_confidence"] = request.confidence
        values["confidence"] = initial_confidence(memory.source_authority, statement, request.confidence)
    state = replace(memory.state, **values)
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

    def after(self, old: Memory, state: State) -> Draft:
        """The successor of a memory: everything else is carried over, its place in a session aside."""
        new = replace(
            old,
            memory_id=self.memory_id,
            content=self.content,
            session_position=None,
            version=1,
            state=replace(state, supersedes=(old.memory_id,), superseded_by=()),
        )
        return Draft(new, self.terms, self.content_key, self.embedded, "keep")


async def _rewritten(brain: Brain, memory_id: str, content: str) -> _Rewriting:
    # Only for the actor, who never changes; whether the caller may touch the memory, the write finds out.
    actor = next((memory.actor for memory in brain.current([memory_id])), None)

    def words() -> tuple[tuple[str, ...], str]:
        return analyze(content, actor), content_key(content)

    terms, key = await off_loop(len(content), words)
    [embedded] = await brain.meaning.of_documents([content])
    return _Rewriting(brain.new_id(brain.clock()), content, terms, key, embedded)


async def _once(
    brain: Brain, caller: Caller, operation: str, request: Request, write: Any
) -> tuple[Any, bool]:
    """Run a write, or answer what it did when its idempotency key came first."""
    key = getattr(request, "idempotency_key", None)
    if key is None:
        return await brain.write(write), False
    once = Once(operation, key, request.model_dump(exclude={"idempotency_key"}))
    done: tuple[Any, bool] = await brain.write(
        lambda transaction: once.run(transaction, caller, lambda: write(transaction))
    )
    return done


def _replayed(replayed: bool) -> dict[str, Any]:
    return {"replayed": True} if replayed else {}


def _shown(brain: Brain, memory_id: str) -> Any:
    found = brain.current([memory_id])
    if not found:
        raise MemoryForgotten(f"Memory {memory_id} was forgotten since.")
    return memory_fields(found[0], "graph", brain.clock())
