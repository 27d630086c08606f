"""Sending schema changes so that one which the metadata service will never take keeps no other back."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from idgraph.model.errors import NotFoundError, RefusedError, StoreError
from idgraph.model.schema_changes import RefusedSchemaChange, SchemaChange, SchemaUpdates
from ingestion.metadata.schema_journal import RefusedChanges

log = logging.getLogger(__name__)

MAX_REPORTED = 10
"""Refused changes that are logged one by one; the rest are in the file."""


class SchemaSender:
    """What is refused for good is set aside in `refused_file` (`RefusedChanges`)."""

    def __init__(self, updates: SchemaUpdates, refused_file: Path) -> None:
        self._updates = updates
        self._kept = RefusedChanges(refused_file)
        self.refused = 0
        """How many changes this sender gave up, whether the file had room for them or not."""

    @property
    def left_out(self) -> int:
        """How many of these the file had no room for."""
        return self._kept.left_out

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
        for change, reason in refused[:MAX_REPORTED]:
            # Quoted: whoever names an attribute writes no line of the log.
            log.warning(
                "the metadata service refused %s (%s): %s", json.dumps(change.path), change.data_type, reason
            )
        try:
            left_out = self._kept.add(refused)
        except OSError as error:
            raise StoreError(f"{self._kept.file}: {error.strerror}") from None
        log.warning(
            "%d schema change(s) were refused for good, of which %d are kept in %s",
            len(refused),
            len(refused) - left_out,
            self._kept.file,
        )
        self.refused += len(refused)
