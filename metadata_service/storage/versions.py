"""Rows in pages, such as the log of changes, and documents of which every edit makes a version: the newest
holds."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, TypeVarTuple, cast

from pydantic import BaseModel
from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session, aliased

from idgraph.model.callers import Role
from idgraph.model.records import ChangeRecord, VersionRecord
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.refusals import UnknownSubjectError
from metadata_service.storage.edits import Edit, Kind
from metadata_service.storage.tables import (
    AttributeVersionRow,
    ChangeRow,
    DocumentVersionRow,
    SnapshotRow,
    SpecVersionRow,
)

Columns = TypeVarTuple("Columns")
Version = TypeVar("Version", AttributeVersionRow, DocumentVersionRow, SpecVersionRow)


def paged(
    query: Select[*Columns], key: InstrumentedAttribute[Any], wanted: PageRequest, is_reversed: bool = False
) -> Select[*Columns]:
    """A page of a list in the order of a key, and one row beyond it. Raises BadQueryError."""
    after = wanted.after(key.type.python_type)
    if after is not None:
        query = query.where(key < after if is_reversed else key > after)
    return query.order_by(key.desc() if is_reversed else key).limit(wanted.one_more)


def versions_of(
    session: Session, row: type[Version], wanted: PageRequest, *of: ColumnElement[bool]
) -> Iterator[tuple[Version, SnapshotRow]]:
    """Versions with the edits that made them, the newest first."""
    query = select(row, SnapshotRow).join(SnapshotRow, SnapshotRow.version == row.snapshot_version)
    found = session.execute(paged(query.where(*of), row.version, wanted, is_reversed=True))
    return ((each[0], each[1]) for each in found)


_Row = DocumentVersionRow
Stated = TypeVar("Stated", bound=BaseModel)
Stored = TypeVar("Stored", bound=BaseModel)


class Held(NamedTuple, Generic[Stored]):
    """A document and the number of its version; 0: the default, which nobody saved."""

    number: int
    document: Stored


def name_of(document: BaseModel) -> str:
    """The name of a document; empty for one of a kind that has one."""
    return str(getattr(document, "name", ""))


def _nothing(_session: Session, _document: Any) -> list[str]:
    return []


Differs = Callable[[BaseModel | None, builtins.list[str]], None]
"""Compares the present document, and the parts that a change opens by now, with those that the second person
saw; raises ClashError if they differ."""


@dataclass(frozen=True, eq=False)
class VersionedDocuments(Generic[Stated, Stored]):
    """All documents of one kind, by name: `stated` as authors write them, `stored` as they are kept.

    `check` makes one of the other and raises SpecError or RefusedRequestError. It can take a second, and
    writes nothing. `warn` gives warnings, and `opens` the parts of protection that a document weakens, for
    which a second person is asked. `decided` leaves out of a stored document what `check` added. A kind with
    a `default` has one document, which has no name. `record` is the model for readers in place of the
    document. With `as_stated`, fields that authors leave out are not stored. `publishers` and `checkers` are
    the roles that may, besides admins. `row` is the table of the versions.
    """

    row: ClassVar[type[Any]] = DocumentVersionRow

    kind: Kind
    stated: type[Stated]
    stored: type[Stored]
    check: Callable[[Session, Stated], Stored]
    warn: Callable[[Session, Stored], builtins.list[str]] = _nothing
    opens: Callable[[Session, Stored], builtins.list[str]] = _nothing
    decided: Callable[[dict[str, Any]], dict[str, Any]] = dict
    default: Stored | None = None
    record: type[BaseModel] | None = None
    as_stated: bool = False
    publishers: tuple[Role, ...] = (Role.PUBLISHER,)
    checkers: tuple[Role, ...] = (Role.ANALYST, Role.PUBLISHER)

    @property
    def path(self) -> str:
        """The part of an address that names the kind."""
        name = self.kind.replace("_", "-")
        if self.default is not None:
            return name
        return f"{name.removesuffix('y')}ies" if name.endswith("y") else f"{name}s"

    @property
    def version(self) -> type[VersionRecord[Stored]]:
        """The model of a version with who, when and why."""
        return cast(Any, VersionRecord)[self.stored]  # type: ignore[no-any-return]

    def held(self, session: Session, name: str = "") -> Held[Stored] | None:
        """The version that holds; None for an unknown name."""
        for found in self._versions(session, PageRequest(None, 1), name):
            return Held(found.version, found.document)
        return None if self.default is None else Held(0, self.default)

    def get(self, session: Session, name: str = "") -> Stored:
        """The document that holds. Raises UnknownSubjectError."""
        return self.known(session, name).document

    def known(self, session: Session, name: str = "") -> Held[Stored]:
        """The version that holds. Raises UnknownSubjectError."""
        found = self.held(session, name)
        if found is None:
            raise UnknownSubjectError(f"no {self.kind} is named {name}")
        return found

    def served(self, held: Held[Stored]) -> str:
        """The answer to readers, as JSON; its ETag is that of the document."""
        if self.record is None:
            return held.document.model_dump_json()
        return self.record(version=held.number, document=held.document).model_dump_json(exclude_unset=True)

    def list(
        self, session: Session, wanted: PageRequest, words: str = "", is_reversed: bool = False
    ) -> ListPage[Stored]:
        """The documents that hold, by name or the other way round. `words` stand in the name."""
        query = paged(self._newest(), _Row.name, wanted, is_reversed)
        for word in words.split():
            query = query.where(_Row.name.icontains(word.replace("\x00", " "), autoescape=True))
        return wanted.page(map(self._read, session.scalars(query)), lambda each: str(each.name))  # type: ignore[attr-defined]

    def all(self, session: Session) -> Iterator[Stored]:
        """The documents that hold, by name."""
        found = session.scalars(self._newest().order_by(_Row.name)).all()
        yield from map(self._read, found)
        if self.default is not None and not found:
            yield self.default

    def active(self, session: Session) -> Iterator[Stored]:
        """Those of them that are in use, which a snapshot has."""
        return (each for each in self.all(session) if each.status == "active")  # type: ignore[attr-defined]

    def versions(
        self, session: Session, wanted: PageRequest, name: str = ""
    ) -> ListPage[VersionRecord[Stored]]:
        """All versions that were saved, the newest first. Raises UnknownSubjectError."""
        self.known(session, name)
        return wanted.page(self._versions(session, wanted, name), lambda each: each.version)

    def at(self, session: Session, version: int, name: str = "") -> VersionRecord[Stored]:
        """One version. Raises UnknownSubjectError."""
        for found in self._versions(session, PageRequest(None, 1), name, self.row.version == version):
            return found
        title = " ".join(filter(None, (self.kind.replace("_", " "), name)))
        raise UnknownSubjectError(f"there is no version {version} of the {title}")

    def contents(self, session: Session) -> Iterator[tuple[str, dict[str, Any]]]:
        """The documents that people decided, by name."""
        return ((name_of(each), self._content(each)) for each in self.all(session))

    def content(self, session: Session, name: str = "") -> dict[str, Any] | None:
        """The document that people decided, without version and without the additions of `check`; None for an
        unknown name."""
        held = self.held(session, name)
        return None if held is None else self._content(held.document)

    def opened(self, session: Session, content: dict[str, Any]) -> builtins.list[str]:
        """The attributes that saving a content would weaken."""
        return self.opens(session, self.check(session, self.stated.model_validate(content)))

    def carry_out(self, edit: Edit, document: str, differs: Differs) -> None:
        """Save what a second person approved."""
        wanted = self._read(document)
        known = self.held(edit.session, name_of(wanted))
        differs(None if known is None else known.document, self.opens(edit.session, wanted))
        self.save(edit, wanted)

    def copy(self, session: Session, edit: Edit) -> None:
        """Save all that holds in another database."""
        for document in self.all(session):
            self.save(edit, document)

    def save(self, edit: Edit, document: Stored) -> tuple[Held[Stored], bool]:
        """Let a document hold that `check` gave; the same again makes no new version. Also whether the name
        is new."""
        name = name_of(document)
        known = self.held(edit.session, name)
        if known is not None and self._numbered(document, known.number) == known.document:
            return known, False
        held = Held(number := known.number + 1 if known else 1, self._numbered(document, number))
        edit.session.add(
            DocumentVersionRow(
                kind=self.kind,
                name=name,
                version=number,
                snapshot_version=edit.version,
                document=held.document.model_dump_json(exclude_unset=self.as_stated),
            )
        )
        edit.record(self.kind, name, number, "saved")
        edit.session.flush()
        return held, known is None

    def _content(self, document: Stored) -> dict[str, Any]:
        return self.decided(
            document.model_dump(mode="json", exclude={"version"}, exclude_unset=self.as_stated)
        )

    def _read(self, document: str) -> Stored:
        return self.stored.model_validate_json(document)

    def _numbered(self, document: Stored, number: int) -> Stored:
        has_number = "version" in self.stored.model_fields
        return document.model_copy(update={"version": number}) if has_number else document

    def _newest(self) -> Select[str]:
        newer = aliased(_Row)
        newest = select(func.max(newer.version)).where(newer.kind == self.kind, newer.name == _Row.name)
        return select(_Row.document).where(_Row.kind == self.kind, _Row.version == newest.scalar_subquery())

    def _versions(
        self, session: Session, wanted: PageRequest, name: str, *of: ColumnElement[bool]
    ) -> Iterator[VersionRecord[Stored]]:
        for row, edit in versions_of(session, self.row, wanted, *self._of(name), *of):
            document = self._stored(row, edit)
            yield self.version(version=row.version, document=document, **edit.provenance())

    def _of(self, name: str) -> tuple[ColumnElement[bool], ...]:
        return (_Row.kind == self.kind, _Row.name == name)

    def _stored(self, row: Any, _edit: SnapshotRow) -> Stored:
        return self._read(row.document)


def list_changes(
    session: Session,
    wanted: PageRequest,
    kind: str | None = None,
    subject: str | None = None,
    actor: str | None = None,
    actions: Collection[str] = (),
) -> ListPage[ChangeRecord]:
    """Changes, the newest first; of one kind, to one subject, by one actor, or of some actions, if asked."""
    query = select(ChangeRow, SnapshotRow).join(
        SnapshotRow, SnapshotRow.version == ChangeRow.snapshot_version
    )
    query = paged(query, ChangeRow.id, wanted, is_reversed=True)
    if kind is not None:
        query = query.where(ChangeRow.kind == kind)
    if subject is not None:
        query = query.where(ChangeRow.subject == subject)
    if actions:
        query = query.where(ChangeRow.action.in_(actions))
    if actor is not None:
        query = query.where(SnapshotRow.actor == actor)
    found = (
        ChangeRecord(
            id=row.id,
            kind=row.kind,
            subject=row.subject,
            subject_version=row.subject_version,
            action=row.action,
            **edit.provenance(),
        )
        for row, edit in session.execute(query)
    )
    return wanted.page(found, lambda change: change.id)
