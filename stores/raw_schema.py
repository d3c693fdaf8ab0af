"""The ledger's tables of raw messages: what the records of the messages can't hold, which is counts, indexes,
and who has brought which transcript how far.

A host that could not be told is an empty text here. `key` columns are digests of names, by which a row is
found again after a purge has emptied the names. Times: `*_epoch` and `epoch` are seconds, `at` ms.
"""

from sqlalchemy import Boolean, Column, ForeignKey, Index, LargeBinary, String, Table, Text

from stores.schema import Big, metadata

# One session of one host, root, project and user, with the aggregates of the messages that may be shown.
# `taint` says why its provenance is in doubt; `excluded` whether a list leaves it out, for that or because
# the same names came without a host as well.
raw_sessions = Table(
    "raw_sessions",
    metadata,
    Column("session_row", Big, primary_key=True),
    Column("key", String, nullable=False, unique=True),
    Column("product", String, nullable=False),
    Column("agent", String, nullable=False),
    Column("user", String, nullable=False),
    Column("source_root", String, nullable=False),
    Column("host", String, nullable=False),
    Column("project", String, nullable=False),
    Column("session_id", String, nullable=False),
    Column("session_mode", String, nullable=False),
    Column("taint", String),  # conflict | mode
    Column("excluded", Boolean, nullable=False),
    Column("message_count", Big, nullable=False),
    Column("user_count", Big, nullable=False),
    Column("assistant_count", Big, nullable=False),
    Column("first_epoch", Big),  # null, like the next, while nothing may be shown
    Column("last_epoch", Big),
    Column("content_hash", String, nullable=False),
    Index("raw_sessions_by_last", "product", "agent", "excluded", "last_epoch"),
    Index("raw_sessions_by_first", "product", "agent", "excluded", "first_epoch"),
    Index("raw_sessions_by_names", "product", "agent", "source_root", "project", "session_id"),
)

# A file, or whatever else counts its messages: an ordinal is taken once in it. `lines`, `bytes` and `digest`
# (SHA-256 of so many bytes) say how far it was read. A failure is that of the last run, without its text.
# While its messages come in several writes, its state is `coming`, and those that are here are not shown.
transcripts = Table(
    "transcripts",
    metadata,
    Column("identity_id", Big, primary_key=True),
    Column("key", String, nullable=False, unique=True),
    Column("session_row", Big, ForeignKey("raw_sessions.session_row"), nullable=False),
    Column("session_mode", String, nullable=False),
    Column("state", String, nullable=False),  # active | coming | conflict
    Column("lines", Big, nullable=False),
    Column("bytes", Big, nullable=False),
    Column("digest", LargeBinary),
    Column("failure", String),
    Column("failed_line", Big),
    Column("failed_at", Big),
    Index("transcripts_by_session", "session_row"),
)

# Where every message of any kind stands. `timed` is false when its time is that of its arrival.
raw_messages = Table(
    "raw_messages",
    metadata,
    Column("memory_id", String, ForeignKey("memories.memory_id"), primary_key=True),
    Column("product", String, nullable=False),
    Column("agent", String, nullable=False),
    Column("user", String, nullable=False),
    Column("session_row", Big, ForeignKey("raw_sessions.session_row")),
    Column("identity_id", Big, nullable=False),  # 0: none
    Column("ordinal", Big, nullable=False),
    Column("number", Big, nullable=False),
    Column("role", String),
    Column("epoch", Big, nullable=False),
    Column("timed", Boolean, nullable=False),
    Column("shown", Boolean, nullable=False),
    Column("ascii", Boolean, nullable=False),  # the text: then a database knows how to fold its case
    Column("content_hash", String),  # null after a purge, like the next
    Column("once_key", String, unique=True),  # of what has no identity: the same text comes in once
    Index("raw_messages_by_session", "session_row", "epoch", "number"),
    Index("raw_messages_by_time", "product", "agent", "epoch", "number"),
)
Index(
    "raw_messages_by_ordinal",
    raw_messages.c.identity_id,
    raw_messages.c.ordinal,
    unique=True,
    sqlite_where=raw_messages.c.identity_id > 0,
    postgresql_where=raw_messages.c.identity_id > 0,
)

# What session summaries say a session was about. `at` is when the label was last set.
session_labels = Table(
    "session_labels",
    metadata,
    Column("memory_id", String, ForeignKey("memories.memory_id"), primary_key=True),
    Column("product", String, nullable=False),
    Column("agent", String, nullable=False),
    Column("user", String, nullable=False),
    Column("host", String, nullable=False),
    Column("project", String, nullable=False),
    Column("session_id", String, nullable=False),
    Column("intent", String),
    Column("topic", Text),
    Column("source", String),  # summary | override | rollup
    Column("at", Big, nullable=False),
    Column("number", Big, nullable=False),
    Index("session_labels_by_session", "product", "agent", "host", "project", "session_id"),
)
