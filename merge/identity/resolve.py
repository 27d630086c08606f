"""The partition of identifiers into persons: a pure function of evidence, pins and rules.

Links are tried in a total order; each joins the two parts it lies between unless a pin or a limit forbids that. So
the result depends on the set of links alone. The accepted links are a forest: the path between two identifiers says
why they are one person, a violation why two are not.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeVar

from idgraph.model.identifiers import Identifier
from merge.identity.evidence import Link, Pair
from merge.identity.rules import CountLimit, Order, Rules, peak

T = TypeVar("T")


class Decision(StrEnum):
    """A decision by a person on a pair; `none` takes an earlier decision back."""

    ALWAYS = "always"
    NEVER = "never"
    NONE = "none"


class Pin(NamedTuple):
    """A person's decision on a pair. The newest counts: by time (epoch milliseconds), then decision, then who."""

    pair: Pair
    decision: Decision
    at_ms: int
    who: str = ""
    why: str = ""


class Violation(NamedTuple):
    """A link that the rules refused, and whose identifiers are different persons. `rule` is `never`, `hub`, `size`,
    `contested`, `max:NAMESPACE`, `window:NAMESPACE` or `connects:NAMESPACE`."""

    pair: Pair
    rule: str


class Resolution(NamedTuple):
    """`partition`: each part sorted, the parts sorted. `accepted`: the pairs that joined, pins included, a spanning
    forest of the parts. `violations` sorted by pair."""

    partition: tuple[tuple[Identifier, ...], ...]
    accepted: tuple[Pair, ...]
    violations: tuple[Violation, ...]


def resolve(
    links: Iterable[Link],
    first_seen: Mapping[Identifier, int],
    pins: Iterable[Pin] = (),
    rules: Rules | None = None,
    hubs: Iterable[Identifier] = (),
) -> Resolution:
    """Partition the identifiers of `first_seen`, each with the ordinal of its first sighting. `hubs` are known to have
    more neighbours than these links show.

    Pure. The order of the arguments' content makes no difference. O(n log n) for n links, repeated for each class of
    strength that the size limit refuses.
    """
    rules = rules or Rules()
    known = list(links)
    ordered = sorted(order for link in known if (order := rules.order(link)) is not None)
    pinned = _in_force(pins, first_seen)
    refused = _hubs(known, rules, hubs)
    while True:
        attempt = _Attempt(first_seen, rules, refused)
        attempt.run(ordered, pinned)
        further = _contested(attempt, pinned, rules) or _too_large(attempt, ordered, rules)
        if not further:
            return attempt.resolution()
        refused = {**refused, **further}


def _in_force(pins: Iterable[Pin], seen: Mapping[Identifier, int]) -> list[Pin]:
    newest: dict[Pair, Pin] = {}
    for pin in pins:
        present = newest.get(pin.pair)
        if present is None or _age(present) < _age(pin):
            newest[pin.pair] = pin
    there = (pin for pin in newest.values() if pin.pair.low in seen and pin.pair.high in seen)
    return sorted(there, key=lambda pin: (-pin.at_ms, pin.pair))


def _age(pin: Pin) -> tuple[int, str, str, str]:
    return pin.at_ms, pin.decision.value, pin.who, pin.why


def _hubs(links: Sequence[Link], rules: Rules, known: Iterable[Identifier]) -> dict[Pair, str]:
    hubs = {*known, *rules.hubs(link.pair for link in links)}
    return {link.pair: "hub" for link in links if not hubs.isdisjoint(link.pair)} if hubs else {}


