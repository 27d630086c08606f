"""Views and segments as they are stored: documents with a name, a new version for each edit, checked before it is saved."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, Literal, TypeVar

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, aliased

from idgraph.model import canonical, paths, queries
from idgraph.model.attributes import AttributeMetadata, DataType
from idgraph.model.errors import QueryError, SpecError
from idgraph.model.query_cost import require_affordable
from idgraph.model.query_language import parse_query, warnings
from idgraph.model.records import ProvenanceRecord, SegmentVersionRecord, ViewVersionRecord
from idgraph.model.views import CONSENTS, SegmentDefinition, SegmentDocument, ViewDefinition, ViewDocument
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.refusals import RefusedRequestError, UnknownSubjectError
from metadata_service.attributes.catalogue import find_attributes, first_below, known_types
from metadata_service.attributes.policies import attributes_around, policies_of
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import DocumentVersionRow
from metadata_service.storage.versions import add_document, newest_document, paged, versions_of

Stated = TypeVar("Stated", ViewDefinition, SegmentDefinition)
Stored = TypeVar("Stored", ViewDocument, SegmentDocument)


@dataclass(frozen=True, slots=True)
class Definitions(Generic[Stated, Stored]):
    """All of one kind. `read` gives the fields that are stored of a definition, `looks_at` its paths: at these, or above or
    below them. `asks` gives the search that it is, and paths that it looks at besides."""

    kind: Literal["view", "segment"]
    stated: type[Stated]
    stored: type[Stored]
    record: type[ProvenanceRecord]
    read: Callable[[Session, Stated], dict[str, Any]]
    looks_at: Callable[[Stored], set[str]]
    asks: Callable[[Stored], tuple[queries.Query, Iterable[str]]]

    def get(self, session: Session, name: str) -> Stored:
        """The latest version. Raises UnknownSubjectError."""
        found = self._find(session, name)
        if found is None:
            raise UnknownSubjectError(f"no {self.kind} is named {name}")
        return found

    def get_version(self, session: Session, name: str, version: int) -> Stored:
        """A version that there is."""
        row = session.get_one(_Row, (self.kind, name, version))
        return self.stored.model_validate_json(row.document)

    def list(
        self, session: Session, wanted: PageRequest, words: str = "", is_reversed: bool = False
    ) -> ListPage[Stored]:
        """The latest versions, by name or the other way round. `words` stand in the name."""
        query = paged(self._latest(), _Row.name, wanted, is_reversed)
        for word in words.split():
            query = query.where(_Row.name.icontains(word.replace("\x00", " "), autoescape=True))
        found = map(self.stored.model_validate_json, session.scalars(query))
        return wanted.page(found, lambda each: each.name)

    def versions(self, session: Session, name: str, wanted: PageRequest) -> ListPage[ProvenanceRecord]:
        """All versions, the newest first. Raises UnknownSubjectError."""
        self.get(session, name)
        of = (_Row.kind == self.kind, _Row.name == name)
        found = (
            self.record(document=self.stored.model_validate_json(row.document), **edit.provenance())
            for row, edit in versions_of(session, _Row, wanted, *of)
        )
        return wanted.page(found, lambda each: int(each.document.version))  # type: ignore[attr-defined]

    def active(self, session: Session) -> Iterator[str]:
        """The documents that a snapshot has, by name."""
        for document in session.scalars(self._latest().order_by(_Row.name)):
            if self.stored.model_validate_json(document).status == "active":
                yield document

    def changed(self, session: Session, since: int) -> bool:
        """Whether any was saved after a snapshot."""
        newer = select(_Row.name).where(_Row.kind == self.kind, _Row.snapshot_version > since).limit(1)
        return session.scalar(newer) is not None

    def checked(self, session: Session, definition: Stated) -> Stored:
        """The document of a definition, as a first version. To be called before the edit: it can take a second. Raises
        SpecError, RefusedRequestError."""
        return self.stored(**self.read(session, definition), version=1)

    def warnings(self, session: Session, first: Stored) -> builtins.list[str]:
        """The warnings of a search for what `checked` gave: what it asks for may be misspelled, still to come, or of another
        type."""
        query, within = self.asks(first)
        return warnings(query, _types_around(session, sorted(self.looks_at(first))), within=within)

    def save(
        self, edit: Edit, first: Stored, precondition: Callable[[str | None], None]
    ) -> tuple[Stored, bool]:
        """Store what `checked` gave as a new version; the same again makes none. Gives the document, and whether the name is
        new."""
        known = self._find(edit.session, first.name)
        precondition(None if known is None else known.model_dump_json())
        if known is not None and known == first.model_copy(update={"version": known.version}):
            return known, False
        document = first if known is None else first.model_copy(update={"version": known.version + 1})
        add_document(edit, self.kind, document.name, document.version, document.model_dump_json())
        return document, known is None

    def _find(self, session: Session, name: str) -> Stored | None:
        row = newest_document(session, self.kind, name)
        return None if row is None else self.stored.model_validate_json(row.document)

    def _latest(self) -> Select[str]:
        newer = aliased(_Row)
        newest = select(func.max(newer.version)).where(newer.kind == self.kind, newer.name == _Row.name)
        return select(_Row.document).where(_Row.kind == self.kind, _Row.version == newest.scalar_subquery())


def _types_around(session: Session, asked: builtins.list[str]) -> dict[str, DataType]:
    """The types of the attributes of the catalogue, by path: of those at, above and below these paths the ones that show; of
    very many, some others are missing."""
    types = {path: DataType(kind) for path, kind in known_types(session).items()}
    types |= dict.fromkeys(first_below(session, asked).values(), DataType.ARRAY)
    around = {place for each in asked for place in (each, *paths.ancestors(each))}
    return types | {each.path: each.shown_type for each in find_attributes(session, around)}


_Row = DocumentVersionRow


def _view(_session: Session, definition: ViewDefinition) -> dict[str, Any]:
    from transforms import compile_spec

    try:
        compile_spec({"operation": "jmespath", "spec": definition.attributes})
    except SpecError as error:
        place = error.pointer.removeprefix("/spec")
        raise SpecError(error.message, f"/attributes{place}", error.hint, error.offset) from None
    return dict(definition)


def _segment(session: Session, definition: SegmentDefinition) -> dict[str, Any]:
    def type_of(path: str) -> Any:
        known: AttributeMetadata | None = next(find_attributes(session, [path]), None)
        return None if known is None else known.shown_type

    try:
        if definition.q is None:
            query = queries.from_json(definition.query)
        else:
            query = parse_query([f"({definition.q})"] if definition.q.strip() else [], type_of)
        require_affordable(query)
    except QueryError as error:
        raise RefusedRequestError(str(error), "/query" if definition.q is None else "/q") from None
    stored = dict(definition) | {"query": queries.to_json(query)}
    asked = {each.path for each in queries.leaves(query) if each.path is not None}
    segments = (SegmentDocument(**stored, version=1),)
    tree = policies_of(session, attributes_around(session, asked).values(), segments=segments)
    if not tree.index_rules.segments:
        raise RefusedRequestError(
            "a segment asks for no value of a protected attribute, which would be readable in it",
            "/query" if definition.q is None else "/q",
            "of a searchable one it may ask whether it has a value: path=*",
        )
    return stored


def view_sources(view: ViewDocument) -> set[str]:
    """The paths at or below which all stands that a view looks at; the empty path: anywhere."""
    return _sources_of(canonical.encode(view.attributes))


@lru_cache(maxsize=1024)
def _sources_of(attributes: bytes) -> set[str]:
    from transforms.spec.jmespath.operation import all_sources

    return all_sources(canonical.decode(attributes))


def segment_paths(segment: SegmentDocument) -> set[str]:
    """The paths that a segment asks about."""
    asked = {each.path for each in queries.leaves(queries.from_json(segment.query)) if each.path is not None}
    consent = set() if segment.purpose is None else {paths.join((CONSENTS, segment.purpose, "status"))}
    return asked | consent


VIEWS = Definitions(
    "view",
    ViewDefinition,
    ViewDocument,
    ViewVersionRecord,
    _view,
    view_sources,
    lambda view: (queries.Query(), sorted(view_sources(view))),
)
SEGMENTS = Definitions(
    "segment",
    SegmentDefinition,
    SegmentDocument,
    SegmentVersionRecord,
    _segment,
    segment_paths,
    lambda segment: (segment.segment().condition, ()),
)
