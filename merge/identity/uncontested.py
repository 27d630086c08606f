"""Persons of evidence in which no rule refuses anything: a short way to the partition that `resolve` comes to.

Where all identifiers together keep every limit, each part of them does too. So no link is refused in whatever order they
are tried, and neither their order nor their classes need be known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

from idgraph.model.identifiers import Identifier
from merge.identity.evidence import Pair
from merge.identity.rules import Rules

Partition = tuple[tuple[Identifier, ...], ...]


def uncontested(
    seen: Collection[Identifier],
    joining: Iterable[tuple[Identifier, Identifier]],
    rules: Rules,
    pairs: Callable[[], Iterable[Pair]],
) -> Partition | None:
    """The partition by links that are strong enough; None where rules may refuse some. `pairs` returns those of all links,
    each once, which a large person may need. O(n) but for sorting each part."""
    if any(most is not None and found > most for most, found in _limited(seen, rules)):
        return None
    # Nobody has more neighbours than there are identifiers.
    if rules.counted(seen) > rules.least_hub_limit and rules.hubs(pairs()):
        return None
    part_of = {each: [each] for each in seen}
    for low, high in joining:
        one, other = part_of.get(low), part_of.get(high)
        if one is None or other is None or one is other:
            continue
        if len(one) < len(other):
            one, other = other, one
        one += other
        for each in other:
            part_of[each] = one
    parts = {id(part): part for part in part_of.values()}.values()
    return tuple(sorted(tuple(sorted(part)) for part in parts))


def _limited(seen: Collection[Identifier], rules: Rules) -> Iterator[tuple[int | None, int]]:
    """Limits of each kind, with as many as can count against them."""
    yield rules.document.size_limit, rules.counted(seen)
    kinds = Counter([each[0] for each in seen])
    limited: Counter[int] = Counter()
    for kind, found in kinds.items():
        for place in rules.limits_of.get(kind, ()):
            limited[place] += found
        if rules.connecting:
            yield from ((rules.connects(each, kind), found) for each in kinds)
    yield from ((rules.limits[place].most, found) for place, found in limited.items())
