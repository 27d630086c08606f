"""What the routes work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Query, Request

from idgraph.web.cursors import PageRequest
from metadata_service.api.settings import ServiceSettings
from metadata_service.api.watch import RevisionWatch
from metadata_service.specs.rules import CompileSpec
from metadata_service.storage.database import Database
from metadata_service.storage.snapshots import SnapshotCache
from metadata_service.storage.tokens import TokenRecord


@dataclass(frozen=True)
class MetadataService:
    """One running service."""

    settings: ServiceSettings
    database: Database
    snapshots: SnapshotCache
    watch: RevisionWatch
    compile_spec: CompileSpec


def _service(request: Request) -> MetadataService:
    return cast(MetadataService, request.app.state.service)


def _actor(request: Request) -> str:
    return cast(TokenRecord, request.state.caller).name


Service = Annotated[MetadataService, Depends(_service)]
Actor = Annotated[str, Depends(_actor)]
Reason = Annotated[str, Query(max_length=1000, description="Why the change is made; kept with it.")]


def _page_request(
    cursor: Annotated[str | None, Query(max_length=10_000, description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> PageRequest:
    return PageRequest(cursor, limit)


Paging = Annotated[PageRequest, Depends(_page_request)]
