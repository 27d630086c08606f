"""What a profile must show of the path `n`, which no spec nests, under the plain policies: told from the events that
count by a few lines that know nothing of stamps, registers and cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from model import canonical
from model.snapshots import MetadataSnapshot
from tests.convergence.ledger import Pair, person_of

PATH = "n"
BOUND = 3
"""So many events of each source `sum` and `count` know here."""
NOTHING = object()
_SCOPES = ("", PATH)


class _Said(NamedTuple):
    """Events are ordered by `order`: spec's priority, time, source, id, and of one event the newer spec."""

    order: tuple[int, int, str, str, int]
    source: str
    event: tuple[int, str, str]
    policy: str
    value: Any
    replaces: bool
    """Whether it takes away what its source said of the path before."""


def expected(
    person: str, pairs: Iterable[Pair], snapshots: Mapping[int, MetadataSnapshot], policy: str
) -> Any:
    """The value under `latest`, `sum` or `count`; NOTHING where there is none. Where the policy has nothing to go by,
    the latest value shows."""
    said = [_said(pair, snapshots[pair.version]) for pair in pairs if person_of(pair.record) == person]
    replaced: dict[str, tuple[Any, ...]] = {}
    for each in said:
        if each.replaces:
            replaced[each.source] = max(each.order[:4], replaced.get(each.source, each.order[:4]))
    there = [each for each in said if each.value is not NOTHING]

    def stays(each: _Said) -> bool:
        return each.order[:4] >= replaced.get(each.source, each.order[:4])

    if policy in ("sum", "count"):
        counted = [each for each in _counted(there, policy) if stays(each)]
        newest = [each.value for each in _bounded(counted)]
        if newest:
            return sum(map(exact, newest)) if policy == "sum" else len(newest)
    latest = max(there, default=None, key=lambda each: each.order)
    return latest.value if latest and latest.value is not None and stays(latest) else NOTHING


def _said(pair: Pair, snapshot: MetadataSnapshot) -> _Said:
    payload = canonical.decode(pair.record.value)
    source = pair.record.source
    (spec,) = [each for each in snapshot.specs if each.source == source]
    (attribute,) = [each for each in snapshot.attributes if each.path == PATH]
    return _Said(
        (spec.priority, payload["ts"], source, payload["id"], spec.version),
        source,
        (payload["ts"], source, payload["id"]),
        str(attribute.policy),
        payload.get(PATH, NOTHING),
        spec.mode == "snapshot" and spec.scope in _SCOPES,
    )


def _counted(there: Iterable[_Said], policy: str) -> list[_Said]:
    """Each event once, and only those behind the last null."""
    meant = sorted((each for each in there if each.policy == policy), key=lambda each: each.order)
    nulls = [each.order for each in meant if each.value is None]
    once = {each.event: each for each in meant if policy == "count" or type(each.value) in (int, float)}
    return [each for each in once.values() if not nulls or each.order > nulls[-1]]


def _bounded(counted: Iterable[_Said]) -> Iterable[_Said]:
    by_source = defaultdict[str, list[_Said]](list)
    for each in sorted(counted, key=lambda each: each.order):
        by_source[each.source].append(each)
    return [each for some in by_source.values() for each in some[-BOUND:]]


def exact(value: Any) -> Any:
    """A number as it is written; other values as they are."""
    return Decimal(str(value)) if type(value) in (int, float) else value
