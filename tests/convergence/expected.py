"""The expected values at two places, computed from the events that count by a few lines that know nothing of stamps,
registers and cells: of `n`, which no spec nests, under plain policies; and of the tree `k` under `latest`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from idgraph.model.attributes import AttributeMetadata
from idgraph.model.identifiers import Identifier
from idgraph.model.pins import PinRecord
from idgraph.model.snapshots import MetadataSnapshot
from merge.identity.evidence import Class, Link, Moment, SeenEvent, Span
from merge.identity.evidence import Pair as LinkedPair
from merge.identity.resolve import Decision, Pin, resolve
from merge.identity.rules import Rules
from tests.convergence.ledger import Pair, identifiers_of, person_of

PATH, TREE = "n", "k"
BOUND = 3
"""So many events of each source `sum` and `count` know here."""
NOTHING = object()
Keys = tuple[str, ...]


class _Said(NamedTuple):
    """Events are ordered by `order`: spec's priority, time, source, id, and of one event the newer spec."""

    order: tuple[int, int, str, str, int]
    source: str
    content: Mapping[str, Any]
    policy: str
    scope: Keys | None
    """Below it the event takes away what its source said before; None for deltas."""

    @property
    def event(self) -> tuple[int, str, str]:
        return self.order[1:4]

    @property
    def value(self) -> Any:
        return self.content.get(PATH, NOTHING)

    def replaces(self, earlier: tuple[int, int, str, str], path: Keys) -> bool:
        """Whether it takes away what its source said of a path, at an `order` without the spec's version."""
        return self.scope is not None and self.scope == path[: len(self.scope)] and self.order[:4] > earlier


def _said(person: str, pairs: Iterable[Pair], snapshots: Mapping[int, MetadataSnapshot]) -> list[_Said]:
    """In their order."""
    said = (_read(pair, snapshots[pair.version]) for pair in pairs if person_of(pair.record) == person)
    return sorted(said, key=lambda each: each.order)


def _read(pair: Pair, snapshot: MetadataSnapshot) -> _Said:
    # By another reader of JSON than the one under test.
    payload = json.loads(pair.record.value, parse_float=Decimal)
    source = pair.record.source
    (spec,) = [each for each in snapshot.specs if each.source == source]
    (attribute,) = [each for each in snapshot.attributes if each.path == PATH]
    scope = tuple(spec.scope.split(".")) if spec.scope else ()
    return _Said(
        (spec.priority, payload["ts"], source, payload["id"], spec.version),
        source,
        payload,
        str(attribute.policy),
        scope if spec.mode == "snapshot" else None,
    )


def expected(
    person: str,
    pairs: Iterable[Pair],
    snapshots: Mapping[int, MetadataSnapshot],
    stated: AttributeMetadata,
) -> Any:
    """The value of `n`; NOTHING where there is none. Where the policy has nothing to go by, the latest value shows."""
    said = _said(person, pairs, snapshots)
    there = [each for each in said if each.value is not NOTHING]

    def stays(each: _Said) -> bool:
        theirs = (other for other in said if other.source == each.source)
        return not any(other.replaces(each.order[:4], (PATH,)) for other in theirs)

    policy = str(stated.policy)
    meant = [each for each in there if each.policy == policy]
    if policy in ("sum", "count"):
        newest = [each.value for each in _bounded(filter(stays, _counted(meant, policy)))]
        if newest:
            return sum(map(exact, newest)) if policy == "sum" else len(newest)
    if policy == "source_priority":
        last = {each.source: each.value for each in meant if stays(each)}
        for source in stated.sources:
            if last.get(source) is not None:
                return last[source]
    latest = there[-1] if there else None
    return latest.value if latest and latest.value is not None and stays(latest) else NOTHING


def _counted(meant: Iterable[_Said], policy: str) -> list[_Said]:
    """Each event once, and only those behind the last null."""
    meant = list(meant)
    nulls = [each.order for each in meant if each.value is None]
    once = {each.event: each for each in meant if policy == "count" or _is_number(each.value)}
    return [each for each in once.values() if not nulls or each.order > nulls[-1]]


def _bounded(counted: Iterable[_Said]) -> Iterable[_Said]:
    by_source = defaultdict[str, list[_Said]](list)
    for each in sorted(counted, key=lambda each: each.order):
        by_source[each.source].append(each)
    return [each for some in by_source.values() for each in some[-BOUND:]]


def expected_tree(
    person: str, pairs: Iterable[Pair], snapshots: Mapping[int, MetadataSnapshot]
) -> dict[Keys, Any]:
    """The leaves of `k`: of two places of which one lies above the other only the later written shows."""
    shown: dict[Keys, tuple[_Said, Any]] = {}
    for each in _said(person, pairs, snapshots):
        for path, (writer, _) in list(shown.items()):
            if writer.source == each.source and each.replaces(writer.order[:4], path):
                del shown[path]
        for path, value in leaves(each.content.get(TREE, {}), (TREE,)):
            for other in [other for other in shown if other[: len(path)] == path[: len(other)]]:
                del shown[other]
            if value is not None:
                shown[path] = each, value
    return {path: value for path, (_, value) in shown.items()}