class _Attempt:
    """One pass over the links. `excluded` links join nothing, each for its reason."""

    def __init__(
        self, first_seen: Mapping[Identifier, int], rules: Rules, excluded: Mapping[Pair, str]
    ) -> None:
        self._rules = rules
        self._excluded = excluded
        self._parent = {each: each for each in first_seen}
        self._members = {each: [each] for each in first_seen}
        self._never: dict[Identifier, set[Identifier]] = {}
        self._counts = {each: _counts(each, first_seen[each], rules) for each in first_seen}
        self._connected: Counter[tuple[Identifier, str]] = Counter()
        self._accepted: list[Pair] = []
        self._tried: set[Pair] = set()
        self.reasons: dict[Pair, str] = {}

    def run(self, ordered: Sequence[Order], pins: Sequence[Pin]) -> None:
        """Join what may be joined."""
        for pin in pins:
            if pin.decision is Decision.NEVER:
                self._keep_apart(*pin.pair)
        for pin in pins:
            if pin.decision is Decision.ALWAYS and not self._is_kept_apart(*self._roots(pin.pair)):
                self._join(pin.pair)
        for order in ordered:
            if -order.weakness >= self._rules.document.least_strength:
                self._try(Pair(order.low, order.high))

    def _try(self, pair: Pair) -> None:
        if pair.low not in self._parent or pair.high not in self._parent:
            return
        self._tried.add(pair)
        reason = self._excluded.get(pair) or self._reason(pair)
        if reason is not None:
            self.reasons[pair] = reason
            return
        self._join(pair)
        self._connected[pair.low, pair.high.type] += 1
        self._connected[pair.high, pair.low.type] += 1

    def _reason(self, pair: Pair) -> str | None:
        """The reason why a link may not join; None if it may, or if its identifiers are together already."""
        one, other = self._roots(pair)
        if one == other:
            return None
        if self._is_kept_apart(one, other):
            return "never"
        broken = [
            (limit.priority, place, limit.rule)
            for place, limit in enumerate(self._rules.limits)
            if _exceeds(limit, self._counts[one].get(place), self._counts[other].get(place))
        ]
        if broken:
            return min(broken)[2]
        for mine, its in ((pair.low, pair.high), (pair.high, pair.low)):
            most = self._rules.connects(mine.type, its.type)
            if most is not None and self._connected[mine, its.type] >= most:
                return f"connects:{its.type}"
        return None

    def _roots(self, pair: Pair) -> tuple[Identifier, Identifier]:
        return self.find(pair.low), self.find(pair.high)

    def find(self, identifier: Identifier) -> Identifier:
        """The identifier that stands for the part."""
        return root_of(self._parent, identifier)

    def _keep_apart(self, one: Identifier, other: Identifier) -> None:
        self._never.setdefault(one, set()).add(other)
        self._never.setdefault(other, set()).add(one)

    def _is_kept_apart(self, one: Identifier, other: Identifier) -> bool:
        return other in self._never.get(one, ())

    def _join(self, pair: Pair) -> None:
        one, other = self._roots(pair)
        if one == other:
            return
        self._accepted.append(pair)
        if len(self._members[one]) < len(self._members[other]):
            one, other = other, one
        self._parent[other] = one
        self._members[one] += self._members.pop(other)
        for place, times in self._counts.pop(other).items():
            mine = self._counts[one].setdefault(place, [])
            for time in times:
                insort(mine, time)
        for apart in self._never.pop(other, ()):
            self._never[apart].discard(other)
            self._keep_apart(one, apart)

    def links_of(self, identifiers: set[Identifier], reason: str) -> dict[Pair, str]:
        """The links of some identifiers that joined or could have, each with the reason why it does not any more."""
        return {
            pair: reason
            for pair in self._tried
            if pair not in self._excluded and not identifiers.isdisjoint(pair)
        }

    def may_join(self, pair: Pair) -> bool:
        """Whether nothing excluded a link before it was tried."""
        return pair in self._tried and pair not in self._excluded

    def parts(self) -> list[list[Identifier]]:
        """The identifiers of each part."""
        return list(self._members.values())

    def resolution(self) -> Resolution:
        """The result."""
        violations = (
            Violation(pair, rule)
            for pair, rule in self.reasons.items()
            if self.find(pair.low) != self.find(pair.high)
        )
        partition = sorted(tuple(sorted(part)) for part in self._members.values())
        return Resolution(tuple(partition), tuple(self._accepted), tuple(sorted(violations)))


def root_of(parents: dict[T, T], one: T) -> T:
    """The element that stands for the set of another one, in a forest of disjoint sets."""
    while (parent := parents[one]) != one:
        parents[one] = one = parents[parent]
    return one


def _counts(identifier: Identifier, first_seen: int, rules: Rules) -> dict[int, list[int]]:
    """By place of a limit, the sorted times of first sighting of what it counts in one part."""
    return {place: [first_seen] for place, each in enumerate(rules.limits) if identifier.type in each.names}


def _exceeds(limit: CountLimit, one: list[int] | None, other: list[int] | None) -> bool:
    """Whether the two together break a limit, further than one of them does by itself."""
    if not one or not other:
        return False
    if limit.window_ms is None:
        return len(one) + len(other) > limit.most
    if len(one) + len(other) <= limit.most:
        return False
    peaks = (peak(each, limit.window_ms) for each in (one, other))
    return peak(sorted(one + other), limit.window_ms) > max(limit.most, *peaks)


def _contested(attempt: _Attempt, pins: Iterable[Pin], rules: Rules) -> dict[Pair, str]:
    """All links of identifiers that several persons claim and that belong to nobody then.

    A refused link is a claim unless it moves, or a pin denies that very pair. A limit that counts the identifier's own
    namespace says nothing of who has it.
    """
    denied = {pin.pair for pin in pins if pin.decision is Decision.NEVER}
    contested = {
        each
        for pair, reason in attempt.reasons.items()
        if reason.startswith(("max:", "window:", "connects:", "never"))
        and pair not in denied
        and not rules.moves(pair)
        and attempt.find(pair.low) != attempt.find(pair.high)
        for each in pair
        if rules.belongs_to_nobody(each.type) and each.type not in reason.partition(":")[2].split("+")
    }
    return attempt.links_of(contested, "contested")


def _too_large(attempt: _Attempt, ordered: Sequence[Order], rules: Rules) -> dict[Pair, str]:
    """The weakest links inside each part that has too many identifiers."""
    limit = rules.document.size_limit
    large = {
        attempt.find(part[0]) for part in attempt.parts() if limit is not None and rules.counted(part) > limit
    }
    if not large:
        return {}
    inside: dict[Identifier, list[Order]] = {}
    for order in ordered:
        pair = Pair(order.low, order.high)
        root = attempt.find(order.low)
        if root in large and root == attempt.find(order.high) and attempt.may_join(pair):
            inside.setdefault(root, []).append(order)
    return {
        Pair(order.low, order.high): "size"
        for orders in inside.values()
        for weakest in [max(each.weakness for each in orders)]
        for order in orders
        if order.weakness == weakest
    }
