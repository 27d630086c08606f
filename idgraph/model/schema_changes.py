"""Schema changes found in events, for the metadata service."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pydantic import Field

from idgraph.model.attributes import DataType
from idgraph.model.classification import Proposal
from idgraph.model.documents import FrozenDocument


class SchemaChange(FrozenDocument):
    """An unknown path, or a known path with a new type or a stronger proposal. Never a value."""

    path: str = Field(min_length=1, max_length=1024)
    data_type: DataType
    source: str = Field(min_length=1, max_length=200)
    first_event: str = Field(max_length=1000, description="Position of the event.")
    proposal: Proposal | None = None
    seen: bool = Field(default=False, description="Only a sight of a known path: nothing is made of it.")


class RefusedSchemaChange(NamedTuple):
    """A change that the metadata service refuses for good, with the reason."""

    change: SchemaChange
    reason: str


class SchemaUpdates(Protocol):
    """Receiver of schema changes. Sending the same change again has no effect."""

    def send(self, changes: list[SchemaChange]) -> list[RefusedSchemaChange]:
        """Blocks until the service has taken all changes except the returned ones.

        Raises MetadataError if the service is away: retry; `UnauthorizedError` if it refused the token: retrying does
        not help; `RefusedError` if it refused the request: fewer changes at once can pass."""
        ...
