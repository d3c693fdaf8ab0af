"""The first schema: records and versions, events, links, words, vectors, outbox, idempotency, settings."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "edges",
        sa.Column("from_id", sa.String(), nullable=False),
        sa.Column("type", sa.String(), nullable=False),
        sa.Column("to_id", sa.String(), nullable=False),
        sa.Column("from_seq", BIG, nullable=False),
        sa.Column("to_seq", BIG, nullable=True),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("from_id", "type", "to_id", "from_seq"),
    )
    op.create_index("edges_by_target", "edges", ["to_id"], unique=False)
    op.create_table(
        "events",
        sa.Column("seq", BIG, autoincrement=False, nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("memory_id", sa.String(), nullable=True),
        sa.Column("key_id", sa.String(), nullable=True),
        sa.Column("request_id", sa.String(), nullable=True),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_table(
        "idempotency",
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("operation", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("outcome", sa.JSON(), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("product", "agent", "user", "operation", "key"),
    )
    op.create_index("idempotency_by_age", "idempotency", ["at"], unique=False)
    op.create_table(
        "settings",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "tags",
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("tag", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("memory_id", "version", "tag"),
    )
    op.create_table(
        "memories",
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("layer", sa.String(), nullable=False),
        sa.Column("number", BIG, nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("gmt_created", BIG, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("content_key", sa.String(), nullable=False),
        sa.Column("source_authority", sa.String(), nullable=False),
        sa.Column("memory_at", BIG, nullable=True),
        sa.Column("actor", sa.String(), nullable=True),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=True),
        sa.Column("session_key", sa.String(), nullable=True),
        sa.Column("session_position", BIG, nullable=True),
        sa.Column("origin_id", sa.String(), nullable=True),
        sa.Column("source_raw_memory_id", sa.String(), nullable=True),
        sa.Column("details", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["seq"],
            ["events.seq"],
        ),
        sa.PrimaryKeyConstraint("memory_id"),
        sa.UniqueConstraint("seq"),
    )
    op.create_index(
        "memories_by_content", "memories", ["product", "agent", "user", "content_key"], unique=False
    )
    op.create_index("memories_by_number", "memories", ["product", "agent", "kind", "number"], unique=True)
    op.create_index("memories_by_partition", "memories", ["product", "agent", "user", "seq"], unique=False)
    op.create_index(
        "memories_by_position",
        "memories",
        ["product", "agent", "user", "session_key", "session_position"],
        unique=True,
    )
    op.create_table(
        "outbox",
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("retry_at", BIG, nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["memory_id"],
            ["memories.memory_id"],
        ),
        sa.PrimaryKeyConstraint("memory_id", "task"),
    )
    op.create_index("outbox_due", "outbox", ["task", "state", "seq"], unique=False)
    op.create_table(
        "token_vectors",
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("chunk", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("pieces", sa.LargeBinary(), nullable=False),
        sa.Column("codes", sa.LargeBinary(), nullable=False),
        sa.Column("scales", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["memory_id"],
            ["memories.memory_id"],
        ),
        sa.PrimaryKeyConstraint("memory_id", "chunk", "fingerprint"),
    )
    op.create_table(
        "tokens",
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("analyzer", sa.String(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["memory_id"],
            ["memories.memory_id"],
        ),
        sa.PrimaryKeyConstraint("memory_id"),
    )
    op.create_table(
        "vectors",
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("chunk", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["memory_id"],
            ["memories.memory_id"],
        ),
        sa.PrimaryKeyConstraint("memory_id", "chunk", "fingerprint"),
    )
    op.create_table(
        "versions",
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("from_seq", BIG, nullable=False),
        sa.Column("to_seq", BIG, nullable=True),
        sa.Column("at", BIG, nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["memory_id"],
            ["memories.memory_id"],
        ),
        sa.PrimaryKeyConstraint("memory_id", "version"),
    )
    op.create_index(
        "versions_current",
        "versions",
        ["memory_id"],
        unique=True,
        sqlite_where=sa.text("to_seq IS NULL"),
        postgresql_where=sa.text("to_seq IS NULL"),
    )
