"""What events showed about the schema, on its way to the metadata service."""

from __future__ import annotations

from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from model.attributes import DataType


class SchemaChange(BaseModel):
    """A path that no metadata knows, or a known path with a type it did not have. Never a value."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(min_length=1, max_length=1024)
    data_type: DataType
    source: str = Field(min_length=1, max_length=200)
    first_event: str = Field(max_length=1000, description="Position of the event.")


class SchemaUpdates(Protocol):
    """Where schema changes go. Contract: sending the same change again has no effect."""

    def send(self, changes: list[SchemaChange]) -> None:
        """Blocks until taken. Raises MetadataError when the service is away: keep the changes and retry;
        `UnauthorizedError` when it refused the token: retrying does not help."""
        ...
