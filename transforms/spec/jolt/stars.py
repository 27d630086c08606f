"""Keys with `*`: matched in one pass from left to right, so that no key can make a match slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from idgraph.model.errors import SpecError
from transforms.spec.budget import CHARACTERS_A_STEP, pay

GROUPS_A_STEP = 4
LONG_KEY = 8_192
"""Characters of a key that cost nothing, so that what is remembered of shorter ones costs as much as what is not."""
_LINE_ENDS = frozenset("\n\r\u0085\u2028\u2029")


@dataclass(frozen=True, slots=True)
class Star:
    """A key with one or more `*`, each standing for at least one character.

    A lone `*` has no groups (`&(0,1)` is an error there, as in Jolt) and also matches the empty key.
    """

    canonical: str
    literals: tuple[str, ...] = field(init=False)
    groups: int = field(init=False)
    one_line: bool = field(init=False)
    """Three and more `*` do not match across line ends: Jolt uses a regular expression there."""

    def __post_init__(self) -> None:
        literals = tuple(self.canonical.split("*"))
        stars = len(literals) - 1
        if stars == 2 and not literals[1] and not literals[2]:
            raise SpecError(f"the key '{self.canonical}' needs text between its two '*'")
        object.__setattr__(self, "literals", literals)
        object.__setattr__(self, "groups", 0 if self.canonical == "*" else stars)
        object.__setattr__(self, "one_line", stars > 2)

    @property
    def matches_all(self) -> bool:
        return self.groups == 0

    def match(self, key: str) -> tuple[str, ...] | None:
        """The text of each `*`, or None. If there are several ways to match, early `*` get as little as they can."""
        if self.groups == 0:
            return ()
        first, *middle, last = self.literals
        end = len(key) - len(last)
        start = len(first)
        # Each star needs a character, so that the ends cannot overlap. (`a**b` wants three: so does Jolt.)
        needed = 3 if middle == [""] else self.groups
        if end - start < needed or not key.startswith(first) or not key.endswith(last):
            return None
        if end > LONG_KEY:
            pay(end // CHARACTERS_A_STEP)
        found: list[str] = []
        for literal in middle:
            at = key.find(literal, start + 1, end - 1)
            if at < 0:
                return None
            found.append(key[start:at])
            start = at + len(literal)
        if end <= start:
            return None
        found.append(key[start:end])
        if self.one_line and any(not _LINE_ENDS.isdisjoint(part) for part in found):
            return None
        return tuple(found)


def effort(stars: Iterable[Star]) -> int:
    """The cost of trying one key with all of these, as `count_steps` counts it."""
    return sum(star.groups for star in stars)


def precedence(star: Star) -> tuple[int, int, bytes]:
    """Sorts the most specific first: many stars, then long keys, then by text."""
    rank = 4 if star.matches_all else 3 if star.groups == 1 else 2 if star.groups == 2 else 1
    return rank, -len(star.canonical), star.canonical.encode("utf-16-be", "surrogatepass")


_MAX_PLANS = 256
_MAX_KEYS = 512
_MAX_CHARACTERS = LONG_KEY

NO_GROUPS: tuple[str, ...] = ()


Match: TypeAlias = "tuple[str, int, tuple[str, ...]]"
"""A key, which of the choices took it, and what its `*` stand for. No named tuple: those are slow to unpack."""

Plan: TypeAlias = "list[Match]"
MatchKey: TypeAlias = Callable[[str], "tuple[int, tuple[str, ...]] | None"]


def key_matcher(literals: list[str], stars: list[Star]) -> MatchKey:
    """The function that finds the choice that takes a key: literal keys are the first choices, in their
    order; then come the wildcards, of which the first that matches takes it."""
    exact = {key: (number, NO_GROUPS) for number, key in enumerate(literals)}
    rest = [(number, star.match) for number, star in enumerate(stars, len(literals))]

    def match(key: str) -> tuple[int, tuple[str, ...]] | None:
        found = exact.get(key)
        if found is not None:
            return found
        for number, matches in rest:
            groups = matches(key)
            if groups is not None:
                return number, groups
        return None

    return match


def planner(match: MatchKey) -> Callable[[dict[str, Any]], Plan]:
    """The function that gives the matching keys of an object in their order."""
    plans: dict[tuple[str, ...], Plan] = {}
    last: tuple[tuple[str, ...], Plan] = ((), [])

    def make(keys: tuple[str, ...]) -> Plan:
        nonlocal last
        made = [(key, *found) for key in keys if (found := match(key)) is not None]
        if len(keys) <= _MAX_KEYS and sum(map(len, keys)) <= _MAX_CHARACTERS:
            if len(plans) >= _MAX_PLANS:
                # Hostile keys must not fill the memory; the few real shapes are soon here again.
                plans.clear()
            plans[keys] = made
            last = keys, made
        return made

    def plan(value: dict[str, Any]) -> Plan:
        nonlocal last
        keys = tuple(value)
        known, found = last
        # To compare is cheaper than to hash, and as a rule the keys are those of the event before.
        if keys == known:
            return found
        made = plans.get(keys)
        if made is None:
            return make(keys)
        last = keys, made
        return made

    return plan
