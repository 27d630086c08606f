"""What the routes work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Query, Request

from idgraph.model.errors import ConfigError
from idgraph.web.cursors import PageRequest
from metadata_service.api.watch import RevisionWatch
from metadata_service.specs.rules import CompileSpec
from metadata_service.storage.database import Database
from metadata_service.storage.snapshots import SnapshotCache
from metadata_service.storage.tokens import TokenRecord


@dataclass(frozen=True)
class ServiceSettings:
    """`database_url` is `sqlite:///FILE` or `postgresql+psycopg://...` (needs the extra `postgresql`).

    `poll_seconds` is how soon a waiting reader sees what another process wrote.
    """

    database_url: str
    poll_seconds: float = 0.04
    max_body_bytes: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.poll_seconds <= 0:
            raise ConfigError("metadata service: poll_seconds must be positive")


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
