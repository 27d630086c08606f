"""One edit of the catalogue: everything it does gets one snapshot version."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from idgraph.model.sandboxes import ItemKind
from metadata_service.storage.history import append_version, redacted_versions
from metadata_service.storage.tables import ChangeRow, SnapshotRow

Kind = Literal[
    ItemKind,
    "model",
    "redaction",
    "token",
    "user",
    "grant",
    "sandbox",
    "call",
]
Action = Literal[
    "saved",
    "made",
    "revoked",
    "reset",
    "confirmed",
    "locked",
    "asked",
    "replied",
    "disabled",
    "deleted",
    "activated",
    "retired",
    "discovered",
    "conflicted",
    "proposed",
    "purged",
    "requested",
    "approved",
    "refused",
]


class Edit:
    """An edit in progress. It takes a version only when the first change is recorded."""

    def __init__(self, session: Session, actor: str, reason: str, key: bytes) -> None:
        self.session = session
        self.at = datetime.now(UTC)
        self.actor = actor
        self._reason = reason
        self._key = key
        self._changes: list[dict[str, Any]] = []
        self._moved: set[int] = set()

    @property
    def changed(self) -> bool:
        return "version" in self.__dict__

    @cached_property
    def version(self) -> int:
        """The snapshot version of this edit; asking for it makes it."""
        newest = self.session.scalar(select(func.max(SnapshotRow.version))) or 0
        row = SnapshotRow(
            version=newest + 1,
            nonce=secrets.token_hex(8),
            at=self.at,
            actor=self.actor,
            reason=self._reason,
        )
        self.session.add(row)
        self.session.flush()
        return row.version

    def rewrite(self, versions: set[int]) -> None:
        """Older versions have other rows from this one on, since an upgrade moved them."""
        if self.version:
            self._moved = versions

    def record(self, kind: Kind, subject: str, subject_version: int | None, action: Action) -> None:
        """Put a line in the change log."""
        self._changes.append(
            {
                "snapshot_version": self.version,
                "kind": kind,
                "subject": subject,
                "subject_version": subject_version,
                "action": action,
            }
        )

    def finish(self) -> None:
        """Write what is still held back; the caller commits."""
        self.session.flush()
        if self._changes:
            self.session.execute(insert(ChangeRow), self._changes)
        if self.changed:
            redacts = any(
                (each["kind"], each["action"]) == ("redaction", "approved") for each in self._changes
            )
            rewritten = redacted_versions(self.session) if redacts else self._moved
            append_version(self.session, self._key, self.version, rewritten)
