"""The account that confirmed that another one belongs to a person of its own."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """A column of `users`."""
    op.add_column("users", Column("confirmed_by", Text, nullable=False, server_default=""))
