"""The tables, as typed ORM classes.

Versions and the change log are append-only: triggers refuse to alter or delete them. `attributes` and `specs` are what is looked up: one row each, pointing at the latest version.
Documents are kept as the JSON text that is served, so that key order survives and a snapshot is a join of
texts.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    DateTime,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    insert,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# PostgreSQL compares text by locale unless a collation is set; cursors need one order everywhere.
Ordered = Text().with_variant(Text(collation="C"), "postgresql")
Counter = BigInteger().with_variant(Integer(), "sqlite")


class UtcTime(TypeDecorator[datetime]):
    """An instant; SQLite, which has no time zones, holds it as UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class SnapshotRow(Base):
    """One committed edit: who, when and why. The newest row is the state of the catalogue.

    `nonce` is random, and goes into the hash of history, so that a database rebuilt or restored never repeats
    an ETag.
    """

    __tablename__ = "snapshots"

    version: Mapped[int] = mapped_column(Counter, primary_key=True, autoincrement=False)
    nonce: Mapped[str] = mapped_column(String(16))
    at: Mapped[datetime] = mapped_column(UtcTime)
    actor: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)

    def provenance(self) -> dict[str, Any]:
        """The fields of a `ProvenanceRecord`."""
        return {"snapshot_version": self.version, "at": self.at, "actor": self.actor, "reason": self.reason}


class HistoryRow(Base):
    """A version in the chain of history (`history.py`). `content` is a keyed hash of what was written with
    it, `rewritten` has those of older versions after a redaction, as JSON, and `mac` chains it to the version
    before."""

    __tablename__ = "history"

    version: Mapped[int] = mapped_column(
        ForeignKey("snapshots.version"), primary_key=True, autoincrement=False
    )
    content: Mapped[str] = mapped_column(String(64))
    rewritten: Mapped[str] = mapped_column(Text)
    mac: Mapped[str] = mapped_column(String(64))


class ChangeRow(Base):
    """One thing that an edit did to one subject, found by a hash: PostgreSQL sorts no long texts."""

    __tablename__ = "changes"
    __table_args__ = (Index(None, "subject", postgresql_using="hash"), Index(None, "action", "id"))

    id: Mapped[int] = mapped_column(Counter, primary_key=True)
    snapshot_version: Mapped[int] = mapped_column(ForeignKey("snapshots.version"), index=True)
    kind: Mapped[str] = mapped_column(String(40))
    subject: Mapped[str] = mapped_column(Ordered)
    subject_version: Mapped[int | None]
    action: Mapped[str] = mapped_column(String(20))


