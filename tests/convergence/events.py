"""What is published to the machine of law 1, and the specs and attributes that it is mapped by."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from hypothesis import strategies as st

from model.attributes import AttributeMetadata, ReconciliationPolicy
from model.snapshots import MetadataSnapshot
from model.specs import SpecDocument
from tests.retail import NOW, UNDETECTED, attribute

SOURCES = ("shop", "crm")
PERSONS = ("1", "2")
DEVICES = ("17", "18", "27", "28")
"""Two of each person. None in common: an erasure takes the letters of all that the person's identifiers stand in."""
TYPES = {
    "a": "number",
    "a.b": "number",
    "c": "number",
    "n": "number",
    "p": "string",
    "u.id": "string",
    "d.id": "string",
}
PROTECTABLE = ("c", "p")
NAMES = ("u.id", "d.id")
AGREED = (*PROTECTABLE, "n", "d")
"""What all contents of one event have alike."""
POLICIES_OF_SEALED = {
    "protected": ("latest", "first", "append", "count", "source_priority"),
    "searchable": ("latest", "first", "append", "count", "union", "source_priority"),
}
LAST_ORDINAL = 8
"""Of the events of one age."""
FUTURE = int(NOW * 1000) * 2
_ABSENT = "absent"

_numbers = st.sampled_from([1, 2, 3, 0.1, 0.2, 10**20, -1, "text", None, [1, 2], _ABSENT])
_texts = st.sampled_from(["x", "y", "z", 1, None, _ABSENT])
payloads = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["e1", "e1", "e2"]),
        "ts": st.sampled_from([*range(1, LAST_ORDINAL + 1), FUTURE]),
        "u": st.sampled_from(["1", "1", "1", "2"]),
        "a": _numbers,
        "c": _numbers,
        "n": st.sampled_from([1, 2, 0.1, 0.2, 0.7, 10**20, "text", None, _ABSENT, _ABSENT, _ABSENT]),
        "p": _texts,
        "d": st.sampled_from(["7", "8", _ABSENT]),
    }
).map(lambda payload: {key: value for key, value in payload.items() if value is not _ABSENT})
scopes = st.sampled_from([None, "", "", "a", "a.b", "c", "n"])
"""Of snapshots; None for deltas."""
PLAIN = ("latest", "sum", "count")
"""The policies of `n`, of which it is told apart from the code what must show (`expected`)."""
policies = st.sampled_from([*ReconciliationPolicy]).map(lambda policy: policy.value)


class SpecForm(NamedTuple):
    """`nested` writes below the path that the other form writes; with a `scope` events are snapshots; a `broken` one looks for the event's id where it is
    not, so that all its events become letters."""

    version: int = 1
    nested: bool = False
    priority: int = 0
    scope: str | None = None
    broken: bool = False


class Declared(NamedTuple):
    """What metadata says of a path."""

    policy: str = "latest"
    encryption: str = "none"


def snapshot(
    version: int, specs: Mapping[str, SpecForm], attributes: Mapping[str, Declared]
) -> MetadataSnapshot:
    """What all of this makes at one version."""
    return MetadataSnapshot(
        version=version,
        specs=tuple(_spec(source, form) for source, form in specs.items()),
        attributes=tuple(_attribute(path, stated) for path, stated in attributes.items()),
        defaults=UNDETECTED,
    )


def _spec(source: str, form: SpecForm) -> SpecDocument:
    shift = {"ts": "_event.ordinal", "u": "u.id", "d": "d.id", "c": "c", "n": "n", "p": "p"}
    shift["a"] = "a.b" if form.nested else "a"
    shift["nowhere" if form.broken else "id"] = "_event.id"
    return SpecDocument(
        name=source,
        source=source,
        version=form.version,
        created=datetime(2024, 1, 1, tzinfo=UTC),
        operations=[{"operation": "shift", "spec": shift}],
        id="_event.id",
        ordinal="_event.ordinal",
        identifiers=({"type": "u", "path": "u.id", "primary": True}, {"type": "d", "path": "d.id"}),
        mode="delta" if form.scope is None else "snapshot",
        scope=form.scope or "",
        priority=form.priority,
        status="active",
    )


def _attribute(path: str, declared: Declared) -> AttributeMetadata:
    stated: dict[str, Any] = declared._asdict()
    if declared.policy == "source_priority":
        stated["sources"] = SOURCES[::-1]
    return attribute(path, TYPES[path], **stated)
