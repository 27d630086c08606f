"""Brings the tables up to date with the migrations that are packaged with the code."""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

_alembic_is_global = threading.Lock()


def upgrade_schema(connection: Connection) -> None:
    """Run the missing migrations in the transaction that the connection is in."""
    config = Config()
    config.set_main_option("script_location", _escaped(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    with _alembic_is_global:
        command.upgrade(config, "head")


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%%")
