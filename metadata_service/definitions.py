"""Views and segments: how each is checked before it is saved, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from sqlalchemy.orm import Session

from idgraph.model import canonical, paths, queries
from idgraph.model.attributes import AttributeMetadata, DataType
from idgraph.model.durations import TimeForm
from idgraph.model.errors import QueryError, SpecError
from idgraph.model.query_cost import require_affordable
from idgraph.model.query_language import parse_query, warnings
from idgraph.model.views import CONSENTS, SegmentDefinition, SegmentDocument, ViewDefinition, ViewDocument
from idgraph.web.refusals import RefusedRequestError
from metadata_service.attributes.catalogue import find_attributes, first_below, known_types
from metadata_service.attributes.policies import attributes_around, policies_of
from metadata_service.storage.versions import VersionedDocuments


def _types_around(session: Session, asked: list[str]) -> dict[str, DataType]:
    """The types of the attributes of the catalogue, by path: of those at, above and below these paths the
    ones that show; of very many, some others are missing."""
    types = {path: DataType(kind) for path, kind in known_types(session).items()}
    types |= dict.fromkeys(first_below(session, asked).values(), DataType.ARRAY)
    around = {place for each in asked for place in (each, *paths.ancestors(each))}
    return types | {each.path: each.shown_type for each in find_attributes(session, around)}


def _view(_session: Session, definition: ViewDefinition) -> ViewDocument:
    from transforms import compile_spec

    try:
        compile_spec({"operation": "jmespath", "spec": definition.attributes})
    except SpecError as error:
        place = error.pointer.removeprefix("/spec")
        raise SpecError(error.message, f"/attributes{place}", error.hint, error.offset) from None
    return ViewDocument(**dict(definition), version=1)


def segment_query(
    definition: SegmentDefinition,
    type_of: Callable[[str], DataType | None] = lambda _: None,
    time_of: Callable[[str], TimeForm | None] = lambda _: None,
) -> queries.Query:
    """The search of a segment, by the types and times of attributes. Raises RefusedRequestError."""
    try:
        if definition.q is None:
            query = queries.from_json(definition.query)
        else:
            query = parse_query([f"({definition.q})"] if definition.q.strip() else [], type_of, time_of)
        query = queries.in_time_zone(query, definition.time_zone)
        require_affordable(query)
    except QueryError as error:
        raise RefusedRequestError(str(error), "/query" if definition.q is None else "/q") from None
    return query


def _segment(session: Session, definition: SegmentDefinition) -> SegmentDocument:
    def known(path: str) -> AttributeMetadata | None:
        return next(find_attributes(session, [path]), None)

    def type_of(path: str) -> DataType | None:
        return None if (found := known(path)) is None else found.shown_type

    def time_of(path: str) -> TimeForm | None:
        return None if (found := known(path)) is None else found.time

    query = segment_query(definition, type_of, time_of)
    stored = dict(definition) | {"query": queries.to_json(query)}
    asked = {each.path for each in queries.leaves(query) if each.path is not None}
    segment = SegmentDocument(**stored, version=1)
    tree = policies_of(session, attributes_around(session, asked).values(), segments=(segment,))
    if not tree.index_rules.segments:
        raise RefusedRequestError(
            "a segment must not ask for a value of a protected attribute, since the value would be readable in the segment",
            "/query" if definition.q is None else "/q",
            "a segment may ask whether a searchable attribute has a value: path=*",
        )
    return segment


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


def unknown_sources(session: Session, sources: Iterable[str]) -> list[str]:
    """Warnings of paths at or below which no attribute stands."""
    asked = sorted(sources)
    return warnings(queries.Query(), _types_around(session, asked), within=asked)


def warned_query(session: Session, query: queries.Query) -> list[str]:
    """Warnings of a search by the catalogue."""
    asked = {each.path for each in queries.leaves(query) if each.path is not None}
    return warnings(query, _types_around(session, sorted(asked)))


def _warned_view(session: Session, view: ViewDocument) -> list[str]:
    return unknown_sources(session, view_sources(view))


def _warned_segment(session: Session, segment: SegmentDocument) -> list[str]:
    return warned_query(session, segment.segment().condition)


def _decided_segment(stored: dict[str, Any]) -> dict[str, Any]:
    # `query` is what `q` meant: its author gives one of the two.
    return {
        name: value for name, value in stored.items() if name != ("q" if stored["q"] is None else "query")
    }


VIEWS = VersionedDocuments("view", ViewDefinition, ViewDocument, _view, _warned_view)
SEGMENTS = VersionedDocuments(
    "segment", SegmentDefinition, SegmentDocument, _segment, _warned_segment, decided=_decided_segment
)
