"""The first tables, and the triggers that make history append-only."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TIME = sa.DateTime(timezone=True)

APPEND_ONLY = {
    "snapshots": "",
    "changes": "",
    "attribute_versions": "",
    "identity_rules": "",
    "discovery_defaults": "",
    "classification_levels": "",
    "policy_changes": "",
    "policy_decisions": "",
    "spec_versions": " OF name, version, snapshot_version, document",
}
"""Tables whose rows are never deleted, with the columns that never change (all, if none are named)."""


def upgrade() -> None:
    snapshots = op.create_table(
        "snapshots",
        sa.Column("version", COUNTER, autoincrement=False, nullable=False),
        sa.Column("nonce", sa.String(16), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("version", name="pk_snapshots"),
    )
    op.create_table(
        "changes",
        sa.Column("id", COUNTER, autoincrement=True, nullable=False),
        _snapshot("changes"),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("subject", ORDERED, nullable=False),
        sa.Column("subject_version", sa.Integer),
        sa.Column("action", sa.String(20), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_changes"),
    )
    op.create_index("ix_changes_snapshot_version", "changes", ["snapshot_version"])
    op.create_index("ix_changes_kind_subject", "changes", ["kind", "subject"])
    _attributes()
    _specs()
    op.create_table(
        "identity_rules",
        sa.Column("version", sa.Integer, autoincrement=False, nullable=False),
        _snapshot("identity_rules"),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("version", name="pk_identity_rules"),
    )
    op.create_index("ix_identity_rules_snapshot_version", "identity_rules", ["snapshot_version"])
    for table in ("discovery_defaults", "classification_levels"):
        op.create_table(
            table,
            _snapshot(table),
            sa.Column("document", sa.Text, nullable=False),
            sa.PrimaryKeyConstraint("snapshot_version", name=f"pk_{table}"),
        )
    _policy_changes()
    op.create_table(
        "tokens",
        sa.Column("id", COUNTER, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("created", TIME, nullable=False),
        sa.Column("expires", TIME),
        sa.Column("revoked", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("digest", name="uq_tokens_digest"),
    )
    first = {"version": 0, "nonce": secrets.token_hex(8), "at": datetime.now(UTC), "actor": "", "reason": ""}
    op.bulk_insert(snapshots, [first])
    _refuse_rewriting()


def _snapshot(table: str) -> sa.Column[int]:
    return sa.Column(
        "snapshot_version",
        COUNTER,
        sa.ForeignKey("snapshots.version", name=f"fk_{table}_snapshot_version"),
        autoincrement=False,
        nullable=False,
    )


def _attributes() -> None:
    op.create_table(
        "attribute_versions",
        sa.Column("path", ORDERED, nullable=False),
        sa.Column("version", sa.Integer, autoincrement=False, nullable=False),
        _snapshot("attribute_versions"),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("path", "version", name="pk_attribute_versions"),
    )
    op.create_index("ix_attribute_versions_snapshot_version", "attribute_versions", ["snapshot_version"])
    op.create_table(
        "attributes",
        sa.Column("path", ORDERED, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("data_type", sa.String(20), nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        sa.Column("classification", sa.String(20), nullable=False),
        sa.Column("encryption", sa.String(20), nullable=False),
        sa.Column("source", sa.Text),
        sa.Column("search_text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("path", name="pk_attributes"),
        sa.ForeignKeyConstraint(
            ["path", "version"],
            ["attribute_versions.path", "attribute_versions.version"],
            name="fk_attributes_path_version",
        ),
    )


def _specs() -> None:
    op.create_table(
        "spec_versions",
        sa.Column("name", ORDERED, nullable=False),
        sa.Column("version", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("status", sa.String(20), nullable=False),
        _snapshot("spec_versions"),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name="pk_spec_versions"),
    )
    op.create_index("ix_spec_versions_snapshot_version", "spec_versions", ["snapshot_version"])
    op.create_table(
        "specs",
        sa.Column("name", ORDERED, nullable=False),
        sa.Column("latest_version", sa.Integer, nullable=False),
        sa.Column("active_version", sa.Integer),
        sa.Column("active_source", sa.Text),
        sa.Column("active_event_type", sa.Text),
        sa.PrimaryKeyConstraint("name", name="pk_specs"),
        sa.UniqueConstraint(
            "active_source", "active_event_type", name="uq_specs_active_source_active_event_type"
        ),
        sa.ForeignKeyConstraint(
            ["name", "latest_version"],
            ["spec_versions.name", "spec_versions.version"],
            name="fk_specs_name_latest_version",
        ),
    )


def _policy_changes() -> None:
    op.create_table(
        "policy_changes",
        sa.Column("id", COUNTER, autoincrement=True, nullable=False),
        _snapshot("policy_changes"),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("subject", ORDERED, nullable=False),
        sa.Column("base", sa.String(40), nullable=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("weakens", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_policy_changes"),
    )
    op.create_table(
        "policy_decisions",
        sa.Column(
            "change_id",
            COUNTER,
            sa.ForeignKey("policy_changes.id", name="fk_policy_decisions_change_id"),
            autoincrement=False,
            nullable=False,
        ),
        _snapshot("policy_decisions"),
        sa.Column("decision", sa.String(20), nullable=False),
        sa.PrimaryKeyConstraint("change_id", name="pk_policy_decisions"),
    )
    for table in ("policy_changes", "policy_decisions"):
        op.create_index(f"ix_{table}_snapshot_version", table, ["snapshot_version"])


def _refuse_rewriting() -> None:
    postgresql = op.get_bind().dialect.name == "postgresql"
    if postgresql:
        op.execute(
            "CREATE FUNCTION idgraph_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
        )
    for table, columns in APPEND_ONLY.items():
        for event, when in (("update", f"UPDATE{columns}"), ("delete", "DELETE")):
            head = f"CREATE TRIGGER {table}_{event} BEFORE {when} ON {table}"
            if postgresql:
                op.execute(f"{head} FOR EACH ROW EXECUTE FUNCTION idgraph_append_only()")
            else:
                op.execute(f"{head} BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END")
