"""The database: how it is opened, brought to the newest format, read and written.

Writers are serialised, by `BEGIN IMMEDIATE` on SQLite and by an advisory lock on PostgreSQL, so any number of
service processes can share one database and snapshot versions commit in their order.

Alembic's revisions are the numbers of formats: "0001" is 1. Alembic itself is loaded only where there is
something to make or to migrate.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, InterfaceError, NoSuchModuleError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from idgraph.model.backoff import Retries, steady
from idgraph.model.database_errors import BUSY, DAMAGED, cause_of, code_of
from idgraph.model.errors import ConfigError, IdgraphError, StoreError
from idgraph.model.formats import require_format
from idgraph.repeating import Outage
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import Base, HistoryRow, create_tables
from metadata_service.storage.tries import Tries

BUSY_MILLISECONDS = 10_000
WRITER_LOCK = 0x1D64A9  # any constant of ours: the key of PostgreSQL's advisory lock


class Revision(NamedTuple):
    """The state of the catalogue. Its text form is unique over all databases."""

    version: int
    head: str
    """The hash of all history up to this version."""

    def __str__(self) -> str:
        return f"{self.version}-{self.head}"

    @property
    def etag(self) -> str:
        """The ETag of the snapshot at this revision."""
        return f'"{self}"'

    @classmethod
    def of_etag(cls, etag: str) -> Revision | None:
        """The revision whose ETag this may be; None for a text that cannot be one."""
        version, _, head = etag.removeprefix('"').removesuffix('"').partition("-")
        return (
            cls(int(version), head)
            if version.isascii() and version.isdecimal() and len(version) < 19
            else None
        )


class Database:
    """Sessions on one database. Safe to share between threads."""

    def __init__(self, engine: Engine, key: bytes) -> None:
        self.engine = engine
        self._key = key
        self.tries = Tries()
        self.listeners: list[Callable[[], None]] = []
        """Called, in the writing thread, after each commit that made a new version."""
        self._writer = engine.execution_options(idgraph_writer=True)
        if engine.dialect.name == "postgresql":
            engine = engine.execution_options(isolation_level="REPEATABLE READ")
        self._reader = engine
        self._reading, self._writing = Outage("the database"), Outage("writing to the database")

    @contextmanager
    def read(self) -> Iterator[Session]:
        """One consistent view of the database."""
        with (
            _watched(self._reading, "reads answer 503"),
            Session(self._reader, expire_on_commit=False) as session,
        ):
            yield session

    @contextmanager
    def write(self, actor: str = "", reason: str = "") -> Iterator[Edit]:
        """The only writer until the block ends; all of it is committed as one version, or nothing."""
        with self._turn() as session:
            edit = Edit(session, actor, reason, self._key)
            yield edit
            edit.finish()
        if edit.changed:
            for listener in self.listeners:
                listener()

    @contextmanager
    def _turn(self) -> Iterator[Session]:
        with (
            _watched(self._writing, "changes answer 503, nothing of them is kept"),
            Session(self._writer, expire_on_commit=False, autoflush=False) as session,
            session.begin(),
        ):
            _await_turn(session, BUSY_MILLISECONDS)
            yield session

    def revision(self) -> Revision:
        """The newest revision; cheap."""
        with _watched(self._reading, "reads answer 503"), self._reader.connect() as connection:
            return revision_in(connection)

    def require_ready(self) -> None:
        """Raise SQLAlchemyError while the database cannot be read, or written since a write failed;
        ConfigError when a newer idgraph has changed its tables."""
        with self.read() as session:
            revision_in(session)
            require_format_of(session.connection())
        if self._writing.is_on:
            with self._turn() as session:
                session.execute(text("UPDATE alembic_version SET version_num = version_num"))

    def forget_replaced(self) -> None:
        """Leave nothing of replaced rows in the log of an SQLite file, once its readers are done. PostgreSQL
        does by vacuum."""
        if self.engine.dialect.name == "sqlite":
            with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self.tries.close()
        self.engine.dispose()


@contextmanager
def _watched(outage: Outage, meanwhile: str) -> Iterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError) as error:
        outage.show_report(f"{outage.name}: {cause_of(error)}", meanwhile)
        raise
    else:
        outage.is_over()


_REVISIONS = select(HistoryRow.version, HistoryRow.mac)
_NEWEST = _REVISIONS.order_by(HistoryRow.version.desc()).limit(1)


def revision_in(session: Session | Connection) -> Revision:
    """The revision that this session sees."""
    return Revision(*session.execute(_NEWEST).one())


def revision_from(session: Session, version: int) -> Revision:
    """The revision of this version, or of the first one after it."""
    first = _REVISIONS.where(HistoryRow.version >= version).order_by(HistoryRow.version).limit(1)
    return Revision(*session.execute(first).one())


def has_revision(session: Session, revision: Revision) -> bool:
    """Whether this revision is part of the history that this session sees."""
    head = session.scalar(select(HistoryRow.mac).where(HistoryRow.version == revision.version))
    return head == revision.head


def _await_turn(session: Session, most: int) -> None:
    """Be the only writer on PostgreSQL, after at most so many milliseconds; 0: as long as it takes. Raises
    OperationalError."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"SET LOCAL lock_timeout={most}; SELECT pg_advisory_xact_lock({WRITER_LOCK})"))


