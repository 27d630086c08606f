"""Tokens that a test knows by heart: the product makes random ones only."""

from __future__ import annotations

from sqlalchemy import update

from idgraph.model.callers import token_digest
from metadata_service.storage.database import Database
from metadata_service.storage.tables import TokenRow
from metadata_service.storage.tokens import Role, authenticate, create_token


def give_token(database: Database, name: str, role: Role, plaintext: str) -> None:
    """Make a token, and put the digest of another in its place; the same again has no effect."""
    if authenticate(database, plaintext) is not None:
        return
    create_token(database, name, role)
    with database.write() as edit:
        newest = TokenRow.name == name, TokenRow.revoked.is_(None)
        edit.session.execute(update(TokenRow).where(*newest).values(digest=token_digest(plaintext)))
