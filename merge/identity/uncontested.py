"""Persons of evidence in which no rule refuses anything: a short way to the partition that `resolve` comes to.

If all identifiers together keep every limit, each part of them does too. So no link is refused in whatever order they
are tried, and neither their order nor their classes need be known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from idgraph.model.identifiers import Identifier
from merge.identity.evidence import Pair
from merge.identity.rules import Rules

Partition = tuple[tuple[Identifier, ...], ...]


def uncontested(
    seen: Collection[Identifier],
    joining: Iterable[tuple[Identifier, Iterable[Identifier]]],
    rules: Rules,
    pairs: Iterable[Pair],
) -> Partition | None:
    """The partition by links that are strong enough, from one identifier to each of some others; None where rules may refuse
    some. `pairs` are those of all links, read where somebody may have too many neighbours. O(n) but for sorting each part."""
    kinds: dict[str, int] = {}
    for kind, _ in seen:
        kinds[kind] = kinds.get(kind, 0) + 1
    if any(sum([kinds.get(each, 0) for each in names]) > most for most, names in rules.bounds):
        return None
    size = rules.document.size_limit
    if size is not None and len(seen) > size and rules.counted(seen) > size:
        return None
    if len(seen) > rules.least_hub_limit and rules.hubs(set(pairs)):
        return None
    part_of = {each: [each] for each in seen}
    for low, others in joining:
        one = part_of.get(low)
        for high in others:
            other = part_of.get(high)
            if one is None or other is None or other is one:
                continue
            if len(one) < len(other):
                one, other = other, one
            one += other
            for each in other:
                part_of[each] = one
    parts = {id(part): part for part in part_of.values()}.values()
    return tuple(sorted([tuple(sorted(part)) for part in parts]))
