"""Documents of which there is one: the newest version is in force, all of them stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from metadata_service.storage.edits import Edit, Kind
from metadata_service.storage.tables import DefaultsRow, LevelsRow

Document = TypeVar("Document", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class WholeDocument(Generic[Document]):
    """One such document, by the kind that the log of changes calls it and the table of its versions."""

    kind: Kind
    table: type[DefaultsRow | LevelsRow]
    model: type[Document]

    def read(self, session: Session) -> Document:
        """The one in force; before the first edit, what the model says."""
        newest = select(self.table.document).order_by(self.table.snapshot_version.desc()).limit(1)
        document = session.scalar(newest)
        return self.model() if document is None else self.model.model_validate_json(document)

    def save(self, edit: Edit, document: Document) -> None:
        """Put another in force; the same again makes no new version."""
        if document != self.read(edit.session):
            edit.session.add(self.table(snapshot_version=edit.version, document=document.model_dump_json()))
            edit.record(self.kind, "", None, "saved")
