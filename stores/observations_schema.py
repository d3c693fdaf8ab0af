"""The ledger's tables for what the record itself can't hold of the observations view: beside those of
`stores.schema`."""

from sqlalchemy import Column, ForeignKey, Index, String, Table, Text

from stores.schema import Big, metadata

# Memories and summaries with a topic's key, so that its head and its segments are found by it. What is in it
# follows from the records. A row with `covered_from` is a segment.
topics = Table(
    "topics",
    metadata,
    Column("memory_id", String, ForeignKey("memories.memory_id"), primary_key=True),
    Column("product", String, nullable=False),
    Column("agent", String, nullable=False),
    Column("user", String, nullable=False),
    Column("project", String, nullable=False),
    Column("topic_key", String, nullable=False),
    Column("memory_type", String),  # null for a summary
    Column("covered_from", Big),
    Index("topics_by_key", "product", "agent", "user", "project", "topic_key", "covered_from"),
)

# How often and when (epoch ms) details were fetched. No part of the record: to read is not to change.
accesses = Table(
    "accesses",
    metadata,
    Column("memory_id", String, ForeignKey("memories.memory_id"), primary_key=True),
    Column("last_accessed", Big, nullable=False),
    Column("access_count", Big, nullable=False),
)

# What hides memories of a user at read time. The target is the caller's own text.
suppressions = Table(
    "suppressions",
    metadata,
    Column("product", String, primary_key=True),
    Column("agent", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("sort", String, primary_key=True),  # memory | topic_key | entity | pattern
    Column("value", Text, primary_key=True),
    Column("at", Big, nullable=False),  # epoch ms
    Column("authority", String, nullable=False, server_default="policy"),  # the highest that it hides
)