def open_database(url: str, key: bytes = b"") -> Database:
    """Open a database, creating its tables or bringing them up to date first. `key` is that of its history.

    Raises ConfigError for a URL that cannot be used, and for a format that this idgraph does not read;
    StoreError, with the cause, when the database is away or its disk is full.
    """
    engine = _engine(url)
    database = Database(engine, key)
    try:
        with Session(database._writer) as session, session.begin():
            _await_turn(session, 0)
            if moved := upgrade_schema(session.connection(), key):
                edit = Edit(session, "", f"upgraded to format {NEWEST}", key)
                edit.rewrite(moved)
                edit.finish()
    except SQLAlchemyError as error:
        database.close()
        raise unusable(engine.url, error) from None
    except BaseException:
        database.close()
        raise
    return database


def stored_format(url: str) -> int | None:
    """The format of a database, which is not changed; None for one without tables of ours. Raises ConfigError and StoreError as
    `open_database`."""
    engine = _engine(url)
    try:
        with engine.connect() as connection:
            return format_of(connection)
    except SQLAlchemyError as error:
        raise unusable(engine.url, error) from None
    finally:
        engine.dispose()


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed)
        if parsed.get_backend_name() == "postgresql":
            return create_engine(parsed, pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError) as error:
        raise ConfigError("metadata service: the database URL cannot be read") from error
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"metadata service: the database needs the Python package {error.name}; install idgraph[postgresql]"
        ) from error
    raise ConfigError("metadata service: the database URL must be sqlite:///FILE or postgresql+psycopg://...")


@contextmanager
def opened_database(url: str, key: bytes = b"") -> Iterator[Database]:
    """The same for as long as the block runs, whose failures of the database are raised as its own."""
    database = open_database(url, key)
    try:
        yield database
    except SQLAlchemyError as error:
        raise unusable(database.engine.url, error) from None
    finally:
        database.close()


def _sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:" or "mode" in url.query:
        raise ConfigError("metadata service: SQLite needs a file, for instance sqlite:///metadata.db")
    file = Path(url.database)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)  # it holds token digests
    except OSError as error:
        raise ConfigError(f"metadata service: {file}: {error.strerror}") from None
    _use_write_ahead_log(url, file)
    # As many as a server has threads: to open one costs more than to ask it.
    engine = create_engine(
        url, connect_args={"timeout": BUSY_MILLISECONDS / 1000}, pool_size=40, max_overflow=-1
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _use_write_ahead_log(url: URL, file: Path) -> None:
    # The mode stays in the file. SQLite does not always wait for its lock here, so we do.
    retries = Retries(steady(0.05), BUSY_MILLISECONDS / 1000)
    while True:
        try:
            with closing(sqlite3.connect(file, timeout=BUSY_MILLISECONDS / 1000)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                return
        except sqlite3.Error as error:
            if code_of(error) not in BUSY or not retries.pause():
                raise unusable(url, error) from None


def unusable(url: URL, error: Exception) -> IdgraphError:
    """The error to raise instead, in one line: the database's place and the reason why it cannot be used."""
    kind = ConfigError if code_of(getattr(error, "orig", None) or error) in DAMAGED else StoreError
    return kind(f"metadata service: {url.render_as_string(hide_password=True)}: {cause_of(error)}")


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # Transactions are begun by _begin_sqlite, not by the driver, which would begin them too late.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON").close()
    # Names and descriptions are people's words: what somebody deletes shall be gone.
    connection.execute("PRAGMA secure_delete=ON").close()


def _begin_sqlite(connection: Connection) -> None:
    writer = connection.get_execution_options().get("idgraph_writer", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN")


_MIGRATIONS = Path(__file__).parent / "migrations"
NEWEST = max(int(file.name[1:5]) for file in (_MIGRATIONS / "versions").glob("v*.py"))
_OLDER = (
    "keep using the idgraph that wrote it, or note its specs, attributes and rules with that one (`idgraph specs show`, "
    "`attributes show`, `rules show`), move the database away, start again and apply them"
)
_SINCE_1 = ("requests", "request_steps", "models", "model_contents", "users.confirmed_by")
"""Tables and columns that format 1 does not have."""
_alembic_is_global = threading.Lock()


def upgrade_schema(connection: Connection, key: bytes) -> set[int]:
    """Make the tables, or run the missing migrations, in the transaction that the connection is in; gives the versions
    whose rows they moved, which the history (of this key) gets anew. Raises ConfigError for a format that this idgraph
    does not read."""
    found = format_of(connection)
    if found == NEWEST:
        _require_whole(connection)
        return set()
    require_format_of(connection)

    from alembic import command
    from alembic.config import Config

    config = Config()
    # Alembic reads it as a format string.
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    rewritten: set[int] = set()
    config.attributes.update(connection=connection, key=key, rewritten=rewritten)
    with _alembic_is_global:
        if found is None:
            create_tables(connection)
            command.stamp(config, "head")
        else:
            if found == 1:
                _require_whole(connection, without=_SINCE_1)
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


def _require_whole(connection: Connection, without: Collection[str] = ()) -> None:
    """A database of before the first release has other tables under the same number."""
    found = {
        table: {column["name"] for column in columns}
        for (_, table), columns in inspect(connection).get_multi_columns().items()
    }
    expected = (column for table in Base.metadata.sorted_tables for column in table.columns)
    if any(
        column.name not in found.get(column.table.name, ())
        for column in expected
        if column.table.name not in without and str(column) not in without
    ):
        _require(connection, 0)


def _require(connection: Connection, found: int | None) -> None:
    if found is not None:
        require_format(_place(connection), found, NEWEST, ConfigError, _OLDER)


def _place(connection: Connection) -> str:
    return f"metadata service: {connection.engine.url.render_as_string(hide_password=True)}"
