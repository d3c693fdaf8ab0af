"""API keys: who may call, with which rights, up to which authority."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "keys",
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("product", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=True),
        sa.Column("rights", sa.JSON(), nullable=False),
        sa.Column("authority", sa.String(), nullable=False),
        sa.Column("acts_for_user", sa.Boolean(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", BIG, nullable=False),
        sa.Column("expires_at", BIG, nullable=True),
        sa.Column("revoked_at", BIG, nullable=True),
        sa.PrimaryKeyConstraint("key_id"),
    )
