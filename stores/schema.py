"""The ledger's tables. Migrations in `stores/migrations` create them; a test holds the two equal.

A memory is one row of `memories` (what never changes) and one row of `versions` for each state that it
was in; the current one has no `to_seq`. `seq`, the number of the event that wrote a row, orders
everything: clocks do not.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData()

# 64 bits everywhere; SQLite's own INTEGER has them and is what it counts rows with.
Big = BigInteger().with_variant(Integer, "sqlite")

settings = Table(
    "settings",
    metadata,
    Column("name", String, primary_key=True),
    Column("value", Text, nullable=False),
)

# Every write and every refusal, in order. Of what changed it has the names and a salted digest, never the
# text. A `reason` is the caller's own text and goes, with the salt, when the memory is purged.
events = Table(
    "events",
    metadata,
    Column("seq", Big, primary_key=True, autoincrement=False),  # counted by the writer
    Column("at", Big, nullable=False),  # epoch ms, never decreasing
    Column("product", String, nullable=False),
    Column("agent", String, nullable=False),
    Column("user", String, nullable=False),
    Column("action", String, nullable=False),
    Column("memory_id", String),
    Column("key_id", String),
    Column("request_id", String),
    Column("fields", JSON, nullable=False),
    Column("refused", String),  # the code of the refusal; null when it was done
    Column("reason", Text),
    Column("salt", LargeBinary),
    Column("digest", LargeBinary),  # of salt, reason and what the changed fields hold now
    Index("events_by_memory", "memory_id"),
    Index("events_by_time", "at"),
)

# The audit chain: the hash of each event covers that of the event before. Reasons and salts stand outside it,
# so that it still verifies after a purge.
chain = Table(
    "chain",
    metadata,
    Column("seq", Big, ForeignKey("events.seq"), primary_key=True, autoincrement=False),
    Column("hash", LargeBinary, nullable=False),
)

# Who may call. The secret is shown once and kept as its digest only.
keys = Table(
    "keys",
    metadata,
    Column("key_id", String, primary_key=True),
    Column("product", String, nullable=False),
    Column("agent", String),  # null: any agent of the product
    Column("rights", JSON, nullable=False),
    Column("authority", String, nullable=False),  # the highest that may be claimed
    Column("acts_for_user", Boolean, nullable=False),
    Column("digest", LargeBinary, nullable=False),  # SHA-256 of the secret
    Column("created_at", Big, nullable=False),  # epoch ms, like the two below
    Column("expires_at", Big),
    Column("revoked_at", Big),
)

memories = Table(
    "memories",
    metadata,
    Column("memory_id", String, primary_key=True),
    Column("product", String, nullable=False),
    Column("agent", String, nullable=False),
    Column("user", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("layer", String, nullable=False),
    Column("number", Big, nullable=False),
    Column("seq", Big, ForeignKey("events.seq"), nullable=False, unique=True),
    Column("gmt_created", Big, nullable=False),
    Column("content", Text, nullable=False),
    Column("content_key", String, nullable=False),  # digest of the normalised text, finds duplicates
    Column("source_authority", String, nullable=False),
    Column("memory_at", Big),
    Column("actor", String),
    Column("project", String, nullable=False),
    Column("session_id", String),
    Column("session_key", String),
    Column("session_position", Big),
    Column("origin_id", String),
    Column("source_raw_memory_id", String),
    Column("details", JSON),
    Index("memories_by_partition", "product", "agent", "user", "seq"),
    Index("memories_by_content", "product", "agent", "user", "content_key"),
    Index("memories_by_number", "product", "agent", "kind", "number", unique=True),
    Index(
        "memories_by_position",
        "product",
        "agent",
        "user",
        "session_key",
        "session_position",
        unique=True,  # rows without a position are null there, and nulls never collide
    ),
)

versions = Table(
    "versions",
    metadata,
    Column("memory_id", String, ForeignKey("memories.memory_id"), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("from_seq", Big, nullable=False),
    Column("to_seq", Big),
    Column("at", Big, nullable=False),  # epoch ms of the change
    Column("status", String, nullable=False),
    Column("state", JSON, nullable=False),
)
Index(
    "versions_current",
    versions.c.memory_id,
    unique=True,
    sqlite_where=versions.c.to_seq.is_(None),
    postgresql_where=versions.c.to_seq.is_(None),
)

tags = Table(
    "tags",
    metadata,
    Column("memory_id", String, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("tag", String, primary_key=True),
)

edges = Table(
    "edges",
    metadata,
    Column("from_id", String, primary_key=True),
    Column("type", String, primary_key=True),
    Column("to_id", String, primary_key=True),
    Column("from_seq", Big, primary_key=True),
    Column("to_seq", Big),
    Column("weight", Float, nullable=False),
    Index("edges_by_target", "to_id"),
)

# What a memory asserts, for the rules: the same subject and predicate give the same key. Digests, no text;
# the facts themselves stand in the memory's details.
fact_keys = Table(
    "fact_keys",
    metadata,
    Column("memory_id", String, ForeignKey("memories.memory_id"), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("product", String, nullable=False),
    Column("agent", String, nullable=False),
    Column("user", String, nullable=False),
    Column("key", String, nullable=False),
    Column("object_key", String, nullable=False),
    Column("single_valued", Boolean, nullable=False),
    Index("fact_keys_by_key", "product", "agent", "user", "key"),
)

# Two memories of one partition that contradict each other. Open while it has no `resolved_at`. `rule` names
# what opened it; the reasons are the callers' own texts. Times: epoch ms.
conflicts = Table(
    "conflicts",
    metadata,
    Column("conflict_id", String, primary_key=True),
    Column("product", String, nullable=False),
    Column("agent", String, nullable=False),
    Column("user", String, nullable=False),
    Column("a_id", String, ForeignKey("memories.memory_id"), nullable=False),
    Column("b_id", String, ForeignKey("memories.memory_id"), nullable=False),
    Column("rule", String, nullable=False),
    Column("reason", Text),
    Column("seq", Big, nullable=False),
    Column("opened_at", Big, nullable=False),
    Column("resolved_at", Big),
    Column("adopted", String),  # the id of the side that is current since; null when neither was chosen
    Column("resolution", Text),
    Index("conflicts_by_partition", "product", "agent", "user", "seq"),
    Index("conflicts_by_first", "a_id"),
    Index("conflicts_by_second", "b_id"),
)

# The words of a memory as the index takes them, kept so that a cold partition loads without analysing.
tokens = Table(
    "tokens",
    metadata,
    Column("memory_id", String, ForeignKey("memories.memory_id"), primary_key=True),
    Column("analyzer", String, nullable=False),
    Column("terms", Text, nullable=False),  # separated by newlines, in the order of the text
)

# float32, little-endian, L2-normalised. Vectors of two fingerprints never meet.
vectors = Table(
    "vectors",
    metadata,
    Column("memory_id", String, ForeignKey("memories.memory_id"), primary_key=True),
    Column("chunk", Integer, primary_key=True),
    Column("fingerprint", String, primary_key=True),
    Column("vector", LargeBinary, nullable=False),
)

# Word pieces' vectors for late interaction: int32 piece ids, int8 codes, one float32 scale a piece.
token_vectors = Table(
    "token_vectors",
    metadata,
    Column("memory_id", String, ForeignKey("memories.memory_id"), primary_key=True),
    Column("chunk", Integer, primary_key=True),
    Column("fingerprint", String, primary_key=True),
    Column("pieces", LargeBinary, nullable=False),
    Column("codes", LargeBinary, nullable=False),
    Column("scales", LargeBinary, nullable=False),
)

# What still has to be done for a memory: `embed` it, or bring its row in the vector store up to date
# (`index`). A later write of the same memory replaces the row, with a higher seq.
outbox = Table(
    "outbox",
    metadata,
    Column("memory_id", String, ForeignKey("memories.memory_id"), primary_key=True),
    Column("task", String, primary_key=True),
    Column("seq", Big, nullable=False),
    Column("shard", Integer, nullable=False),
    Column("state", String, nullable=False),  # pending | parked
    Column("attempts", Integer, nullable=False),
    Column("retry_at", Big, nullable=False),  # epoch ms
    Column("error", Text),
    Index("outbox_due", "task", "state", "seq"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("product", String, primary_key=True),
    Column("agent", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("operation", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("salt", LargeBinary, nullable=False),
    Column("digest", LargeBinary, nullable=False),  # of salt + request, so that no text can be guessed
    Column("outcome", JSON, nullable=False),  # ids and flags, never text
    Column("at", Big, nullable=False),
    Index("idempotency_by_age", "at"),
)
