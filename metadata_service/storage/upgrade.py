"""The format of a metadata database: which it has, whether this idgraph reads it, and the migrations to the newest.

Alembic's revisions are the numbers of formats: "0001" is 1.
"""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, inspect

from idgraph.model.errors import ConfigError
from idgraph.model.formats import require_format

_OLDER = (
    "keep using the idgraph that wrote it, or note its specs, attributes and rules with that one (`idgraph specs show`, "
    "`attributes show`, `rules show`), move the database away, start again and apply them"
)
_alembic_is_global = threading.Lock()


def upgrade_schema(connection: Connection) -> None:
    """Run the missing migrations in the transaction that the connection is in. Raises ConfigError for a format that this idgraph
    does not read."""
    config = Config()
    # Alembic reads it as a format string.
    folder = str(Path(__file__).parent / "migrations").replace("%", "%%")
    config.set_main_option("script_location", folder)
    config.attributes["connection"] = connection
    with _alembic_is_global:
        scripts = ScriptDirectory.from_config(config)
        require_known_format(connection, int(scripts.get_current_head() or 0), _first_tables(scripts))
        command.upgrade(config, "head")


def format_of(connection: Connection) -> int | None:
    """None for a database without tables. Raises ConfigError for one of something else."""
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and not found.isdecimal():
        raise ConfigError(f"{place_of(connection)}: holds something else; name a database of its own")
    return None if found is None else int(found)


def place_of(connection: Connection) -> str:
    """Which database this is, for messages."""
    return f"metadata service: {connection.engine.url.render_as_string(hide_password=True)}"


def require_known_format(connection: Connection, newest: int, first: MetaData | None = None) -> None:
    """Raise ConfigError for a format that this idgraph does not read: a later one than `newest`, or, with the tables of the
    `first`, one of before it."""
    found = format_of(connection)
    if found is None:
        return
    if first is not None and found == 1 and not _has_all(connection, first):
        found = 0
    require_format(place_of(connection), found, newest, ConfigError, _OLDER)


def _first_tables(scripts: ScriptDirectory) -> MetaData:
    tables: MetaData = scripts.get_revision("0001").module.TABLES
    return tables


def _has_all(connection: Connection, tables: MetaData) -> bool:
    found = {
        table: {column["name"] for column in columns}
        for (_, table), columns in inspect(connection).get_multi_columns().items()
    }
    return all(found.get(each.name, set()).issuperset(each.columns.keys()) for each in tables.tables.values())