def leaves(value: Any, path: Keys) -> Iterator[tuple[Keys, Any]]:
    """Whatever is no object, and where it stands."""
    if not isinstance(value, dict):
        yield path, value
        return
    for key, below in value.items():
        yield from leaves(below, (*path, key))


def _taken_back(pair: Pair, snapshots: Mapping[int, MetadataSnapshot]) -> str | None:
    """The event that this one takes back."""
    (spec,) = [each for each in snapshots[pair.version].specs if each.source == pair.record.source]
    undone: str | None = json.loads(pair.record.value).get("undo") if spec.retracts else None
    return undone


def _seen(
    pairs: Iterable[Pair], snapshots: Mapping[int, MetadataSnapshot]
) -> Iterator[tuple[str, int, SeenEvent]]:
    """The events that are not taken back, with their fragment and the priority of their spec; each has what the rules of its time left."""
    seen: list[tuple[tuple[str, str, str], tuple[int, SeenEvent]]] = []
    taken_back: set[tuple[str, str, str]] = set()
    for pair in pairs:
        record, version = pair
        payload, source = json.loads(record.value), record.source
        if undone := _taken_back(pair, snapshots):
            taken_back.add((source, undone, person_of(record)))
            continue
        (spec,) = [each for each in snapshots[version].specs if each.source == source]
        shown = Rules(snapshots[version].identity_rules).identifiers(identifiers_of(record))
        event = SeenEvent(Moment(payload["ts"], source, payload["id"]), shown)
        seen.append(((source, payload["id"], person_of(record)), (spec.priority, event)))
    yield from ((key[2], *event) for key, event in seen if key not in taken_back)


def carried_by(
    person: str, pairs: Iterable[Pair], snapshots: Mapping[int, MetadataSnapshot]
) -> set[Identifier]:
    """What the events of one fragment show."""
    own = [pair for pair in pairs if person_of(pair.record) == person]
    return {each for _, _, event in _seen(own, snapshots) for each in event.identifiers}


def is_anything_taken_back(
    person: str, pairs: Iterable[Pair], snapshots: Mapping[int, MetadataSnapshot]
) -> bool:
    """Whether an event of this fragment takes others back."""
    own = [pair for pair in pairs if person_of(pair.record) == person]
    return any(_taken_back(pair, snapshots) for pair in own)


def forms(identifier: Identifier, rules: Rules) -> set[Identifier]:
    """The identifier, and what the rules make of it."""
    kind, value = identifier
    is_lower = rules.document.namespace(kind).normalise == "lower"
    return {Identifier(kind, value), Identifier(kind, value.lower() if is_lower else value)}


def expected_persons(
    pairs: Iterable[Pair],
    snapshots: Mapping[int, MetadataSnapshot],
    pins: Iterable[PinRecord],
    rules: Rules,
    stored: Callable[[Identifier], Identifier],
) -> set[frozenset[Identifier]]:
    """The identifiers of each person by the events that are not taken back, as if the others had never been. `pins` are of
    identifiers in the clear; what is given is in the form that is `stored`, whose order decides between equals. The oldest and the newest event is so by its stamp, whose first part is its spec's priority."""
    stamps: dict[Identifier, dict[str, list[tuple[int, Moment]]]] = defaultdict(lambda: defaultdict(list))
    found: dict[LinkedPair, dict[Class, list[tuple[int, Moment]]]] = defaultdict(lambda: defaultdict(list))
    for person, priority, event in _seen(pairs, snapshots):
        for each in map(stored, event.identifiers):
            stamps[each][person].append((priority, event.moment))
        as_stored = event._replace(identifiers=tuple(map(stored, event.identifiers)))
        for pair, sighting in as_stored.sightings().items():
            found[pair][sighting.kind].append((priority, event.moment))
    first = {
        each: min(min(some)[1].ordinal for some in of_persons.values()) for each, of_persons in stamps.items()
    }
    evidence = [
        Link(pair, {kind: Span(min(some)[1], max(some)[1]) for kind, some in classes.items()})
        for pair, classes in found.items()
    ]
    decisions = [
        Pin(LinkedPair.of(stored(one), stored(other)), Decision(decision), at_ms, who)
        for low, high, at_ms, decision, who, _ in pins
        for one in forms(Identifier.parse(low), rules)
        for other in forms(Identifier.parse(high), rules)
        if one != other
    ]
    return set(map(frozenset, resolve(evidence, first, decisions, rules).partition))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def exact(value: Any) -> Any:
    """A value with its numbers as they are written, however they are held."""
    if isinstance(value, bool):
        return str(value)
    if _is_number(value):
        return Fraction(str(value))
    if isinstance(value, list):
        return [exact(each) for each in value]
    return {key: exact(each) for key, each in value.items()} if isinstance(value, dict) else value
