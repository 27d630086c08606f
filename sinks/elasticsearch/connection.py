"""A connection to Elasticsearch: where it is, and by what it knows us."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from elasticsearch import Elasticsearch

from idgraph.model.errors import ConfigError
from sinks.credentials import secret

REQUEST_SECONDS = 30.0
API_KEY = "IDGRAPH_ELASTICSEARCH_API_KEY"
PASSWORD = "IDGRAPH_ELASTICSEARCH_PASSWORD"  # noqa: S105 - the name of a variable
"""Environment variables that hold what the files of a `Place` hold else."""

# It warns of each try of each connection; what comes of them is reported above, once.
logging.getLogger("elastic_transport").setLevel(logging.ERROR)


class IndexLocation(NamedTuple):
    """Where the index is, and where its credentials are: never what they are. `name` is the alias that searches
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
