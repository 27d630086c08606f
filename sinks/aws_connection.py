"""Clients of Amazon's services, the one way in which requests to them are tried again, and what that is good for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import IncompleteReadError

from idgraph.model.backoff import Backoff, Retries
from idgraph.model.errors import IdgraphError, StoreError

RETRY_SECONDS = 30.0
_PAUSES = Backoff(base=0.025, cap=2.0)
_TIMEOUT = 5

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Retry:
    """Pauses between retries; raises `error` when `seconds`, by default RETRY_SECONDS, are over. Only for requests that
    are safe to make again."""

    def __init__(
        self,
        what: str,
        seconds: float | None = None,
        error: Callable[[str], IdgraphError] = StoreError,
    ) -> None:
        self._what = what
        self._seconds = RETRY_SECONDS if seconds is None else seconds
        self._error = error
        self._retries = Retries(_PAUSES, self._seconds)

    def pause(self, reason: str) -> None:
        """Raises the error with the reason when there is no time left."""
        if not self._retries.pause():
            raise self._error(f"{self._what}: {reason}, for {self._seconds:.0f} s and all retries")


def client(
    service: str, region: str, endpoint: str | None, threads: int, timeout: float = 4 * _TIMEOUT
) -> Any:
    """A boto3 client for so many threads, which tries nothing again by itself. No `endpoint` means Amazon's own of
    the region; `timeout` is of an answer, in seconds. Raises BotoCoreError and ValueError, and so do its methods: also
    for an answer that ends too early."""
    config = Config(
        max_pool_connections=threads,
        connect_timeout=min(_TIMEOUT, timeout),
        read_timeout=timeout,
        # Retried above, where unprocessed items are too: one bound for all.
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Our own requests have the right shape; the check would take a tenth of the client's time.
        parameter_validation=False,
    )
    local: dict[str, str] = {}
    if endpoint and urlsplit(endpoint).hostname in _LOOPBACK:
        # A stand-in for development takes any credentials, and must not get real ones.
        local = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    session = boto3.session.Session()
    made = session.client(service, region_name=region, endpoint_url=endpoint, config=config, **local)
    made.meta.events.register("response-received", _require_whole)
    return made


def _require_whole(response_dict: Mapping[str, Any] | None, **_: object) -> None:
    """Boto3 takes an answer whose connection ended in its middle for one that says nothing."""
    if response_dict is None:
        return
    announced, came = response_dict["headers"].get("content-length"), len(response_dict["body"])
    if announced is not None and came != int(announced):
        raise IncompleteReadError(actual_bytes=came, expected_bytes=int(announced))
