"""How the doctor mends the ledger's derived rows. Each repair looks again inside its own write, so that it
does what is needed then. No memory, version or event is ever touched; a standing that was wrong is put right
by a version more."""

from collections.abc import Callable, Iterator, Sequence

from sqlalchemy import delete, update

from models.memory import Memory
from models.scope import Caller
from stores.acts import Act, end_edges
from stores.appraisal import reappraise
from stores.changes import Edge
from stores.expiry import SYSTEM
from stores.findings import Repair
from stores.insertion import assertion_edges, fact_values
from stores.inserts import insert_edges, requeue
from stores.ledger_checks import ORPHANED, WORDLESS, stored_fingerprint
from stores.outbox import unpark
from stores.record_checks import lineage, read_records
from stores.rows import memory_from, select_memories, tag_values
from stores.schema import edges, fact_keys, memories, outbox, tags, tokens, vectors
from stores.trust_checks import unlike_links
from stores.vdb import shard_of
from stores.view_mending import count_again, write_places, write_topics
from stores.words import ANALYZER, analyze
from stores.writer import Transaction

AT_ONCE = 500  # ids in one statement

Mend = Callable[[Transaction, Sequence[str]], None]


def delete_orphans(transaction: Transaction, _: Sequence[str]) -> None:
    for table, gone in ORPHANED.items():
        transaction.execute(delete(table).where(gone))


def analyse(transaction: Transaction, _: Sequence[str]) -> None:
    ids = list(transaction.execute(WORDLESS).scalars())
    for memory in _memories(transaction, ids):
        terms = "\n".join(analyze(memory.content, memory.actor))
        row = {"memory_id": memory.memory_id, "analyzer": ANALYZER, "terms": terms}
        transaction.insert(tokens, [row])


def write_tags(transaction: Transaction, ids: Sequence[str]) -> None:
    for memory in _memories(transaction, ids):
        this = (tags.c.memory_id == memory.memory_id) & (tags.c.version == memory.version)
        transaction.execute(delete(tags).where(this))
        transaction.insert(tags, tag_values(memory))


def write_links(transaction: Transaction, _: Sequence[str]) -> None:
    transaction.flush()
    records = read_records(transaction.connection)
    missing, extra = lineage(transaction.connection, records)
    for edge in missing:  # from the event on by which both memories were there
        seq = max(records.known[edge.from_id].seq, records.known[edge.to_id].seq)
        same = (edges.c.from_id == edge.from_id) & (edges.c.type == edge.type) & (edges.c.to_id == edge.to_id)
        transaction.execute(delete(edges).where(same, edges.c.from_seq == seq))  # one that ended too early
        insert_edges(transaction, (edge,), seq)
    end_edges(transaction, extra, transaction.next_seq())


def write_facts(transaction: Transaction, ids: Sequence[str]) -> None:
    for memory in _memories(transaction, ids):
        transaction.execute(delete(fact_keys).where(fact_keys.c.memory_id == memory.memory_id))
        asserted = (edges.c.from_id == memory.memory_id) & (edges.c.type == "asserts")
        transaction.execute(delete(edges).where(asserted))
        transaction.insert(fact_keys, fact_values(memory))
        insert_edges(transaction, assertion_edges(memory), memory.seq)


def write_conflicts(transaction: Transaction, _: Sequence[str]) -> None:
    transaction.flush()
    missing, extra = unlike_links(transaction.connection)
    seq = transaction.next_seq()
    end_edges(transaction, [Edge(a, "conflicts_with", b) for a, b in extra], seq)
    insert_edges(transaction, [Edge(a, "conflicts_with", b) for a, b in missing], seq)


def appraise_again(transaction: Transaction, ids: Sequence[str]) -> None:
    for memory in _memories(transaction, ids):
        system = Caller(memory.partition.scope, None, frozenset(), "doctor", SYSTEM)
        reappraise(Act(system, "doctor", None), transaction, [memory.memory_id])


def embed_again(transaction: Transaction, ids: Sequence[str]) -> None:
    fingerprint = stored_fingerprint(transaction.connection)
    for memory in _memories(transaction, ids):
        if not memory.hidden:
            mine = (vectors.c.memory_id == memory.memory_id) & (vectors.c.fingerprint == fingerprint)
            transaction.execute(delete(vectors).where(mine))
            requeue(transaction, memory, "embed", transaction.next_seq())


def index_again(transaction: Transaction, ids: Sequence[str]) -> None:
    for memory in _memories(transaction, ids):
        requeue(transaction, memory, "index", transaction.next_seq())


def move_tasks(transaction: Transaction, ids: Sequence[str]) -> None:
    for memory in _memories(transaction, ids):
        shard = shard_of(*memory.partition.scope)
        this = outbox.c.memory_id == memory.memory_id
        new = {"shard": shard, "state": "pending", "attempts": 0, "retry_at": 0}  # its faults came of that
        transaction.execute(update(outbox).where(this).values(new))


def try_again(transaction: Transaction, _: Sequence[str]) -> None:
    unpark(transaction)


# What is done about a finding in one write; Chroma's directories and what is in memory are not here.
MENDS: dict[Repair, Mend] = {
    "delete": delete_orphans,
    "analyse": analyse,
    "tags": write_tags,
    "links": write_links,
    "facts": write_facts,
    "conflicts": write_conflicts,
    "standings": appraise_again,
    "places": write_places,
    "sessions": count_again,
    "topics": write_topics,
    "embed": embed_again,
    "index": index_again,
    "shard": move_tasks,
    "retry": try_again,
}


def _memories(transaction: Transaction, ids: Sequence[str]) -> Iterator[Memory]:
    for some in _slices(ids):
        rows = transaction.execute(select_memories().where(memories.c.memory_id.in_(some))).all()
        yield from (memory_from(row) for row in rows)


def _slices(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + AT_ONCE] for start in range(0, len(ids), AT_ONCE))
