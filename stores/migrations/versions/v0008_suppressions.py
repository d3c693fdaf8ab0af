"""Suppressions hide up to the authority of who made them. Those that are here hid everything and still do."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "suppressions", sa.Column("authority", sa.String(), nullable=False, server_default="policy")
    )