class AttributeVersionRow(Base):
    """One immutable version of an attribute; `document` is `AttributeMetadata` as JSON."""

    __tablename__ = "attribute_versions"

    path: Mapped[str] = mapped_column(Ordered, primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    snapshot_version: Mapped[int] = mapped_column(ForeignKey("snapshots.version"), index=True)
    document: Mapped[str] = mapped_column(Text)


class AttributeRow(Base):
    """The searchable fields of the latest version of an attribute."""

    __tablename__ = "attributes"
    __table_args__ = (
        ForeignKeyConstraint(["path", "version"], ["attribute_versions.path", "attribute_versions.version"]),
        Index(
            "ix_attributes_facets",
            *("status", "source", "owner", "tag", "encryption", "classification", "data_type"),
            *("proposed", "path"),
        ).ddl_if(dialect="sqlite"),  # PostgreSQL indexes no long texts
    )

    path: Mapped[str] = mapped_column(Ordered, primary_key=True)
    version: Mapped[int]
    proposed: Mapped[bool]
    """Whether a detector proposes a policy."""
    data_type: Mapped[str] = mapped_column(String(20))
    status: Mapped[str] = mapped_column(String(20))
    classification: Mapped[str] = mapped_column(String(20))
    encryption: Mapped[str] = mapped_column(String(20))
    source: Mapped[str | None] = mapped_column(Text)
    owner: Mapped[str | None] = mapped_column(Text)
    tag: Mapped[str | None] = mapped_column(Text)
    """All tags, each between two line feeds."""
    search_text: Mapped[str] = mapped_column(Text)
    last_seen: Mapped[date | None]
    """The last day on which a flow reported it; no part of history."""


class SpecVersionRow(Base):
    """One version of a mapping spec. Only `status` may change; `document` is `SpecDefinition` without it."""

    __tablename__ = "spec_versions"

    name: Mapped[str] = mapped_column(Ordered, primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    status: Mapped[str] = mapped_column(String(20))
    snapshot_version: Mapped[int] = mapped_column(ForeignKey("snapshots.version"), index=True)
    document: Mapped[str] = mapped_column(Text)


class SpecRow(Base):
    """A spec by name. The patterns are those of its active version: no two specs may share them."""

    __tablename__ = "specs"
    __table_args__ = (
        UniqueConstraint("active_source", "active_event_type"),
        ForeignKeyConstraint(["name", "latest_version"], ["spec_versions.name", "spec_versions.version"]),
    )

    name: Mapped[str] = mapped_column(Ordered, primary_key=True)
    latest_version: Mapped[int]
    active_version: Mapped[int | None]
    active_source: Mapped[str | None] = mapped_column(Text)
    active_event_type: Mapped[str | None] = mapped_column(Text)


class DocumentVersionRow(Base):
    """One version of a view or segment, or, without a name, of the identity rules, the discovery defaults or
    the classification levels; the latest holds. `document` is its model as JSON, of the identity rules as
    their author stated them."""

    __tablename__ = "document_versions"

    kind: Mapped[str] = mapped_column(String(40), primary_key=True)
    name: Mapped[str] = mapped_column(Ordered, primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    snapshot_version: Mapped[int] = mapped_column(ForeignKey("snapshots.version"), index=True)
    document: Mapped[str] = mapped_column(Text)


class ModelRow(Base):
    """A model of derived attributes. `document` has its inputs and outputs as JSON, `name` is empty without one. The digest
    stands for the bytes in the chain of history."""

    __tablename__ = "models"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    snapshot_version: Mapped[int] = mapped_column(ForeignKey("snapshots.version"), index=True)
    name: Mapped[str] = mapped_column(Text)
    document: Mapped[str] = mapped_column(Text)


class ModelContentRow(Base):
    """The bytes of a model, apart from what is listed."""

    __tablename__ = "model_contents"

    digest: Mapped[str] = mapped_column(ForeignKey("models.digest"), primary_key=True)
    content: Mapped[bytes] = mapped_column(LargeBinary)


class DiscoveryCountRow(Base):
    """The attributes that one source added to the catalogue on one day in UTC, and the number that was
    refused."""

    __tablename__ = "discovery_counts"

    day: Mapped[str] = mapped_column(String(10), primary_key=True)
    source: Mapped[str] = mapped_column(Ordered, primary_key=True)
    created: Mapped[int]
    waiting: Mapped[int]


class RequestRow(Base):
    """Requests that wait, or waited, for a second person (`requests.py`). `document` is to be saved, or
    describes the wish; `base` is the ETag of the document that it changes, `weakens` a JSON list of the
    attributes that it opens."""

    __tablename__ = "requests"

    id: Mapped[int] = mapped_column(Counter, primary_key=True)
    snapshot_version: Mapped[int] = mapped_column(ForeignKey("snapshots.version"), index=True)
    kind: Mapped[str] = mapped_column(String(40))
    subject: Mapped[str] = mapped_column(Ordered)
    base: Mapped[str] = mapped_column(String(40))
    document: Mapped[str] = mapped_column(Text)
    weakens: Mapped[str] = mapped_column(Text)


class RequestStepRow(Base):
    """A decision on a request, a question or an answer; the newest holds. A grant shows, until a moment, what
    needs at most these levels: one for each path that is asked for, in their order, as JSON."""

    __tablename__ = "request_steps"

    id: Mapped[int] = mapped_column(Counter, primary_key=True)
    request_id: Mapped[int] = mapped_column(ForeignKey("requests.id"), index=True)
    snapshot_version: Mapped[int] = mapped_column(ForeignKey("snapshots.version"), index=True)
    action: Mapped[str] = mapped_column(String(20))
    reason: Mapped[str] = mapped_column(Text)
    levels: Mapped[str] = mapped_column(Text)
    until: Mapped[datetime | None] = mapped_column(UtcTime)


class SpecUseRow(Base):
    """The use of a spec version by flows, for one source; `spec` is empty for events that no spec maps.
    `fields` are those of `SpecUse`, as JSON. No part of history."""

    __tablename__ = "spec_uses"

    spec: Mapped[str] = mapped_column(Ordered, primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    source: Mapped[str] = mapped_column(Ordered, primary_key=True)
    events: Mapped[int] = mapped_column(Counter, default=0)
    errors: Mapped[int] = mapped_column(Counter, default=0)
    since: Mapped[datetime] = mapped_column(UtcTime)
    last_used: Mapped[datetime] = mapped_column(UtcTime)
    fields: Mapped[str] = mapped_column(Text, default="{}")


class TokenRow(Base):
    """A bearer token; only its SHA-256 is kept. `owner` is the person who made it for themselves: its name is
    `OWNER/NAME`."""

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(Counter, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    role: Mapped[str] = mapped_column(String(20))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    created: Mapped[datetime] = mapped_column(UtcTime)
    expires: Mapped[datetime | None] = mapped_column(UtcTime)
    revoked: Mapped[datetime | None] = mapped_column(UtcTime)
    clearance: Mapped[int] = mapped_column(default=0)
    may_reveal: Mapped[bool] = mapped_column(default=False)
    scopes: Mapped[str] = mapped_column(Text, default="")
    """Names, sorted, separated by blanks."""
    owner: Mapped[str] = mapped_column(Text, default="")


class UserRow(Base):
    """A person. `password` is an argon2id hash, empty without one; `identity` is issuer and subject of who
    signs in by OpenID Connect, and `bound` what an admin lets them do at most, as JSON. `tries` were wrong
    since the last right one, the last of them at `tried`. Those of `made_by` made the account or reset its
    password over HTTP, one a line; `confirmed_by` confirmed since then that it is of another person."""

    __tablename__ = "users"

    id: Mapped[int] = mapped_column(Counter, primary_key=True)
    name: Mapped[str] = mapped_column(Ordered, unique=True)
    role: Mapped[str] = mapped_column(String(20))
    clearance: Mapped[int] = mapped_column(default=0)
    may_reveal: Mapped[bool] = mapped_column(default=False)
    scopes: Mapped[str] = mapped_column(Text, default="")
    password: Mapped[str] = mapped_column(Text, default="")
    identity: Mapped[str | None] = mapped_column(Text, unique=True)
    bound: Mapped[str] = mapped_column(Text, default="")
    made_by: Mapped[str] = mapped_column(Text, default="")
    confirmed_by: Mapped[str] = mapped_column(Text, default="", server_default="")
    created: Mapped[datetime] = mapped_column(UtcTime)
    seen: Mapped[datetime | None] = mapped_column(UtcTime)
    disabled: Mapped[datetime | None] = mapped_column(UtcTime)
    tries: Mapped[int] = mapped_column(default=0)
    tried: Mapped[datetime | None] = mapped_column(UtcTime)


class SessionRow(Base):
    """Somebody who signed in, or a link that signs in once; ids are kept as digests. `caller_digest` is that
    of the key by which the pages ask the profile service."""

    __tablename__ = "sessions"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    caller_digest: Mapped[str] = mapped_column(String(64), unique=True)
    token_id: Mapped[int | None] = mapped_column(ForeignKey("tokens.id"))
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"), index=True)
    began: Mapped[datetime] = mapped_column(UtcTime)
    used: Mapped[datetime] = mapped_column(UtcTime)
    is_link: Mapped[bool] = mapped_column(default=False)


_APPEND_ONLY = {
    "snapshots": "",
    "history": "",
    "changes": "",
    "attribute_versions": "",
    "document_versions": "",
    "requests": "",
    "request_steps": "",
    "models": "",
    "model_contents": "",
    "spec_versions": " OF name, version, snapshot_version, document",
}
"""Tables whose rows are never deleted, with the columns that never change (all, if none are named)."""

_REDACTABLE = {
    "changes": ("subject", "id, snapshot_version, kind, subject_version, action"),
    "attribute_versions": ("path", "version, snapshot_version"),
    "requests": ("subject", "id, snapshot_version, kind, base"),
}
"""Tables of which a redaction replaces a name, the column of that name, and those that stay as they are."""


def create_tables(connection: Connection) -> None:
    """Make the tables of the newest format, with their triggers and the first row of the history."""
    Base.metadata.create_all(connection)
    first = {"version": 0, "nonce": secrets.token_hex(8), "at": datetime.now(UTC), "actor": "", "reason": ""}
    connection.execute(insert(SnapshotRow).values(first))
    start = {"version": 0, "content": "", "rewritten": "{}", "mac": secrets.token_hex(32)}
    connection.execute(insert(HistoryRow).values(start))
    if connection.dialect.name == "postgresql":
        connection.execute(
            text(
                "CREATE FUNCTION idgraph_append_only() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
            )
        )
    refuse_rewriting(connection, _APPEND_ONLY)


def refuse_rewriting(connection: Connection, tables: Collection[str]) -> None:
    """Add the triggers of some of the append-only tables."""
    postgresql = connection.dialect.name == "postgresql"
    for table in tables:
        for event, when in (("update", f"UPDATE{_APPEND_ONLY[table]}"), ("delete", "DELETE")):
            head = f"CREATE TRIGGER {table}_{event} BEFORE {when} ON {table} FOR EACH ROW"
            if event == "update" and table in _REDACTABLE:
                name, kept = _REDACTABLE[table]
                # Also of NULL: of a change to no version of its subject.
                same = "IS NOT DISTINCT FROM" if postgresql else "IS"
                held = [f"NEW.{each} {same} OLD.{each}" for each in kept.split(", ")]
                head += f" WHEN (NOT (NEW.{name} LIKE 'redacted.%' AND {' AND '.join(held)}))"
            refusal = f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            connection.execute(
                text(f"{head} {'EXECUTE FUNCTION idgraph_append_only()' if postgresql else refusal}")
            )
