"""Identity rules, made ready: normalising and blocking identifiers, limits by namespace."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from idgraph.model.identifiers import HASHED_PREFIX, Identifier
from idgraph.model.identity_rules import (
    DAY_MS,
    SEARCHED_CHARACTERS,
    IdentityRules,
    NamespaceRules,
    Normalisation,
    Owner,
)
from merge.identity.evidence import Class, Link, Moment, Pair

_NOT_DIGITS = re.compile(r"[^0-9]")
_ADDRESS = re.compile(r"<([^<>@\s]+@[^<>\s]+)>\s*$")
_LEADING_ZEROS = re.compile(r"\A0+(?=[0-9])")


def normalise(value: str, rules: NamespaceRules) -> str:
    """The form of a value in which it is compared, hashed and stored; empty where nothing is left of it.

    Idempotent: `normalise(normalise(v)) == normalise(v)`. Used for events, look-up, search, erasure and pins alike.
    """
    value = value.strip()
    match rules.normalise:
        case Normalisation.EXACT:
            return value
        case Normalisation.LOWER:
            return value.lower()
        case Normalisation.EMAIL | Normalisation.EMAIL_PLUS:
            return _email(value, rules.normalise is Normalisation.EMAIL_PLUS)
        case Normalisation.PHONE:
            return _phone(value, rules.country)
        case Normalisation.DIGITS:
            return _NOT_DIGITS.sub("", value)
        case Normalisation.ZERO_PADDED:
            return _LEADING_ZEROS.sub("", value) if value.isascii() and value.isdigit() else value


def _email(value: str, drops_tag: bool) -> str:
    named = _ADDRESS.search(value)
    value = unicodedata.normalize("NFC", named[1] if named else value).lower()
    local, at, domain = value.rpartition("@")
    return f"{local.partition('+')[0] or local}@{domain}" if drops_tag and at else value


def _phone(value: str, country: str) -> str:
    """E.164. What is no phone number stays as it is: it is equal to nothing else."""
    import phonenumbers

    region = phonenumbers.region_code_for_country_code(int(country))
    number = f"+{value[2:]}" if value.startswith("00") else value
    try:
        parsed = phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return value if any(map(str.isdigit, value)) else ""
    found = phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164)
    # The library may take a zero more away when it reads its own form: each is then the same number.
    return found if found == value else _phone(found, country)


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


class Rules:
    """Compiled identity rules. Pure; safe for several threads."""

    def __init__(self, document: IdentityRules | None = None) -> None:
        self.document = document or IdentityRules()
        self._blocked = [
            (each.namespace, each.value, re.compile(each.pattern) if each.pattern is not None else None)
            for each in self.document.blocked
        ]
        self.limits = list(self._limits())
        connecting = [each.connects.items() for each in self.document.namespaces.values()]
        self.bounds = [(each.most, each.names) for each in self.limits]
        self.bounds += [(most, (other,)) for each in connecting for other, most in each]
        """How many identifiers of some namespaces together break no limit of theirs, whatever joins them."""
        self._unique = frozenset(
            name for name, rules in self.document.namespaces.items() if rules.largest == 1
        )
        own = [each.hub_limit for each in self.document.namespaces.values()]
        hub_limits = [each for each in (self.document.hub_limit, *own) if each is not None]
        self.least_hub_limit = min(hub_limits, default=float("inf"))
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
        rules = self.document.namespace(namespace)
        stripped, normal = value.strip(), normalise(value, rules)
        if not normal or any(self._is_blocked(namespace, each) for each in {stripped, normal}):
            return None
        return Identifier(namespace, normal)

    def _is_blocked(self, namespace: str, value: str) -> bool:
        return any(
            (name is None or name == namespace)
            and (
                value == blocked
                if pattern is None
                else pattern.search(value, 0, SEARCHED_CHARACTERS) is not None
            )
            for name, blocked, pattern in self._blocked
        )

    def hub_limit(self, namespace: str) -> int | None:
        """How many distinct neighbours an identifier may have; None if that is not limited."""
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

    def counted(self, identifiers: Collection[Identifier]) -> int:
        """How many of some identifiers count as neighbours, and for the size of a person."""
        if not self._uncounted:
            return len(identifiers)
        return sum(each.type not in self._uncounted for each in identifiers)

    def connects(self, namespace: str, other: str) -> int | None:
        """How many identifiers of `other` one of `namespace` may join; None if that is not limited."""
        return self.document.namespace(namespace).connects.get(other)

    def belongs_to_nobody(self, namespace: str) -> bool:
        """Whether an identifier that several persons claim joins none of them."""
        return self.document.namespace(namespace).owned_by is Owner.NONE

    def moves(self, pair: Pair) -> bool:
        """Whether the newest sighting of a link decides, not the oldest."""
        return any(self.document.namespace(each.type).owned_by is Owner.LATEST for each in pair)

    def order(self, link: Link) -> Order | None:
        """When the link's turn is; None where all its evidence contradicts itself."""
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
        """How strong sightings of a class are."""
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
