"""A schema registry by the HTTP interface that Confluent's, Karapace and others have."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from idgraph.model.backoff import Backoff
from idgraph.model.errors import ConfigError, PayloadSchemaError, SchemaRegistryError
from idgraph.model.transport import client_options
from sinks.credentials import secret
from transforms.payloads import PayloadSchema

PASSWORD = "IDGRAPH_SCHEMA_REGISTRY_PASSWORD"  # noqa: S105 - the name of a variable
"""Environment variable that holds what `password_file` holds else."""

REQUEST_SECONDS = 5.0
PATIENCE = Backoff(retries=6, base=0.1, cap=3.0)
"""While the registry is away: some seconds in all."""

MOST_REFERENCES = 200
_KINDS = ("AVRO", "PROTOBUF", "JSON")


class RegistryLocation(NamedTuple):
    """The place of a registry and of its password, never the password."""

    url: str
    username: str | None = None
    password_file: str | None = None
    ca_file: str | None = None


class HttpSchemaRegistry:
    """A `SchemaRegistry`. Nothing is opened before the first use; not safe for several threads.

    No message holds a schema or a credential.
    """

    def __init__(
        self,
        place: RegistryLocation,
        backoff: Backoff = PATIENCE,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._place = place
        self._backoff = backoff
        self._sleep = sleep
        self._opened: httpx.Client | None = None

    def schema(self, number: int | str) -> PayloadSchema:
        """The schema of a number, with all that it is built on. Raises ConfigError for credentials that cannot be
        read, and as the protocol says."""
        found = self._get(f"/schemas/ids/{number}")
        kind = found.get("schemaType", "AVRO")
        if kind not in _KINDS:
            raise PayloadSchemaError("the registry says that it is of a kind that idgraph does not know")
        if kind == "PROTOBUF":
            # As text it would have to be compiled by protoc.
            found = self._get(f"/schemas/ids/{number}?format=serialized")
        references: dict[str, str] = {}
        self._follow(found, kind, references, ())
        return PayloadSchema(kind, found["schema"], tuple(references.items()))

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        if self._opened:
            self._opened.close()
        self._opened = None

    def _follow(
        self, found: dict[str, Any], kind: str, references: dict[str, str], around: tuple[str, ...]
    ) -> None:
        """Add what a schema refers to, each after what that refers to itself."""
        for each in found.get("references") or ():
            name, subject, version = (str(each.get(key)) for key in ("name", "subject", "version"))
            if name in references:
                continue
            if name in around or len(references) + len(around) >= MOST_REFERENCES:
                raise PayloadSchemaError("its references go in a circle, or are too many")
            form = "?format=serialized" if kind == "PROTOBUF" else ""
            below = self._get(f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}{form}")
            self._follow(below, kind, references, (*around, name))
            references[name] = below["schema"]

    def _get(self, path: str) -> dict[str, Any]:
        """An answer that holds a schema, asked for again while the registry is away."""
        for attempt in range(self._backoff.retries + 1):
            try:
                answer = self._client().get(self._place.url.rstrip("/") + path)
            except httpx.HTTPError as error:
                failure = f"no answer ({type(error).__name__})"
            else:
                if answer.is_success:
                    return _content(answer)
                if answer.status_code not in (401, 403, 408, 429) and answer.status_code < 500:
                    raise PayloadSchemaError(f"the registry does not have it (HTTP {answer.status_code})")
                failure = f"HTTP {answer.status_code}"
                if answer.status_code in (401, 403):
                    break
            if attempt < self._backoff.retries:
                self._sleep(self._backoff.pause(attempt))
        raise SchemaRegistryError(f"the schema registry {self._place.url}: {failure}")

    def _client(self) -> httpx.Client:
        if self._opened is None:
            self._opened = _connect(self._place)
        return self._opened


def _connect(place: RegistryLocation) -> httpx.Client:
    auth = None
    if place.username:
        password = secret(PASSWORD, place.password_file)
        if password is None:
            raise ConfigError(
                f"[kafka.registry] username: there is no password; set `password_file` or {PASSWORD}"
            )
        auth = (place.username, password)
    options = client_options(place.url, Path(place.ca_file) if place.ca_file else None)
    return httpx.Client(auth=auth, timeout=REQUEST_SECONDS, **options)


def _content(answer: httpx.Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        # Truncated, or something between here and the registry answered.
        raise SchemaRegistryError("the schema registry's answer holds no schema")
    return found
