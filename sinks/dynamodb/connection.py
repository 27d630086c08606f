"""A connection to DynamoDB: where it is, and what a refusal means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError

from idgraph.model.errors import StoreError
from sinks.aws_connection import client


class TablesLocation(NamedTuple):
    """The place of the tables: their names begin with `prefix`. No `endpoint` means Amazon's own of the region. A
    request that fails is made again for `retry_seconds`, by default as `Retry` says."""

    prefix: str
    region: str
    endpoint: str | None = None
    retry_seconds: float | None = None


class Capacity(NamedTuple):
    """Read and write capacity units consumed."""

    read: float
    write: float


class DynamoRefusedError(StoreError):
    """DynamoDB refused a request for good. `code` is its name for the reason."""

    def __init__(self, table: str, code: str, response: Mapping[str, Any]) -> None:
        self.code = code
        self.response = response
        super().__init__(f"DynamoDB table {table}: {_MEANING.get(code, code)}")


_MEANING = {
    "ResourceNotFoundException": "there is no such table; `idgraph store create` makes it",
    "ResourceNotFound": "there is no such table; `idgraph store create` makes it",
    "AccessDeniedException": "access denied; see the permissions in docs/dynamodb.md",
    "AccessDenied": "access denied; see the permissions in docs/dynamodb.md",
    "UnrecognizedClientException": "the credentials are not valid",
    "ExpiredTokenException": "the credentials have expired",
}


def connect(place: TablesLocation, threads: int, service: str = "dynamodb") -> Any:
    """A boto3 client of one service for so many threads. Raises StoreError."""
    try:
        return client(service, place.region, place.endpoint, threads)
    except (BotoCoreError, ValueError) as error:
        raise StoreError(f"DynamoDB in {place.region}: {type(error).__name__}") from None
