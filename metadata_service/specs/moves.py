"""A spec that puts at another path what it puts at one: how a discovered attribute is merged into one that there is."""

from __future__ import annotations

from typing import Any

from idgraph.model import paths
from idgraph.model.errors import SpecError
from idgraph.model.specs import SpecDefinition, SpecType
from metadata_service.attributes.lineage import writes

_SPECIAL = frozenset("*|&$#@[].\\(),?=")


def moved(definition: SpecDefinition, path: str, into: str) -> SpecDefinition:
    """The spec with two operations more, which copy the value and remove it where it was. Raises SpecError where it writes nothing
    at `path`, or something at `into` already, and for keys that these operations read otherwise."""
    if not writes(definition, path):
        raise SpecError(f"the spec {definition.name} puts nothing at {path}", "/path")
    if paths.is_within(into, path) or paths.is_within(path, into):
        raise SpecError(f"{into} and {path} lie within each other", "/into")
    if writes(definition, into):
        hint = "choose in its operations which one holds"
        raise SpecError(f"the spec {definition.name} puts a value at {into}, too", "/into", hint)
    keys, target = paths.split(path), paths.split(into)
    for place, names in (("/path", keys), ("/into", target)):
        if any(not each or _SPECIAL.intersection(each) or each[0] in "+~_" for each in names):
            raise SpecError("a key is empty, or has a character that operations read otherwise", place)
    put: Any = f"@({len(target)},{path})"
    for key in reversed(target):
        put = {key: put}
    remove: Any = ""
    for key in reversed(keys):
        remove = {key: remove}
    operations = definition.operations if isinstance(definition.operations, list) else [definition.operations]
    named = {
        name: into for name in ("id", "ordinal", "retracts", "scope") if getattr(definition, name) == path
    }
    places = tuple(
        each.model_copy(update={"path": into}) if each.path == path else each
        for each in definition.identifiers
    )
    update = {
        "operations": [
            *operations,
            {"operation": "modify-overwrite-beta", "spec": put},
            {"operation": "remove", "spec": remove},
        ],
        "identifiers": places,
        "specification_type": SpecType.CHAIN,
        **named,
    }
    return definition.model_copy(update=update)
