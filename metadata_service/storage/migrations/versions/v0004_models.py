"""Models of derived attributes: what is known of each, part of history, and its bytes."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, LargeBinary, String, Text

from metadata_service.storage.tables import refuse_rewriting

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_COUNTER = BigInteger().with_variant(Integer(), "sqlite")


def upgrade() -> None:
    """Two tables whose rows never change."""
    op.create_table(
        "models",
        Column("digest", String(64), primary_key=True),
        Column("snapshot_version", _COUNTER, ForeignKey("snapshots.version"), nullable=False, index=True),
        Column("name", Text, nullable=False),
        Column("document", Text, nullable=False),
    )
    op.create_table(
        "model_contents",
        Column("digest", String(64), ForeignKey("models.digest"), primary_key=True),
        Column("content", LargeBinary, nullable=False),
    )
    refuse_rewriting(op.get_bind(), ("models", "model_contents"))
