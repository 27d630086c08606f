"""Which keys of an object a spec's wildcards match: worked out once for all objects with the same keys.

Events of one source have few shapes, and to match a key with several wildcards is dear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from idgraph import native
from transforms.spec.jolt.stars import LONG_KEY, Star

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

    return native.functions.planner(plan) if native.functions else plan
