"""Files of activities and derived attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from idgraph.app.identity_documents import validated
from idgraph.model.behaviour import ActivityDefinition, DerivedDefinition, DerivedDocument
from idgraph.model.documents import Definition, FrozenDocument
from idgraph.model.errors import ConfigError, SpecError
from idgraph.model.text import nearest
from idgraph.model.triggers import TriggerDefinition
from idgraph.model.views import SegmentDefinition
from idgraph.web.refusals import RefusedRequestError
from metadata_service.documents.problems import DocumentError, JsonFile

KINDS: dict[type[Definition], str] = {
    ActivityDefinition: "activity",
    DerivedDefinition: "derived_attribute",
    SegmentDefinition: "segment",
    TriggerDefinition: "trigger",
}


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


def check_behaviour(document: JsonFile) -> BehaviourFile:
    """The definitions of a file, each compiled by itself. Raises DocumentError."""
    from metadata_service.definitions import segment_query
    from metadata_service.triggers import checked_search
    from transforms.behaviour.activities import Activity
    from transforms.behaviour.derivations import compile_derived

    checked = validated(BehaviourFile, document)
    problems = []
    for place, each in checked.placed():
        try:
            if isinstance(each, ActivityDefinition):
                Activity(each)
            elif isinstance(each, DerivedDefinition) and each.model is None:
                # The metadata service has the models.
                compile_derived(DerivedDocument(**dict(each), version=1))
            elif isinstance(each, SegmentDefinition):
                segment_query(each)
            elif isinstance(each, TriggerDefinition) and each.when.q is not None:
                checked_search(each, each.when.q, segment_query)
        except SpecError as error:
            problems.append(error.under(place))
        except RefusedRequestError as error:
            problems.append(SpecError(error.message, place + error.pointer, error.hint))
    if problems:
        raise document.refuse(problems)
    return checked


def holds_behaviour(document: JsonFile) -> bool:
    """Whether it looks like a file of such definitions."""
    content, lists = document.content, BehaviourFile.model_fields
    if not isinstance(content, dict) or {"operation", "operations"} & content.keys():
        return False
    return any(
        each in lists or (type(value) is list and nearest(each, lists, 0.75))
        for each, value in content.items()
    )


def derived_in(files: Iterable[Path]) -> list[DerivedDefinition]:
    """The derived attributes in force by those of these files that hold any, and have no mistakes."""
    found: list[DerivedDefinition] = []
    for file in files:
        with suppress(DocumentError, ConfigError):
            if file != Path("-") and holds_behaviour(document := JsonFile(file)):
                found += check_behaviour(document).derived_attributes
    return [each for each in found if each.status == "active"]


def read_derived(file: Path) -> tuple[DerivedDefinition, ...]:
    """The derived attributes of such a file, or of one that is a single definition. Raises DocumentError, ConfigError."""
    document = JsonFile(file)
    if isinstance(document.content, dict) and "path" in document.content:
        return (validated(DerivedDefinition, document),)
    return validated(BehaviourFile, document).derived_attributes


def read_behaviour(file: Path) -> BehaviourFile:
    """The definitions of a file (`-`: standard input). Raises DocumentError, ConfigError."""
    return validated(BehaviourFile, JsonFile(file))
