"""The format of a metadata database: which it has, whether this idgraph reads it, and the migrations to the newest.

Alembic's revisions are the numbers of formats: "0001" is 1. Alembic itself is loaded only where there is something to migrate.
"""

from __future__ import annotations

import threading
from pathlib import Path

from sqlalchemy import Connection, MetaData, inspect, text

from idgraph.model.errors import ConfigError
from idgraph.model.formats import require_format
from metadata_service.storage.tables import Base

_MIGRATIONS = Path(__file__).parent / "migrations"
NEWEST = max(int(file.name[1:5]) for file in (_MIGRATIONS / "versions").glob("v*.py"))
_OLDER = (
    "keep using the idgraph that wrote it, or note its specs, attributes and rules with that one (`idgraph specs show`, "
    "`attributes show`, `rules show`), move the database away, start again and apply them"
)
_alembic_is_global = threading.Lock()


def upgrade_schema(connection: Connection, key: bytes) -> set[int]:
    """Run the missing migrations in the transaction that the connection is in; gives the versions whose rows they moved, which
    the history (of this key) gets anew. Raises ConfigError for a format that this idgraph does not read."""
    found = format_of(connection)
    if found == NEWEST:
        _require_whole(connection, Base.metadata)
        return set()
    require_format_of(connection)

    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    # Alembic reads it as a format string.
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    rewritten: set[int] = set()
    config.attributes.update(connection=connection, key=key, rewritten=rewritten)
    with _alembic_is_global:
        if found == 1:
            _require_whole(connection, ScriptDirectory.from_config(config).get_revision("0001").module.TABLES)
        command.upgrade(config, "head")
    return rewritten


def require_format_of(connection: Connection) -> None:
    """Raise ConfigError unless this idgraph reads or upgrades the format."""
    _require(connection, format_of(connection))


def format_of(connection: Connection) -> int | None:
    """None for a database without tables of ours. Raises ConfigError for one of something else."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.scalar(text("SELECT version_num FROM alembic_version"))
    if found is not None and not found.isdecimal():
        raise ConfigError(f"{_place(connection)}: holds something else; name a database of its own")
    return None if found is None else int(found)


def _require_whole(connection: Connection, tables: MetaData) -> None:
    """A database of before the first release has other tables under the same number."""
    found = {
        table: {column["name"] for column in columns}
        for (_, table), columns in inspect(connection).get_multi_columns().items()
    }
    if not all(
        found.get(name, set()).issuperset(each.columns.keys()) for name, each in tables.tables.items()
    ):
        _require(connection, 0)


def _require(connection: Connection, found: int | None) -> None:
    if found is not None:
        require_format(_place(connection), found, NEWEST, ConfigError, _OLDER)


def _place(connection: Connection) -> str:
    return f"metadata service: {connection.engine.url.render_as_string(hide_password=True)}"
