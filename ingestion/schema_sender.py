"""Sending schema changes so that one which the metadata service will never take keeps no other back."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

from ingestion.durable_files import OWNER_ONLY
from model.errors import NotFoundError, RefusedError, StoreError
from model.schema_changes import RefusedSchemaChange, SchemaChange, SchemaUpdates

log = logging.getLogger(__name__)

MOST_TOLD = 10
"""Refused changes that are logged one by one; the file has them all."""


class SchemaSender:
    """What is refused for good is set aside in `refused_file`, a JSON object a line, each change once."""

    def __init__(self, updates: SchemaUpdates, refused_file: Path) -> None:
        self._updates = updates
        self._refused_file = refused_file
        self.refused = 0
        """How many changes were set aside by this sender."""

    def send(self, changes: list[SchemaChange]) -> None:
        """Blocks until each change is taken or set aside. Raises MetadataError when the service is away or
        refuses the token, StoreError when the file cannot be written: keep the changes and retry."""
        refused = self._sent(changes)
        if refused:
            self._set_aside(refused)

    def _sent(self, changes: list[SchemaChange]) -> list[RefusedSchemaChange]:
        try:
            return self._updates.send(changes)
        except NotFoundError:
            # Not these changes: there is no such service at this URL.
            raise
        except RefusedError as error:
            # Too large together, or one of them is no good: halves find out which.
            if len(changes) == 1:
                return [RefusedSchemaChange(changes[0], str(error))]
            half = len(changes) // 2
            return [*self._sent(changes[:half]), *self._sent(changes[half:])]

    def _set_aside(self, refused: list[RefusedSchemaChange]) -> None:
        for change, reason in refused[:MOST_TOLD]:
            # Quoted: whoever names an attribute writes no line of the log.
            log.warning(
                "the metadata service refused %s (%s): %s", json.dumps(change.path), change.data_type, reason
            )
        log.warning(
            "%d schema change(s) were refused for good and are kept in %s", len(refused), self._refused_file
        )
        try:
            self._append(refused)
        except OSError as error:
            raise StoreError(f"{self._refused_file}: {error.strerror}") from None
        self.refused += len(refused)

    def _append(self, refused: list[RefusedSchemaChange]) -> None:
        descriptor = os.open(
            self._refused_file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, OWNER_ONLY
        )
        with os.fdopen(descriptor, "a+b") as stream:
            stream.seek(0)
            present = stream.readlines()
            kept = {_key(line) for line in present}
            lines = [_line(change, reason) for change, reason in refused]
            if present and not present[-1].endswith(b"\n"):
                # A crash cut it short: what follows is a line of its own.
                lines.insert(0, b"\n")
            stream.write(b"".join(line for line in lines if line == b"\n" or _key(line) not in kept))
            stream.flush()
            os.fsync(stream.fileno())


def _line(change: SchemaChange, reason: str) -> bytes:
    return json.dumps(change.model_dump(mode="json") | {"reason": reason}).encode() + b"\n"


def _key(line: bytes) -> tuple[str, str] | None:
    try:
        change = json.loads(line)
        return change["path"], change["data_type"]
    except (ValueError, KeyError, TypeError):
        return None
