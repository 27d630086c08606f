"""Schema changes that pipelines found in events."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from idgraph.model.schema_changes import SchemaChange
from metadata_service.api.records import SchemaAnswer
from metadata_service.api.service import Actor, Service
from metadata_service.attributes.discovery import MAX_CHANGES, apply_schema_changes

router = APIRouter(prefix="/v1/schema", tags=["schema"])


class SchemaPatch(BaseModel):
    """Entries are read one by one, so that a bad one does not stop the others."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "properties": {
                "changes": {
                    "type": "array",
                    "maxItems": MAX_CHANGES,
                    "items": SchemaChange.model_json_schema(),
                }
            }
        },
    )

    changes: list[Any] = Field(max_length=MAX_CHANGES)


@router.patch("")
def patch(body: SchemaPatch, service: Service, actor: Actor) -> SchemaAnswer:
    """Make unknown paths known and record types that contradict. Sending a change again has no effect."""
    with service.database.write(actor, "found in events") as edit:
        return apply_schema_changes(edit, body.changes)
