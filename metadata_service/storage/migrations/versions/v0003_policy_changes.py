"""Edits that weaken protection, and what a second person decided; append-only as all history is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

ORDERED = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TABLES = ("policy_changes", "policy_decisions")


def upgrade() -> None:
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
    for table in TABLES:
        op.create_index(f"ix_{table}_snapshot_version", table, ["snapshot_version"])
        for event in ("update", "delete"):
            _refuse(table, event)


def _snapshot(table: str) -> sa.Column[int]:
    reference = sa.ForeignKey("snapshots.version", name=f"fk_{table}_snapshot_version")
    return sa.Column("snapshot_version", COUNTER, reference, nullable=False)


def _refuse(table: str, event: str) -> None:
    head = f"CREATE TRIGGER {table}_{event} BEFORE {event.upper()} ON {table}"
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"{head} FOR EACH ROW EXECUTE FUNCTION idgraph_append_only()")
    else:
        op.execute(f"{head} BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END")
