"""The specs that write an attribute, and the views, segments and identity rules that read it."""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from idgraph.model import canonical
from idgraph.model.paths import is_within
from idgraph.model.specs import SpecDefinition
from metadata_service.definitions import SEGMENTS, VIEWS, segment_paths, view_sources
from metadata_service.specs.catalogue import active_specs
from metadata_service.storage.tables import AttributeRow


class WriterRecord(BaseModel):
    """A spec in force that can put a value at a path."""

    spec: str
    version: int
    source: str
    event_type: str


class ReaderRecord(BaseModel):
    """A reader of the values of a path: a view, a segment, or the identity rules by a namespace."""

    kind: Literal["view", "segment", "namespace"]
    name: str
    version: int | None = None
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
    specs = [each for each in active_specs(session) if writes(each, path)]
    writers = [
        WriterRecord(spec=each.name, version=each.version, source=each.source, event_type=each.event_type)
        for each in specs
    ]
    namespaces = sorted({place.type for spec in specs for place in spec.identifiers if place.path == path})
    readers = [ReaderRecord(kind="namespace", name=each) for each in namespaces]
    for view in VIEWS.active(session):
        if _touches(view_sources(view), path):
            readers.append(ReaderRecord(kind="view", name=view.name, version=view.version))
    for segment in SEGMENTS.active(session):
        if _touches(segment_paths(segment), path):
            readers.append(ReaderRecord(kind="segment", name=segment.name, version=segment.version))
    known = session.get(AttributeRow, path)
    return LineageRecord(writers=writers, readers=readers, last_seen=known.last_seen if known else None)


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
