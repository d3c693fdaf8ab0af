"""Trust: the audit chain and refusals, facts, conflicts."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    for column in (
        sa.Column("refused", sa.String(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("salt", sa.LargeBinary(), nullable=True),
        sa.Column("digest", sa.LargeBinary(), nullable=True),
    ):
        op.add_column("events", column)
    # Empty: the writer chains the events that are there when it starts.
    op.create_table(
        "chain",
        sa.Column("seq", BIG, autoincrement=False, nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["seq"], ["events.seq"]),
        sa.PrimaryKeyConstraint("seq"),
    )
    op.create_table(
        "fact_keys",
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("object_key", sa.String(), nullable=False),
        sa.Column("single_valued", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.memory_id"]),
        sa.PrimaryKeyConstraint("memory_id", "place"),
    )
    op.create_index("fact_keys_by_key", "fact_keys", ["product", "agent", "user", "key"], unique=False)
    op.create_table(
        "conflicts",
        sa.Column("conflict_id", sa.String(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("a_id", sa.String(), nullable=False),
        sa.Column("b_id", sa.String(), nullable=False),
        sa.Column("rule", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("seq", BIG, nullable=False),
        sa.Column("opened_at", BIG, nullable=False),
        sa.Column("resolved_at", BIG, nullable=True),
        sa.Column("adopted", sa.String(), nullable=True),
        sa.Column("resolution", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["a_id"], ["memories.memory_id"]),
        sa.ForeignKeyConstraint(["b_id"], ["memories.memory_id"]),
        sa.PrimaryKeyConstraint("conflict_id"),
    )
    op.create_index("conflicts_by_partition", "conflicts", ["product", "agent", "user", "seq"], unique=False)
    op.create_index("conflicts_by_first", "conflicts", ["a_id"], unique=False)
    op.create_index("conflicts_by_second", "conflicts", ["b_id"], unique=False)
