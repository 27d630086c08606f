"""An empty metadata database of format 1: its tables, and the triggers that make history append-only. They never change."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Date,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

APPEND_ONLY = {
    "snapshots": "",
    "history": "",
    "changes": "",
    "attribute_versions": "",
    "document_versions": "",
    "policy_changes": "",
    "policy_decisions": "",
    "grant_requests": "",
    "grant_answers": "",
    "spec_versions": " OF name, version, snapshot_version, document",
}
"""Tables whose rows are never deleted, with the columns that never change (all, if none are named)."""

REDACTABLE = {
    "changes": ("subject", "id, snapshot_version, kind, subject_version, action"),
    "attribute_versions": ("path", "version, snapshot_version"),
    "policy_changes": ("subject", "id, snapshot_version, kind, base"),
    "grant_requests": ("subject", "id, snapshot_version, kind, view_version, purpose, until"),
}
"""Tables of which a redaction replaces a name, the column of that name, and those that stay as they are."""


ORDERED = Text().with_variant(Text(collation="C"), "postgresql")
COUNTER = BigInteger().with_variant(Integer(), "sqlite")
TIME = DateTime(timezone=True)
TABLES = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
Table(
    "discovery_counts",
    TABLES,
    Column("day", String(10), primary_key=True),
    Column("source", ORDERED, primary_key=True),
    Column("created", Integer, nullable=False),
    Column("waiting", Integer, nullable=False),
)
Table(
    "snapshots",
    TABLES,
    Column("version", COUNTER, primary_key=True, autoincrement=False),
    Column("nonce", String(16), nullable=False),
    Column("at", TIME, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
)
Table(
    "spec_uses",
    TABLES,
    Column("spec", ORDERED, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("source", ORDERED, primary_key=True),
    Column("events", COUNTER, nullable=False),
    Column("errors", COUNTER, nullable=False),
    Column("since", TIME, nullable=False),
    Column("last_used", TIME, nullable=False),
    Column("fields", Text, nullable=False),
)
Table(
    "tokens",
    TABLES,
    Column("id", COUNTER, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", String(20), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("created", TIME, nullable=False),
    Column("expires", TIME),
    Column("revoked", TIME),
    Column("clearance", Integer, nullable=False),
    Column("may_reveal", Boolean, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("owner", Text, nullable=False),
)
Table(
    "users",
    TABLES,
    Column("id", COUNTER, primary_key=True),
    Column("name", ORDERED, nullable=False, unique=True),
    Column("role", String(20), nullable=False),
    Column("clearance", Integer, nullable=False),
    Column("may_reveal", Boolean, nullable=False),
    Column("scopes", Text, nullable=False),
    Column("password", Text, nullable=False),
    Column("identity", Text, unique=True),
    Column("bound", Text, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("created", TIME, nullable=False),
    Column("seen", TIME),
    Column("disabled", TIME),
    Column("tries", Integer, nullable=False),
    Column("tried", TIME),
)
Table(
    "attribute_versions",
    TABLES,
    Column("path", ORDERED, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("snapshot_version", COUNTER, ForeignKey("snapshots.version"), nullable=False, index=True),
    Column("document", Text, nullable=False),
)
Table(
    "changes",
    TABLES,
    Column("id", COUNTER, primary_key=True),
    Column("snapshot_version", COUNTER, ForeignKey("snapshots.version"), nullable=False, index=True),
    Column("kind", String(40), nullable=False),
    Column("subject", ORDERED, nullable=False),
    Column("subject_version", Integer),
    Column("action", String(20), nullable=False),
    Index("ix_changes_action_id", "action", "id"),
    Index("ix_changes_subject", "subject", postgresql_using="hash"),
)
Table(
    "document_versions",
    TABLES,
    Column("kind", String(40), primary_key=True),
    Column("name", ORDERED, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("snapshot_version", COUNTER, ForeignKey("snapshots.version"), nullable=False, index=True),
    Column("document", Text, nullable=False),
)
Table(
    "grant_requests",
    TABLES,
    Column("id", COUNTER, primary_key=True),
    Column("snapshot_version", COUNTER, ForeignKey("snapshots.version"), nullable=False, index=True),
    Column("kind", String(40), nullable=False),
    Column("subject", ORDERED, nullable=False),
    Column("view_version", Integer),
    Column("purpose", Text, nullable=False),
    Column("until", TIME, nullable=False),
)
Table(
    "history",
    TABLES,
    Column("version", COUNTER, ForeignKey("snapshots.version"), primary_key=True, autoincrement=False),
    Column("content", String(64), nullable=False),
    Column("rewritten", Text, nullable=False),
    Column("mac", String(64), nullable=False),
)
Table(
    "policy_changes",
    TABLES,
    Column("id", COUNTER, primary_key=True),
    Column("snapshot_version", COUNTER, ForeignKey("snapshots.version"), nullable=False, index=True),
    Column("kind", String(40), nullable=False),
    Column("subject", ORDERED, nullable=False),
    Column("base", String(40), nullable=False),
    Column("document", Text, nullable=False),
    Column("weakens", Text, nullable=False),
)
Table(
    "sessions",
    TABLES,
    Column("digest", String(64), primary_key=True),
    Column("caller_digest", String(64), nullable=False, unique=True),
    Column("token_id", COUNTER, ForeignKey("tokens.id")),
    Column("user_id", COUNTER, ForeignKey("users.id"), index=True),
    Column("began", TIME, nullable=False),
    Column("used", TIME, nullable=False),
    Column("is_link", Boolean, nullable=False),
)
Table(
    "spec_versions",
    TABLES,
    Column("name", ORDERED, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("status", String(20), nullable=False),
    Column("snapshot_version", COUNTER, ForeignKey("snapshots.version"), nullable=False, index=True),
    Column("document", Text, nullable=False),
)
Table(
    "attributes",
    TABLES,
    Column("path", ORDERED, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("proposed", Boolean, nullable=False),
    Column("data_type", String(20), nullable=False),
    Column("status", String(20), nullable=False),
    Column("classification", String(20), nullable=False),
    Column("encryption", String(20), nullable=False),
    Column("source", Text),
    Column("owner", Text),
    Column("tag", Text),
    Column("search_text", Text, nullable=False),
    Column("last_seen", Date),
    ForeignKeyConstraint(["path", "version"], ["attribute_versions.path", "attribute_versions.version"]),
    Index(
        "ix_attributes_facets",
        "status",
        "source",
        "owner",
        "tag",
        "encryption",
        "classification",
        "data_type",
        "proposed",
        "path",
    ).ddl_if(dialect="sqlite"),
)
Table(
    "grant_answers",
    TABLES,
    Column("id", COUNTER, primary_key=True),
    Column("request_id", COUNTER, ForeignKey("grant_requests.id"), nullable=False, index=True),
    Column("snapshot_version", COUNTER, ForeignKey("snapshots.version"), nullable=False, index=True),
    Column("action", String(20), nullable=False),
    Column("reason", Text, nullable=False),
    Column("levels", Text, nullable=False),
    Column("until", TIME),
)
Table(
    "policy_decisions",
    TABLES,
    Column("change_id", COUNTER, ForeignKey("policy_changes.id"), primary_key=True, autoincrement=False),
    Column("snapshot_version", COUNTER, ForeignKey("snapshots.version"), nullable=False, index=True),
    Column("decision", String(20), nullable=False),
)
Table(
    "specs",
    TABLES,
    Column("name", ORDERED, primary_key=True),
    Column("latest_version", Integer, nullable=False),
    Column("active_version", Integer),
    Column("active_source", Text),
    Column("active_event_type", Text),
    UniqueConstraint("active_source", "active_event_type"),
    ForeignKeyConstraint(["name", "latest_version"], ["spec_versions.name", "spec_versions.version"]),
)


def create(connection: Connection) -> None:
    """Make it, as the idgraph of this format did."""
    postgresql = connection.dialect.name == "postgresql"
    TABLES.create_all(connection)
    first = {"version": 0, "nonce": secrets.token_hex(8), "at": datetime.now(UTC), "actor": "", "reason": ""}
    connection.execute(TABLES.tables["snapshots"].insert().values(first))
    start = {"version": 0, "content": "", "rewritten": "{}", "mac": secrets.token_hex(32)}
    connection.execute(TABLES.tables["history"].insert().values(start))
    connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"))
    connection.execute(text("INSERT INTO alembic_version VALUES ('0001')"))
    if postgresql:
        function = "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
        connection.execute(
            text(f"CREATE FUNCTION idgraph_append_only() RETURNS trigger LANGUAGE plpgsql AS {function}")
        )
    for table, columns in APPEND_ONLY.items():
        for event, when in (("update", f"UPDATE{columns}"), ("delete", "DELETE")):
            head = f"CREATE TRIGGER {table}_{event} BEFORE {when} ON {table} FOR EACH ROW"
            if event == "update" and table in REDACTABLE:
                name, kept = REDACTABLE[table]
                same = "IS NOT DISTINCT FROM" if postgresql else "IS"
                held = [f"NEW.{each} {same} OLD.{each}" for each in kept.split(", ")]
                head += f" WHEN (NOT (NEW.{name} LIKE 'redacted.%' AND {' AND '.join(held)}))"
            refusal = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            connection.execute(
                text(f"{head} {'EXECUTE FUNCTION idgraph_append_only()' if postgresql else refusal}")
            )
