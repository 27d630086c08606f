"""Alembic's entry point. The connection, and the transaction around it, are the caller's."""

from __future__ import annotations

from alembic import context

from metadata_service.storage.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
