"""Files of activities and derived attributes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from idgraph.app.identity_documents import validated
from idgraph.model.behaviour import ActivityDefinition, ActivityDocument, DerivedDefinition, DerivedDocument
from idgraph.model.documents import FrozenDocument
from idgraph.model.triggers import TriggerDefinition, TriggerDocument
from idgraph.model.views import SegmentDefinition, SegmentDocument
from metadata_service.documents.problems import JsonFile

if TYPE_CHECKING:
    from sinks.http.metadata import MetadataClient


Definition = ActivityDefinition | DerivedDefinition | SegmentDefinition | TriggerDefinition


class BehaviourFile(FrozenDocument):
    """The content of a file for `idgraph behaviour apply`."""

    activities: tuple[ActivityDefinition, ...] = ()
    derived_attributes: tuple[DerivedDefinition, ...] = ()
    segments: tuple[SegmentDefinition, ...] = ()
    triggers: tuple[TriggerDefinition, ...] = ()

    def placed(self) -> Iterator[tuple[str, Definition]]:
        """All definitions with their JSON pointers, each after those that it reads; what retires goes the other way round."""
        stated: list[tuple[str, Definition]] = [
            (f"/{name}/{place}", each)
            for name in ("activities", "derived_attributes", "segments", "triggers")
            for place, each in enumerate(getattr(self, name))
        ]
        yield from (each for each in stated if each[1].status == "active")
        yield from (each for each in reversed(stated) if each[1].status != "active")


def put_behaviour(
    client: MetadataClient, definition: Definition, reason: str
) -> tuple[str, ActivityDocument | DerivedDocument | SegmentDocument | TriggerDocument]:
    """Put a definition in force; its kind, and as it is stored. Raises RefusedError."""
    if isinstance(definition, ActivityDefinition):
        return "activity", client.put_activity(definition, reason)
    if isinstance(definition, SegmentDefinition):
        return "segment", client.put_segment(definition, reason)
    if isinstance(definition, TriggerDefinition):
        return "trigger", client.put_trigger(definition, reason)
    return "derived_attribute", client.put_derived(definition, reason)


def read_behaviour(file: Path) -> BehaviourFile:
    """The definitions of a file (`-`: standard input). Raises DocumentError, ConfigError."""
    return validated(BehaviourFile, JsonFile(file))
