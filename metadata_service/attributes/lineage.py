"""The specs that write an attribute, and the views, segments, activities, derived attributes and identity rules that read it; also
through derived attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from idgraph.model import canonical
from idgraph.model.behaviour import ActivityDocument, DerivedDocument
from idgraph.model.paths import is_within
from idgraph.model.snapshots import patterns_overlap
from idgraph.model.specs import SpecDefinition, SpecDocument
from idgraph.model.views import SegmentDocument
from metadata_service.behaviour import ACTIVITIES, DERIVED_ATTRIBUTES, attributes_read
from metadata_service.definitions import SEGMENTS, VIEWS, segment_paths, view_sources
from metadata_service.specs.catalogue import active_specs
from metadata_service.storage.tables import AttributeRow
from metadata_service.storage.versions import VersionedDocuments, name_of
from metadata_service.triggers import TRIGGERS, trigger_paths


class WriterRecord(BaseModel):
    """A spec in force that can put a value at a path."""

    spec: str
    version: int
    source: str
    event_type: str
    through: tuple[str, ...] = Field(
        default=(), description="The activities and derived attributes between, from the spec on."
    )


class ReaderRecord(BaseModel):
    """A reader of the values of a path: a view, a segment, an activity, a derived attribute, or the identity rules by a namespace."""

    kind: Literal["view", "segment", "namespace", "activity", "derived_attribute"]
    name: str
    version: int | None = None
    through: tuple[str, ...] = Field(
        default=(), description="The activities and derived attributes between, from the attribute on."
    )
    loses: bool = Field(default=False, description="Whether the edit takes the values away from it.")


class LineageRecord(BaseModel):
    """The writers and readers of an attribute's values, by the documents in force."""

    writers: list[WriterRecord]
    readers: list[ReaderRecord]
    last_seen: date | None = Field(
        description="The last day (UTC) on which a flow took an event with a value here."
    )


def lineage(session: Session, path: str) -> LineageRecord:
    """The lineage of a path, whether an attribute has it or not."""
    specs = active_specs(session)
    graph = _Lineage(session, specs)
    namespaces = sorted({place.type for spec in specs for place in spec.identifiers if place.path == path})
    readers = [ReaderRecord(kind="namespace", name=each) for each in namespaces]
    found: dict[tuple[str, str], ReaderRecord] = {}
    for reader in graph.readers(path):
        # Of several ways to it the first.
        found.setdefault((reader.kind, reader.name), reader)
    known = session.get(AttributeRow, path)
    return LineageRecord(
        writers=list(graph.writers(path)),
        readers=[*readers, *found.values()],
        last_seen=known.last_seen if known else None,
    )


def readers_of(session: Session, document: BaseModel) -> list[tuple[str, str]]:
    """Kind and name of what reads the entries of an activity or the values of a derived attribute, or watches a segment."""
    triggers = TRIGGERS.active(session)
    if isinstance(document, ActivityDocument):
        derived = DERIVED_ATTRIBUTES.active(session)
        return [("derived_attribute", each.name) for each in derived if document.name in each.activities]
    if isinstance(document, SegmentDocument):
        return [("trigger", each.name) for each in triggers if each.when.segment == document.name]
    if isinstance(document, DerivedDocument):
        path = document.path
        direct = (each for each in _Lineage(session, ()).readers(path) if not each.through)
        asking = (("trigger", each.name) for each in triggers if _touches(trigger_paths(each), path))
        return [*((each.kind, each.name) for each in direct), *asking]
    return []


def warnings_of(session: Session, kind: VersionedDocuments[Any, Any], document: Any) -> list[str]:
    """Those of the kind; and what reads the version in force, where this one retires it or has another path."""
    said = kind.warn(session, document)
    known = kind.held(session, name_of(document))
    if known is None or not isinstance(known.document, DerivedDocument | SegmentDocument):
        return said
    is_kept = document.status == "active" and getattr(known.document, "path", "") == getattr(
        document, "path", ""
    )
    if not is_kept and known.document.status == "active" and (readers := readers_of(session, known.document)):
        names = ", ".join(f"{each.replace('_', ' ')} {name}" for each, name in readers)
        said = [*said, f"in use by {names}: they get nothing from it any more"]
    return said


