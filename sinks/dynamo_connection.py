"""A connection to DynamoDB: where, how long it tries again, and what a refusal means."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from model.errors import StoreError

RETRY_SECONDS = 30.0
_BASE, _CAP = 0.025, 2.0
_TIMEOUT = 5


class Place(NamedTuple):
    """Where the tables are: their names begin with `prefix`. No `endpoint` means Amazon's own of the region."""

    prefix: str
    region: str
    endpoint: str | None = None


class Capacity(NamedTuple):
    """Read and write capacity units consumed."""

    read: float
    write: float


class Retry:
    """Pauses with full jitter: before retry n a random time up to `_BASE * 2**n`, at most `_CAP` seconds;
    raises StoreError when RETRY_SECONDS are over. To retry is safe: every write is conditional or the same
    again."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._attempt = 0
        self._deadline = time.monotonic() + RETRY_SECONDS

    def pause(self, reason: str) -> None:
        """Raises StoreError with the reason when there is no time left."""
        if time.monotonic() > self._deadline:
            raise StoreError(f"{self._what}: {reason}, for {RETRY_SECONDS:.0f} s and all retries")
        time.sleep(random.uniform(0, min(_CAP, _BASE * 2**self._attempt)))  # noqa: S311 - no secret
        self._attempt += 1


class RefusedRequestError(StoreError):
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


def connect(place: Place, threads: int) -> Any:
    """A boto3 client for so many threads. Raises StoreError."""
    config = Config(
        max_pool_connections=threads,
        connect_timeout=_TIMEOUT,
        read_timeout=4 * _TIMEOUT,
        # Retried above, where unprocessed items are too: one bound for all.
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Our own requests have the right shape; the check would take a tenth of the client's time.
        parameter_validation=False,
    )
    local: dict[str, str] = {}
    if place.endpoint and urlsplit(place.endpoint).hostname in ("127.0.0.1", "localhost", "::1"):
        # DynamoDB Local takes any, and must not be told real ones.
        local = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    session = boto3.session.Session()
    try:
        return session.client(
            "dynamodb", region_name=place.region, endpoint_url=place.endpoint, config=config, **local
        )
    except (BotoCoreError, ValueError) as error:
        raise StoreError(f"DynamoDB in {place.region}: {type(error).__name__}") from None
