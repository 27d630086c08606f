"""Files of activities and derived attributes."""

from __future__ import annotations

from pathlib import Path

from idgraph.app.identity_documents import validated
from idgraph.model.behaviour import ActivityDefinition, DerivedDefinition
from idgraph.model.documents import FrozenDocument
from metadata_service.documents.problems import JsonFile


class BehaviourFile(FrozenDocument):
    """What `idgraph behaviour apply` reads."""

    activities: tuple[ActivityDefinition, ...] = ()
    derived_attributes: tuple[DerivedDefinition, ...] = ()

    def placed(self) -> list[tuple[str, ActivityDefinition | DerivedDefinition]]:
        """All definitions with their JSON pointers, activities first."""
        found: list[tuple[str, ActivityDefinition | DerivedDefinition]] = []
        found += [(f"/activities/{place}", each) for place, each in enumerate(self.activities)]
        found += [
            (f"/derived_attributes/{place}", each) for place, each in enumerate(self.derived_attributes)
        ]
        return found


def read_behaviour(file: Path) -> BehaviourFile:
    """The definitions of a file (`-`: standard input). Raises DocumentError, ConfigError."""
    return validated(BehaviourFile, JsonFile(file))