_Way = tuple[str, ...]


class _Lineage:
    """The documents in force, and the ways between attributes."""

    def __init__(self, session: Session, specs: Sequence[SpecDocument]) -> None:
        self._specs = specs
        self._views = [(each, view_sources(each)) for each in VIEWS.active(session)]
        self._segments = [(each, segment_paths(each)) for each in SEGMENTS.active(session)]
        self._activities = {each.name: (each, _activity_sources(each)) for each in ACTIVITIES.active(session)}
        self._derived = [(each, set(attributes_read(each))) for each in DERIVED_ATTRIBUTES.active(session)]

    def writers(self, path: str, through: _Way = ()) -> Iterator[WriterRecord]:
        """The specs that write a path, or what it is derived from."""
        makers = [each for each in self._derived if _touches({each[0].path}, path)]
        if not any(is_within(path, each.path) for each, _ in makers):
            yield from (_writer(each, through) for each in self._specs if writes(each, path))
        for each, sources in makers:
            if each.name in through:
                continue
            for name in each.activities:
                activity, asked = self._activities[name]
                way = (name, each.name, *through)
                yield from (_writer(spec, way) for spec in self._specs if _feeds(spec, activity, asked))
            for source in sorted(filter(None, sources)):
                yield from self.writers(source, (each.name, *through))

    def readers(self, path: str, through: _Way = ()) -> Iterator[ReaderRecord]:
        """The views, segments, activities and derived attributes that read a path, or what is derived from it."""
        for view, sources in self._views:
            if _touches(sources, path):
                yield ReaderRecord(kind="view", name=view.name, version=view.version, through=through)
        for segment, sources in self._segments:
            if _touches(sources, path):
                yield ReaderRecord(
                    kind="segment", name=segment.name, version=segment.version, through=through
                )
        for activity, sources in self._activities.values():
            if _touches(sources, path):
                yield ReaderRecord(
                    kind="activity", name=activity.name, version=activity.version, through=through
                )
                for each, _ in self._derived:
                    if activity.name in each.activities:
                        yield from self._by(each, (*through, activity.name))
        for each, sources in self._derived:
            if _touches(sources, path):
                yield from self._by(each, through)

    def _by(self, derived: DerivedDocument, through: _Way) -> Iterator[ReaderRecord]:
        if derived.name not in through:
            yield ReaderRecord(
                kind="derived_attribute", name=derived.name, version=derived.version, through=through
            )
            yield from self.readers(derived.path, (*through, derived.name))


def _writer(spec: SpecDocument, through: _Way) -> WriterRecord:
    return WriterRecord(
        spec=spec.name,
        version=spec.version,
        source=spec.source,
        event_type=spec.event_type,
        through=through,
    )


def _feeds(spec: SpecDocument, activity: ActivityDocument, sources: set[str]) -> bool:
    """Whether events of a spec can leave entries."""
    return (
        patterns_overlap(spec.source, activity.source)
        and patterns_overlap(spec.event_type, activity.event_type)
        and (not sources or any(not each or writes(spec, each) for each in sources))
    )


def _activity_sources(activity: ActivityDocument) -> set[str]:
    from transforms.schema.policy_tree import entry_sources

    return {*entry_sources(activity), *activity.fields.values()}


def _touches(sources: set[str], path: str) -> bool:
    return any(not each or is_within(each, path) or is_within(path, each) for each in sources)


def writes(spec: SpecDefinition, path: str) -> bool:
    """Whether a spec can put a value at a path."""
    from transforms.spec.output_tree import can_produce

    return can_produce(_output_tree(canonical.encode(spec.operations)), path)


@lru_cache(maxsize=2048)
def _output_tree(operations: bytes) -> Any:
    from transforms.spec.output_tree import output_tree

    return output_tree(canonical.decode(operations))
