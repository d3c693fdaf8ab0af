"""Events are found by their memory (history) and by their time (`as_of`)."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("events_by_memory", "events", ["memory_id"], unique=False)
    op.create_index("events_by_time", "events", ["at"], unique=False)
