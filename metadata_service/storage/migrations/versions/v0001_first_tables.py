"""The format that later revisions upgrade. A new database is made by `create_tables`, in the newest format."""

from __future__ import annotations

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing: a database of this format has its tables."""
