"""Elasticsearch's API with what to do when it is away, busy, or says no.

A request is safe to give again: every write carries its version.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from elastic_transport import TlsError
from elasticsearch import ApiError, ConnectionTimeout, Elasticsearch, TransportError, UnsupportedProductError

from idgraph.model.backoff import Backoff, Retries
from idgraph.model.errors import ConfigError, ProfileIndexError, QueryCostError
from sinks.credentials import secret

REQUEST_SECONDS = 30.0
API_KEY = "IDGRAPH_ELASTICSEARCH_API_KEY"
PASSWORD = "IDGRAPH_ELASTICSEARCH_PASSWORD"  # noqa: S105 - the name of a variable
"""Environment variables that hold what the files of a `Place` hold else."""

# It warns of each try of each connection; what comes of them is reported above, once.
logging.getLogger("elastic_transport").setLevel(logging.ERROR)


class IndexLocation(NamedTuple):
    """The place of the index and of its credentials, never the credentials. `name` is the alias that searches
    and writes go through."""

    url: str
    name: str
    username: str | None = None
    password_file: str | None = None
    api_key_file: str | None = None
    ca_file: str | None = None


def connect(place: IndexLocation) -> Any:
    """A client. Raises ConfigError for credentials or certificates that cannot be read."""
    options: dict[str, Any] = {}
    if key := secret(API_KEY, place.api_key_file):
        options["api_key"] = key
    elif place.username:
        password = secret(PASSWORD, place.password_file)
        if password is None:
            raise ConfigError(f"[index] username: there is no password; set `password_file` or {PASSWORD}")
        options["basic_auth"] = (place.username, password)
    if options and not place.url.startswith("https:"):
        raise ConfigError("[index] url: credentials are sent by https only")
    if place.ca_file:
        options["ca_certs"] = place.ca_file
    try:
        return Elasticsearch(
            place.url,
            request_timeout=REQUEST_SECONDS,
            # Tried again above, where each document of a request is looked at as well.
            max_retries=0,
            retry_on_timeout=False,
            **options,
        )
    except (OSError, ValueError):
        # The message may hold what was read.
        raise ConfigError("[index]: the URL or `ca_file` cannot be used") from None


BUSY_SECONDS = 30.0
"""The time for which a request that is too much for Elasticsearch now (429) is retried."""
_BUSY = Backoff(base=0.05, cap=5.0)

AWAY = Backoff(retries=3, base=0.1, cap=0.5)
"""Retries when there is no whole answer. Few: the flow continues meanwhile, and the outbox
waits."""
_REST = Backoff(base=1.0, cap=5.0, least=1.0)
"""The pause after that, so that not every batch waits in vain."""

TOO_MANY, TOO_LARGE = 429, 413
BLOCKED = "cluster_block_exception"
"""The reason for a refusal where writing is blocked, as it is for a moment when another version takes an index's place."""


class ElasticsearchRefusedError(ProfileIndexError):
    """Elasticsearch refused a request for good, with this HTTP status and its name for the reason."""

    def __init__(self, index: str, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(f"Elasticsearch index {index}: {_MEANING.get(status, f'{status} {reason}')}")


_MEANING = {
    401: "the credentials are missing or not valid",
    403: "access denied, or writing is blocked there; see the permissions in docs/elasticsearch.md",
    404: "there is no such index; `idgraph index create` makes it",
}


class Pause:
    """Pauses while Elasticsearch has too much to do."""

    def __init__(self, index: str) -> None:
        self._index = index
        self._retries = Retries(_BUSY, BUSY_SECONDS)

    def busy(self) -> None:
        """Raises ProfileIndexError when there is no time left."""
        if not self._retries.pause():
            raise ProfileIndexError(
                f"Elasticsearch index {self._index}: busy, or blocked, for {BUSY_SECONDS:.0f} s and all retries"
            )


class ElasticsearchClient:
    """Safe for several threads. All methods raise ProfileIndexError, whose message never holds a
    value: Elasticsearch's own reasons do, so only their type is reported."""

    def __init__(self, place: IndexLocation) -> None:
        self.place = place
        self._opened: Any = None
        self._is_closed = False
        self._lock = threading.Lock()
        self._failures = 0
        self._rests_until = 0.0
        self._problem_before_rest = ""

    def call(self, request: Callable[[Any], Any], seconds: float = REQUEST_SECONDS) -> Any:
        """The body of one answer. `request` is given the client, with this time limit for each try."""
        pause = Pause(self.place.name)
        attempt = 0
        while True:
            client = self._open()
            try:
                answer = request(client.options(request_timeout=seconds)).body
            except UnsupportedProductError:
                raise self._problem("the server that answers there is no Elasticsearch") from None
            except ApiError as error:
                if _is_too_long(error):
                    raise QueryCostError(
                        "the search takes longer than the index allows one; ask for fewer clauses, beginnings and ranges"
                    ) from None
                if error.status_code == TOO_MANY:
                    pause.busy()
                    continue
                if error.status_code < 500:
                    raise ElasticsearchRefusedError(
                        self.place.name, error.status_code, _reason(error)
                    ) from None
                problem = f"{self.place.url} answered {error.status_code}"
            except TlsError:
                raise self._problem("its certificate is not one to trust; see `ca_file`") from None
            except ConnectionTimeout:
                raise self._away(f"no answer from {self.place.url} within {seconds:.0f} s") from None
            except TransportError as error:
                # No connection, one that was cut, or half an answer.
                problem = f"no whole answer from {self.place.url}, is it up? ({type(error).__name__})"
            else:
                self._failures = 0
                return answer
            if attempt == AWAY.retries:
                raise self._away(problem)
            time.sleep(AWAY.pause(attempt))
            attempt += 1

    def close(self) -> None:
        """A later use raises ProfileIndexError."""
        with self._lock:
            self._is_closed = True
            opened, self._opened = self._opened, None
        if opened:
            opened.close()

    def _open(self) -> Any:
        with self._lock:
            if self._is_closed:
                raise self._problem("the index is closed")
            if time.monotonic() < self._rests_until:
                raise self._problem(self._problem_before_rest)
            if self._opened is None:
                self._opened = connect(self.place)
            return self._opened

    def _away(self, problem: str) -> ProfileIndexError:
        with self._lock:
            self._rests_until = time.monotonic() + _REST.pause(self._failures)
            self._failures += 1
            self._problem_before_rest = problem
        return self._problem(problem)

    def _problem(self, problem: str) -> ProfileIndexError:
        return ProfileIndexError(f"Elasticsearch index {self.place.name}: {problem}")


def _reason(error: ApiError) -> str:
    error_body = error.body.get("error") if isinstance(error.body, dict) else None
    return str(error_body.get("type")) if isinstance(error_body, dict) else "refused"


def _is_too_long(error: ApiError) -> bool:
    """Whether a search had a time limit and reached it: to try it again would take as long."""
    error_body = error.body.get("error") if isinstance(error.body, dict) else None
    causes = error_body.get("root_cause") if isinstance(error_body, dict) else None
    return any(each.get("type") == "search_timeout_exception" for each in causes or ())
