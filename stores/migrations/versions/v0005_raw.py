"""Raw messages: sessions, transcripts, where each message stands, and labels of sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# Messages that were written before stand in no transcript: they are found by search, in the order of time.
_TAKE_UP = """
INSERT INTO raw_messages (memory_id, product, agent, "user", session_row, identity_id, ordinal, number, role,
                          epoch, timed, shown, ascii, content_hash, once_key)
SELECT m.memory_id, m.product, m.agent, m."user", NULL, 0, 0, m.number, NULL,
       CAST(COALESCE(m.memory_at, m.gmt_created) / 1000 AS INTEGER), m.memory_at IS NOT NULL,
       v.status NOT IN ('forgotten', 'purged'), FALSE, NULL, NULL
FROM memories m JOIN versions v ON v.memory_id = m.memory_id AND v.to_seq IS NULL
WHERE m.kind = 'message'
"""


def upgrade() -> None:
    op.create_table(
        "raw_sessions",
        sa.Column("session_row", BIG, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("source_root", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("session_mode", sa.String(), nullable=False),
        sa.Column("taint", sa.String(), nullable=True),
        sa.Column("excluded", sa.Boolean(), nullable=False),
        sa.Column("message_count", BIG, nullable=False),
        sa.Column("user_count", BIG, nullable=False),
        sa.Column("assistant_count", BIG, nullable=False),
        sa.Column("first_epoch", BIG, nullable=True),
        sa.Column("last_epoch", BIG, nullable=True),
        sa.Column("content_hash", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("session_row"),
        sa.UniqueConstraint("key"),
    )
    scope = ["product", "agent"]
    for name, columns in (
        ("raw_sessions_by_last", ["excluded", "last_epoch"]),
        ("raw_sessions_by_first", ["excluded", "first_epoch"]),
        ("raw_sessions_by_names", ["source_root", "project", "session_id"]),
    ):
        op.create_index(name, "raw_sessions", [*scope, *columns], unique=False)
    op.create_table(
        "transcripts",
        sa.Column("identity_id", BIG, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("session_row", BIG, nullable=False),
        sa.Column("session_mode", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("lines", BIG, nullable=False),
        sa.Column("bytes", BIG, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=True),
        sa.Column("failure", sa.String(), nullable=True),
        sa.Column("failed_line", BIG, nullable=True),
        sa.Column("failed_at", BIG, nullable=True),
        sa.ForeignKeyConstraint(["session_row"], ["raw_sessions.session_row"]),
        sa.PrimaryKeyConstraint("identity_id"),
        sa.UniqueConstraint("key"),
    )
    op.create_index("transcripts_by_session", "transcripts", ["session_row"], unique=False)
    op.create_table(
        "raw_messages",
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("session_row", BIG, nullable=True),
        sa.Column("identity_id", BIG, nullable=False),
        sa.Column("ordinal", BIG, nullable=False),
        sa.Column("number", BIG, nullable=False),
        sa.Column("role", sa.String(), nullable=True),
        sa.Column("epoch", BIG, nullable=False),
        sa.Column("timed", sa.Boolean(), nullable=False),
        sa.Column("shown", sa.Boolean(), nullable=False),
        sa.Column("ascii", sa.Boolean(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=True),
        sa.Column("once_key", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.memory_id"]),
        sa.ForeignKeyConstraint(["session_row"], ["raw_sessions.session_row"]),
        sa.PrimaryKeyConstraint("memory_id"),
        sa.UniqueConstraint("once_key"),
    )
    op.create_index("raw_messages_by_session", "raw_messages", ["session_row", "epoch", "number"])
    op.create_index("raw_messages_by_time", "raw_messages", [*scope, "epoch", "number"])
    op.create_index(
        "raw_messages_by_ordinal",
        "raw_messages",
        ["identity_id", "ordinal"],
        unique=True,
        sqlite_where=sa.text("identity_id > 0"),
        postgresql_where=sa.text("identity_id > 0"),
    )
    op.create_table(
        "session_labels",
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("intent", sa.String(), nullable=True),
        sa.Column("topic", sa.Text(), nullable=True),
        sa.Column("source", sa.String(), nullable=True),
        sa.Column("at", BIG, nullable=False),
        sa.Column("number", BIG, nullable=False),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.memory_id"]),
        sa.PrimaryKeyConstraint("memory_id"),
    )
    op.create_index(
        "session_labels_by_session", "session_labels", [*scope, "host", "project", "session_id"], unique=False
    )
    op.execute(_TAKE_UP)
