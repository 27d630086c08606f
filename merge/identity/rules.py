"""Identity rules, made ready: identifiers normalised and blocked, limits by namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from idgraph.model.identifiers import HASHED_PREFIX, Identifier
from idgraph.model.identity_rules import (
    DAY_MS,
    SEARCHED_CHARACTERS,
    Finder,
    IdentityRules,
    NamespaceRules,
    Owner,
    finders,
)
from merge.identity.evidence import Class, Link, Moment, Pair
from merge.identity.normal_forms import form_of, normalise, text_of


class CountLimit(NamedTuple):
    """At most `most` identifiers of some namespaces in one person; within `window_ms` where that is given."""

    rule: str
    names: tuple[str, ...]
    most: int
    window_ms: int | None
    priority: int


class Order(NamedTuple):
    """The place of a link in the total order in which links are tried; the smallest first."""

    weakness: float
    moves: bool
    recency: int
    better: int
    worse: int
    moment: Moment
    low: Identifier
    high: Identifier


class _Ready(NamedTuple):
    """The rules of a namespace for one value: its normal form, None for the value itself, and what is blocked."""

    rules: NamespaceRules
    form: Callable[[str, NamespaceRules], str] | None
    values: set[str]
    patterns: Sequence[Finder]


class Rules:
    """Compiled identity rules. Pure; safe for several threads."""

    def __init__(self, document: IdentityRules | None = None) -> None:
        self.document = document or IdentityRules()
        self._ready: dict[str, _Ready] = {}
        self.limits = list(self._limits())
        connecting = [each.connects.items() for each in self.document.namespaces.values()]
        self._bounds = [(each.most, each.names) for each in self.limits]
        self._bounds += [(most, (other,)) for each in connecting for other, most in each]
        """Numbers of identifiers of some namespaces that together break no limit of theirs, whatever joins them."""
        self._unique = frozenset(
            name for name, rules in self.document.namespaces.items() if rules.largest == 1
        )
        own = [each.hub_limit for each in self.document.namespaces.values()]
        hub_limits = [each for each in (self.document.hub_limit, *own) if each is not None]
        self.least_hub_limit = min(hub_limits, default=float("inf"))
        self._most = min(self.least_hub_limit, self.document.size_limit or float("inf"))
        self.joins_all = self.document.least_strength <= 0
        self._uncounted = frozenset(
            name for name, rules in self.document.namespaces.items() if not rules.counted
        )

    def _limits(self) -> Iterator[CountLimit]:
        for name, rules in self.document.namespaces.items():
            if rules.largest is not None:
                yield self._limit((name,), rules.largest, None)
        for limit in self.document.limits:
            window = None if limit.window_days is None else round(limit.window_days * DAY_MS)
            yield self._limit(limit.of, limit.max, window)

    def _limit(self, names: tuple[str, ...], most: int, window_ms: int | None) -> CountLimit:
        kind = "max" if window_ms is None else "window"
        priority = min(self.document.namespace(name).priority for name in names)
        return CountLimit(f"{kind}:{'+'.join(names)}", names, most, window_ms, priority)

    def identifier(self, namespace: str, value: str) -> Identifier | None:
        """An identifier as events bring it, normalised; None where it is empty or blocked."""
        return self.normal(Identifier(namespace, value))

    def normal(self, identifier: Identifier) -> Identifier | None:
        """The same of an identifier, which is returned itself if it is normal."""
        # For each identifier of each event: calls, and objects like the given one, take longer than all else.
        namespace, value = identifier
        rules, form, values, patterns = self._ready.get(namespace) or self._made_ready(namespace)
        text = value.strip() if value.isascii() and value.isprintable() else text_of(value)
        normal = text if form is None else form(text, rules)
        if not normal:
            return None
        for each in (normal,) if text == normal else (normal, text):
            if each in values:
                return None
            for find in patterns:
                if find(each, 0, SEARCHED_CHARACTERS):
                    return None
        return identifier if normal == value else Identifier(namespace, normal)

    def _made_ready(self, namespace: str) -> _Ready:
        rules = self.document.namespace(namespace)
        blocked = [each for each in self.document.blocked if each.namespace in (None, namespace)]
        values = {text_of(each.value) for each in blocked if each.value is not None}
        patterns = finders(each.pattern for each in blocked if each.pattern is not None)
        made = self._ready[namespace] = _Ready(rules, form_of(rules), values, patterns)
        return made

    def hub_limit(self, namespace: str) -> int | None:
        """The number of distinct neighbours that an identifier may have; None if that is not limited."""
        own = self.document.namespace(namespace).hub_limit
        return self.document.hub_limit if own is None else own

    def hubs(self, pairs: Iterable[Pair]) -> set[Identifier]:
        """The identifiers of distinct pairs that have more neighbours than their hub limit allows."""
        neighbours = Counter(
            each
            for low, high in pairs
            for each, other in ((low, high), (high, low))
            if other.type not in self._uncounted
        )
        limits = ((each, self.hub_limit(each.type), count) for each, count in neighbours.items())
        return {each for each, limit, count in limits if limit is not None and count > limit}

    def allows(self, identifiers: Collection[str]) -> bool:
        """Whether any links of these identifiers, `type:value`, join without a refusal, since all of them together keep every
        limit. False where only the links say so."""
        if not self.joins_all or len(identifiers) > self._most:
            return False
        return self.keep_limits(text.partition(":")[0] for text in identifiers)

    def keep_limits(self, namespaces: Iterable[str]) -> bool:
        """Whether identifiers of these namespaces, of which each stands once for each identifier, keep every limit together."""
        kinds: dict[str, int] = {}
        for each in namespaces:
            kinds[each] = kinds.get(each, 0) + 1
        for most, names in self._bounds:
            if len(names) == 1:
                if kinds.get(names[0], 0) > most:
                    return False
            elif sum([kinds.get(each, 0) for each in names]) > most:
                return False
        return True

    def counted(self, identifiers: Collection[Identifier]) -> int:
        """The number of identifiers that count as neighbours, and for the size of a person."""
        if not self._uncounted:
            return len(identifiers)
        return sum(each.type not in self._uncounted for each in identifiers)

    def connects(self, namespace: str, other: str) -> int | None:
        """The number of identifiers of `other` that one of `namespace` may join; None if that is not limited."""
        return self.document.namespace(namespace).connects.get(other)

    def belongs_to_nobody(self, namespace: str) -> bool:
        """Whether an identifier that several persons claim joins none of them."""
        return self.document.namespace(namespace).owned_by is Owner.NONE

    def moves(self, pair: Pair) -> bool:
        """Whether the newest sighting of a link decides, not the oldest."""
        return any(self.document.namespace(each.type).owned_by is Owner.LATEST for each in pair)

    def order(self, link: Link) -> Order | None:
        """The link's turn; None where all its evidence contradicts itself."""
        counted = [each for each in link.classes.items() if not self._contradicts(each[0], link.pair)]
        if not counted:
            return None
        low, high = link.pair
        first, second = self.document.namespace(low.type), self.document.namespace(high.type)
        moves = self.moves(link.pair)
        oldest = min(span.oldest for _, span in counted)
        newest = max(span.newest for _, span in counted)
        return Order(
            weakness=-max(self.strength(kind) for kind, _ in counted),
            moves=moves,
            recency=-newest.ordinal if moves else 0,
            better=min(first.priority, second.priority),
            worse=max(first.priority, second.priority),
            moment=newest if moves else oldest,
            low=low,
            high=high,
        )

    def joins(self, pair: Pair, kind: Class) -> bool:
        """Whether sightings of this class let a link have a turn and are strong enough."""
        is_strong = self.joins_all or self.strength(kind) >= self.document.least_strength
        return is_strong and not self._contradicts(kind, pair)

    def strength(self, kind: Class) -> float:
        """The strength of sightings of a class."""
        return self.document.strength.get(kind.source, 1.0) if kind.strength is None else kind.strength

    def _contradicts(self, kind: Class, pair: Pair) -> bool:
        """Whether the events carried two values of a namespace of this pair that a person has one value of."""
        return bool(kind.repeated) and any(
            each.type in kind.repeated and each.type in self._unique for each in pair
        )

    def forms(self, identifier: Identifier) -> set[Identifier]:
        """A stored identifier, and its normal form of today; that of a keyed hash nobody knows."""
        kind, value = identifier
        today = "" if value.startswith(HASHED_PREFIX) else normalise(value, self.document.namespace(kind))
        return {identifier, Identifier(kind, today or value)}

    def identifiers(self, named: Iterable[tuple[str, str]]) -> tuple[Identifier, ...]:
        """Normalised, without blocked ones and repetitions, in the order given."""
        found = (self.identifier(name, value) for name, value in named)
        return tuple(dict.fromkeys(each for each in found if each is not None))


def peak(times: Sequence[int], window_ms: int) -> int:
    """The most of some sorted times that lie in one half-open window."""
    most = start = 0
    for end, time in enumerate(times):
        while time - times[start] >= window_ms:
            start += 1
        most = max(most, end - start + 1)
    return most
