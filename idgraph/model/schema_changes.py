"""What events showed about the schema, on its way to the metadata service."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

from idgraph.model.attributes import DataType
from idgraph.model.proposals import Proposal


class SchemaChange(BaseModel):
    """A path that no metadata knows, or a known path with a type it did not have, or with a value that proposes
    more than the path did so far. Never a value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1, max_length=1024)
    data_type: DataType
    source: str = Field(min_length=1, max_length=200)
    first_event: str = Field(max_length=1000, description="Position of the event.")
    proposal: Proposal | None = None


class RefusedSchemaChange(NamedTuple):
    """A change that the metadata service will never take, and why."""

    change: SchemaChange
    reason: str


class SchemaUpdates(Protocol):
    """Where schema changes go. Contract: sending the same change again has no effect."""

    def send(self, changes: list[SchemaChange]) -> list[RefusedSchemaChange]:
        """Blocks until all are taken but those it gives back. Raises MetadataError when the service is
        away: keep the changes and retry; `UnauthorizedError` when it refused the token: retrying does not
        help; `RefusedError` when it refuses them as they are sent: fewer at once may pass."""
        ...
