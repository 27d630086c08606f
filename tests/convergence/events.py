"""The events published to the machine of law 1, and the specs and attributes by which they are mapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from hypothesis import strategies as st

from idgraph.model import canonical
from idgraph.model.attributes import AttributeMetadata, ReconciliationPolicy
from idgraph.model.behaviour import ActivityDocument, DerivedDocument
from idgraph.model.events import RawRecord
from idgraph.model.identifiers import Identifier
from idgraph.model.identity_rules import DEFAULT_RULES, IdentityRules
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.specs import SpecDocument
from tests.retail import NOW, UNDETECTED, attribute

SOURCES = ("shop", "crm")
DEVICES = ("7", "8")
MAILS = ("M", "m", "n")
"""Of all persons. `M` is `m` where rules say so."""
CUSTOMERS = ("1", "2", "3", "4")
PERSONS = (*(f"u:{each}" for each in CUSTOMERS), *(f"d:{each}" for each in DEVICES))
"""Whoever names no customer is named by the device. Persons join by all that they have in common."""
EXCEPTION = "k.open"
"""Stays readable where all of `k` is protected; not in all histories."""
TYPES = {
    "a": "number",
    "a.b": "number",
    "c": "number",
    "n": "number",
    "p": "string",
    "k": "string",
    EXCEPTION: "string",
    "u.id": "string",
    "d.id": "string",
    "m.id": "string",
}
PROTECTABLE = ("c", "p", "k")
"""With `k` all that stands below it and is not declared itself."""
NAMES = ("u.id", "d.id")
AGREED = ("c", "p", "k", "n", "d", "m")
"""What all contents of one event have alike."""
POLICIES_OF_SEALED = {
    "protected": ("latest", "first", "append", "count", "source_priority"),
    "searchable": ("latest", "first", "append", "count", "union", "source_priority"),
}
LAST_ORDINAL = 8
"""Of the events of one age."""
FUTURE = int(NOW * 1000) * 2
_ABSENT = "absent"

BIG, FINE, HUGE = 2**70 + 1, Decimal("0.10000000000000000000000000001"), Decimal("1E+400")
"""No double is any of them."""
COMPOSED, DECOMPOSED = "\u00e9", "e\u0301"
_HALF, _BEYOND = "\ue000", "\ue001"
_UNREADABLE = {f'"{_HALF}"'.encode(): rb'"\ud800"', f'"{_BEYOND}"'.encode(): b"1e7000"}
"""What stands in a payload for half of a character and for a number beyond all bounds, which no JSON library writes."""


def _nested(depth: int) -> Any:
    return {"x": _nested(depth - 1)} if depth else "deep"


_numbers = st.sampled_from([1, 2, 3, 0.1, 0.2, BIG, -1, FINE, HUGE, "text", None, [1, 2], _ABSENT])
_texts = st.sampled_from(
    [*"xyxyxyz", "", "\0", COMPOSED, DECOMPOSED, 1, 1, None, None, *[_ABSENT] * 4, _HALF, _BEYOND]
)
_trees = st.sampled_from(
    [
        *({"x": 1}, {"x": {"y": 2}}, {"x": {"y": {"z": "deep"}}, "open": 3}, 5, "text", {"open": "text"}),
        *({"x": None}, {"x": {"y": None}}, None, {}, {"": ""}, {"": {"": BIG}}, {"x.y": FINE}, {"\0": "\0"}),
        *([{"": [HUGE, None]}], {COMPOSED: 1, DECOMPOSED: DECOMPOSED}, _nested(60), {"open": {"x": 1}}),
        *(_ABSENT, _ABSENT),
    ]
)
payloads = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["e1", "e1", "e2"]),
        "ts": st.sampled_from([*range(1, LAST_ORDINAL + 1), FUTURE]),
        "u": st.sampled_from([*"1112234", _ABSENT]),
        "a": _numbers,
        "c": _numbers,
        "n": st.sampled_from([1, 2, 0.1, 0.2, BIG, FINE, HUGE, "text", None, _ABSENT, _ABSENT, _ABSENT]),
        "p": _texts,
        "k": _trees,
        "d": st.sampled_from([*DEVICES, _ABSENT]),
        "m": st.sampled_from([*MAILS, _ABSENT, _ABSENT]),
        "undo": st.sampled_from(["e1", "e2", *[_ABSENT] * 6]),
    }
).map(lambda payload: {key: value for key, value in payload.items() if value is not _ABSENT})
scopes = st.sampled_from([None, "", "", "a", "a.b", "c", "n", "k", "k.x"])
"""Of snapshots; None for deltas."""
PLAIN = ("latest", "sum", "count", "source_priority")
"""The policies of `n`, of which it is distinguished from the code what must show (`expected`)."""
policies = st.sampled_from([*ReconciliationPolicy]).map(lambda policy: policy.value)


IDENTIFIERS = tuple(map(Identifier.parse, (*PERSONS, *(f"m:{each}" for each in MAILS))))
IDENTITY = tuple(
    IdentityRules.model_validate(each)
    for each in (
        *(DEFAULT_RULES.model_dump(), {"hub_limit": 1}, {"size_limit": 3}, {"size_limit": 2}),
        {"namespaces": {"u": {"priority": 1}, "d": {"max": 1, "priority": 2}}},
        {"namespaces": {"u": {"unique": True}, "d": {"moves": "latest", "max": 1}}},
        {"namespaces": {"u": {"hub_limit": 1}, "d": {"owner": "none"}}},
        {"hub_limit": 2},
        {"hub_limit": 50},
        {"namespaces": {"m": {"normalise": "lower"}}, "hub_limit": 2},
        {"namespaces": {"m": {"normalise": "lower"}, "u": {"unique": True}}},
        {"namespaces": {"d": {"hub_limit": 1}, "m": {}}, "blocked": [{"namespace": "m", "value": "n"}]},
        {"namespaces": {"d": {}}, "limits": [{"namespace": "d", "max": 1, "window_days": 1}]},
        {"strength": {"crm": 2}, "least_strength": 2},
    )
)
"""Identity rules: limits and hubs split what devices, addresses and pins join. Names of fragments are the same by all of them."""


def written(payload: Mapping[str, Any]) -> bytes:
    """The record of a payload."""
    value = canonical.encode(payload)
    for stand_in, literal in _UNREADABLE.items():
        value = value.replace(stand_in, literal)
    return value


def is_readable(record: RawRecord) -> bool:
    """Whether it is JSON that may be stored."""
    return not any(literal in record.value for literal in _UNREADABLE.values())


class SpecForm(NamedTuple):
    """`nested` writes below the path that the other form writes; with a `scope` events are snapshots; a `broken` one looks for the event's id where it is
    not, so that all its events become dead letters; one that `retracts` says which event is taken back."""

    version: int = 1
    nested: bool = False
    priority: int = 0
    scope: str | None = None
    broken: bool = False
    retracts: bool = False


class Declared(NamedTuple):
    """What metadata says of a path."""

    policy: str = "latest"
    encryption: str = "none"
    sources: tuple[str, ...] = SOURCES
    """The most trusted first, for `source_priority`."""


def snapshot(
    version: int,
    specs: Mapping[str, SpecForm],
    attributes: Mapping[str, Declared],
    identity: tuple[int, IdentityRules],
    activities: Sequence[ActivityDocument],
) -> MetadataSnapshot:
    """What all of this makes at one version, in the service's order."""
    return MetadataSnapshot(
        version=version,
        specs=tuple(_spec(source, form) for source, form in sorted(specs.items())),
        attributes=tuple(_attribute(path, stated) for path, stated in sorted(attributes.items())),
        defaults=UNDETECTED,
        identity_rules_version=identity[0],
        identity_rules=identity[1],
        activities=tuple(activities),
        derived_attributes=DERIVED,
        behaviour_version=sum(each.version for each in activities),
    )


