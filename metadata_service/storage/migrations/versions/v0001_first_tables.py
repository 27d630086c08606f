"""The first tables, and the triggers that make history append-only."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from alembic import op
from sqlalchemy import insert

from metadata_service.storage.tables import Base, HistoryRow, SnapshotRow

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

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


def upgrade() -> None:
    """The tables of `tables.py`. The first release writes them out here; until then each stands once."""
    Base.metadata.create_all(op.get_bind())
    first = {"version": 0, "nonce": secrets.token_hex(8), "at": datetime.now(UTC), "actor": "", "reason": ""}
    op.get_bind().execute(insert(SnapshotRow).values(first))
    start = {"version": 0, "content": "", "rewritten": "{}", "mac": secrets.token_hex(32)}
    op.get_bind().execute(insert(HistoryRow).values(start))
    _refuse_rewriting()


def _refuse_rewriting() -> None:
    postgresql = op.get_bind().dialect.name == "postgresql"
    if postgresql:
        op.execute(
            "CREATE FUNCTION idgraph_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION '% is append-only', TG_TABLE_NAME; END $$"
        )
    for table, columns in APPEND_ONLY.items():
        for event, when in (("update", f"UPDATE{columns}"), ("delete", "DELETE")):
            head = f"CREATE TRIGGER {table}_{event} BEFORE {when} ON {table} FOR EACH ROW"
            if event == "update" and table in REDACTABLE:
                name, kept = REDACTABLE[table]
                # Also of NULL: of a change to no version of its subject.
                same = "IS NOT DISTINCT FROM" if postgresql else "IS"
                held = [f"NEW.{each} {same} OLD.{each}" for each in kept.split(", ")]
                head += f" WHEN (NOT (NEW.{name} LIKE 'redacted.%' AND {' AND '.join(held)}))"
            if postgresql:
                op.execute(f"{head} EXECUTE FUNCTION idgraph_append_only()")
            else:
                op.execute(f"{head} BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END")
