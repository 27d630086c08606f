"""The classification levels, append-only as all history is. Longer kinds of changes fit the log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

COUNTER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TABLE = "classification_levels"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column(
            "snapshot_version",
            COUNTER,
            sa.ForeignKey("snapshots.version", name=f"fk_{TABLE}_snapshot_version"),
            autoincrement=False,
            nullable=False,
        ),
        sa.Column("document", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("snapshot_version", name=f"pk_{TABLE}"),
    )
    if op.get_bind().dialect.name == "postgresql":
        # SQLite does not hold a text to its length.
        op.alter_column("changes", "kind", type_=sa.String(40))
    for event in ("update", "delete"):
        _refuse(event)


def _refuse(event: str) -> None:
    head = f"CREATE TRIGGER {TABLE}_{event} BEFORE {event.upper()} ON {TABLE}"
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"{head} FOR EACH ROW EXECUTE FUNCTION idgraph_append_only()")
    else:
        op.execute(f"{head} BEGIN SELECT RAISE(ABORT, '{TABLE} is append-only'); END")
