"""Alembic's entry: runs the migrations on the connection that `stores.migration` hands over."""

from alembic import context

from stores import history_schema, observations_schema, raw_schema  # noqa: F401 - their tables belong too
from stores.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
