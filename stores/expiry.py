"""What has come to its end: found in the ledger, and archived."""

from collections.abc import Sequence
from dataclasses import replace

from models.errors import MemoryForgotten, MemoryNotFound
from models.memory import Memory
from models.scope import Caller
from stores.acts import Act
from stores.appraisal import settle
from stores.ledger import Ledger
from stores.rows import memory_from, select_memories
from stores.schema import memories, versions
from stores.writer import Transaction

REASON = "expired"
SYSTEM = "system"  # the key id of what the service does by itself


def expired(memory: Memory, now: int) -> bool:
    """Whether an active memory is past its end: its own `expires_at`, or an intention's `valid_until`.
    Never a pinned one. Any other memory's validity says when it was true, and it stays in use as such."""
    ends = [memory.state.provenance.expires_at]
    if memory.layer == "l7_intention":
        ends.append(memory.state.valid_until)
    free = memory.state.provenance.pinned_at is None
    return free and memory.state.status == "active" and any(end is not None and end <= now for end in ends)


def find_expired(ledger: Ledger, now: int, limit: int) -> list[Memory]:
    """Active memories that are past their end at `now`, epoch ms, of every scope."""
    state = versions.c.state
    intention = (memories.c.layer == "l7_intention") & (state["valid_until"].as_integer() <= now)
    by_itself = state["provenance"]["expires_at"].as_integer() <= now
    query = (
        select_memories()
        .where(versions.c.status == "active", intention | by_itself)
        .order_by(memories.c.seq)
        .limit(limit)
    )
    with ledger.snapshot() as connection:
        return [memory_from(row) for row in connection.execute(query)]


def archive(transaction: Transaction, found: Sequence[Memory], now: int) -> int:
    """Archive those that are still past their end. Returns how many."""
    count = 0
    for memory in found:
        system = Caller(memory.partition.scope, None, frozenset(), "expiry", SYSTEM)
        act = Act(system, "expire", None)
        try:
            memory = act.find(transaction, memory.memory_id)
        except (MemoryNotFound, MemoryForgotten):
            continue  # somebody hid it since it was found
        if expired(memory, now):
            state = replace(memory.state, status="archived", status_reason=REASON)
            gone = act.change(transaction, memory, state, ("status",))
            settle(act, transaction, [gone], [gone])
            count += 1
    return count
