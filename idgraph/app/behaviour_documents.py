"""Files of activities and derived attributes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from idgraph.app.identity_documents import validated
from idgraph.model.behaviour import ActivityDefinition, ActivityDocument, DerivedDefinition, DerivedDocument
from idgraph.model.documents import FrozenDocument
from metadata_service.documents.problems import JsonFile

if TYPE_CHECKING:
    from sinks.http.metadata import MetadataClient


class BehaviourFile(FrozenDocument):
    """What `idgraph behaviour apply` reads."""

    activities: tuple[ActivityDefinition, ...] = ()
    derived_attributes: tuple[DerivedDefinition, ...] = ()

    def all(self) -> list[ActivityDefinition | DerivedDefinition]:
        """All definitions, activities first."""
        return [*self.activities, *self.derived_attributes]

    def placed(self) -> list[tuple[str, ActivityDefinition | DerivedDefinition]]:
        """All definitions with their JSON pointers, activities first."""
        found: list[tuple[str, ActivityDefinition | DerivedDefinition]] = []
        found += [(f"/activities/{place}", each) for place, each in enumerate(self.activities)]
        found += [
            (f"/derived_attributes/{place}", each) for place, each in enumerate(self.derived_attributes)
        ]
        return found


def put_behaviour(
    client: MetadataClient, definition: ActivityDefinition | DerivedDefinition, reason: str
) -> tuple[str, ActivityDocument | DerivedDocument]:
    """Put a definition in force; its kind, and as it is stored. Raises RefusedError."""
    if isinstance(definition, ActivityDefinition):
        return "activity", client.put_activity(definition, reason)
    return "derived_attribute", client.put_derived(definition, reason)


def read_behaviour(file: Path) -> BehaviourFile:
    """The definitions of a file (`-`: standard input). Raises DocumentError, ConfigError."""
    return validated(BehaviourFile, JsonFile(file))
