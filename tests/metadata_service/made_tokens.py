"""Tokens for tests, each made by an edit of its own."""

from __future__ import annotations

from typing import Any

from metadata_service.storage.database import Database
from metadata_service.storage.tokens import Role, add_token


def create_token(
    database: Database, name: str, role: Role, *stated: Any, actor: str = "", **more: Any
) -> str:
    with database.write(actor) as edit:
        return add_token(edit, name, role, *stated, **more)