ACTIVITIES = (
    ActivityDocument(name="all", time="_event.ordinal", fields={"n": "n"}, version=1),
    ActivityDocument(
        name="few",
        source="crm",
        time="_event.ordinal",
        condition="n != `1`",
        fields={"n": "n"},
        most=2,
        version=2,
    ),
)
CONDITIONS = ("n != `1`", "n == `1`", None)
_PATTERN = {"activities": ["all", "few"], "pattern": "A B+", "define": {"B": "activity == 'few'"}}
DERIVED = tuple(
    DerivedDocument(name=path.replace(".", "-"), path=path, version=1, **content)
    for path, content in (
        ("z.count", {"window": {"activity": "all"}}),
        ("z.last", {"window": {"activity": "all", "function": "last_k", "field": "n"}}),
        ("z.few", {"window": {"activity": "few", "function": "top_k", "field": "n"}}),
        ("z.sessions", {"sessions": {"activity": "few", "gap": "1s", "over": "all", "fields": ["n"]}}),
        ("z.pattern", {"pattern": _PATTERN}),
        ("z.expression", {"expression": "type(n)"}),
    )
)


def _spec(source: str, form: SpecForm) -> SpecDocument:
    shift = {
        "ts": "_event.ordinal",
        "u": "u.id",
        "d": "d.id",
        "m": "m.id",
        "c": "c",
        "n": "n",
        "p": "p",
        "k": "k",
    }
    shift["undo"] = "_event.undo"
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
        identifiers=(
            {"type": "u", "path": "u.id", "primary": True},
            {"type": "d", "path": "d.id", "fallback": True},
            {"type": "m", "path": "m.id"},
        ),
        retracts="_event.undo" if form.retracts else None,
        mode="delta" if form.scope is None else "snapshot",
        scope=form.scope or "",
        priority=form.priority,
        status="active",
    )


def _attribute(path: str, declared: Declared) -> AttributeMetadata:
    stated: dict[str, Any] = declared._asdict()
    if declared.policy != "source_priority":
        del stated["sources"]
    return attribute(path, TYPES[path], **stated)
