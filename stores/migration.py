"""Brings a ledger file to the schema of this code, through Alembic's numbered migrations."""

from pathlib import Path

from sqlalchemy import Engine


def upgrade(engine: Engine) -> None:
    """Run the migrations that the file has not seen. Each runs in a transaction of its own."""
    from alembic import command  # here: a third of a second that a command without a ledger can save
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
