"""Observations: topics, access counters, suppressions."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "topics",
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("project", sa.String(), nullable=False),
        sa.Column("topic_key", sa.String(), nullable=False),
        sa.Column("memory_type", sa.String(), nullable=True),
        sa.Column("covered_from", BIG, nullable=True),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.memory_id"]),
        sa.PrimaryKeyConstraint("memory_id"),
    )
    columns = ["product", "agent", "user", "project", "topic_key", "covered_from"]
    op.create_index("topics_by_key", "topics", columns, unique=False)
    op.create_table(
        "accesses",
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("last_accessed", BIG, nullable=False),
        sa.Column("access_count", BIG, nullable=False),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.memory_id"]),
        sa.PrimaryKeyConstraint("memory_id"),
    )
    op.create_table(
        "suppressions",
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("sort", sa.String(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("at", BIG, nullable=False),
        sa.PrimaryKeyConstraint("product", "agent", "user", "sort", "value"),
    )
