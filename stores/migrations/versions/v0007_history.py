"""History: positions in sessions that were left."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "vacated",
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("session_key", sa.String(), nullable=False),
        sa.Column("session_position", BIG, nullable=False),
        sa.Column("memory_id", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.memory_id"]),
        sa.PrimaryKeyConstraint("product", "agent", "user", "session_key", "session_position"),
    )
    op.create_index("vacated_by_memory", "vacated", ["memory_id"], unique=False)
