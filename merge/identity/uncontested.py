"""Persons of evidence in which no rule refuses anything: a short way to the partition that `resolve` comes to.

Where every part of all links together keeps every limit, each smaller part on the way to it does too. So no link is refused
in whatever order they are tried, and their order need not be known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from idgraph.model.identifiers import Identifier
from merge.identity.evidence import Class, Pair
from merge.identity.rules import Rules, peak

Partition = tuple[tuple[Identifier, ...], ...]


def uncontested(
    links: Mapping[Pair, Iterable[Class]], first_seen: Mapping[Identifier, int], rules: Rules
) -> Partition | None:
    """`resolve(links, first_seen, (), rules).partition` where that has no violations; None where it may have some. Of a
    link it needs the classes of its sightings alone. O(n) but for sorting each part."""
    if _may_have_hubs(links, rules):
        return None
    joining = [pair for pair, kinds in links.items() if rules.joins(pair, kinds)]
    if rules.connecting and _exceeds_connects(joining, rules):
        return None
    parts = _parts(joining, first_seen)
    if not all(_keeps_limits(part, first_seen, rules) for part in parts):
        return None
    return tuple(sorted(tuple(sorted(part)) for part in parts))


def _may_have_hubs(links: Collection[Pair], rules: Rules) -> bool:
    # Nobody has more neighbours than there are links.
    if rules.least_hub_limit is None or len(links) <= rules.least_hub_limit:
        return False
    return bool(rules.hubs(links))


def _exceeds_connects(joining: Sequence[Pair], rules: Rules) -> bool:
    connected: Counter[tuple[Identifier, str]] = Counter()
    for low, high in joining:
        connected[low, high.type] += 1
        connected[high, low.type] += 1
    limits = ((rules.connects(mine.type, its), count) for (mine, its), count in connected.items())
    return any(most is not None and count > most for most, count in limits)


def _parts(joining: Iterable[Pair], first_seen: Mapping[Identifier, int]) -> list[list[Identifier]]:
    part_of = {each: [each] for each in first_seen}
    for low, high in joining:
        one, other = part_of.get(low), part_of.get(high)
        if one is None or other is None or one is other:
            continue
        if len(one) < len(other):
            one, other = other, one
        one += other
        for each in other:
            part_of[each] = one
    return list({id(part): part for part in part_of.values()}.values())


def _keeps_limits(part: Sequence[Identifier], first_seen: Mapping[Identifier, int], rules: Rules) -> bool:
    if len(part) == 1:
        return True
    largest = rules.document.size_limit
    if largest is not None and rules.counted(part) > largest:
        return False
    counted: dict[int, list[Identifier]] = defaultdict(list)
    for each in part:
        for place in rules.limits_of(each.type):
            counted[place].append(each)
    for place, found in counted.items():
        limit = rules.limits[place]
        if len(found) > limit.most and (
            limit.window_ms is None
            or peak(sorted(first_seen[each] for each in found), limit.window_ms) > limit.most
        ):
            return False
    return True
