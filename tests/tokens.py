"""Tokens that a test knows by heart, and no version of the catalogue has: the product makes random ones only."""

from __future__ import annotations

from datetime import timedelta

from idgraph.model.callers import token_digest
from metadata_service.storage.database import Database
from metadata_service.storage.tables import TokenRow
from metadata_service.storage.tokens import Role, authenticate


def give_token(database: Database, name: str, role: Role, plaintext: str) -> None:
    """Store a token; the same again has no effect."""
    if authenticate(database, plaintext) is not None:
        return
    with database.write() as edit:
        ends = edit.at + timedelta(days=1)
        token = TokenRow(name=name, role=role, digest=token_digest(plaintext), created=edit.at, expires=ends)
        edit.session.add(token)
