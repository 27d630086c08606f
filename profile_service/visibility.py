"""Visibility for a caller: an attribute whose authorization level is above the caller's clearance does not
exist for them.

`PolicyTree.level` decides the level of a path; every reader asks it through `Visibility`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cached_property

from idgraph.model import canonical, paths
from idgraph.model.classification import EncryptionLevel
from idgraph.model.snapshots import MetadataSnapshot
from transforms.schema.policy_tree import PolicyTree

MOST_KNOWN = 100_000
HIGHEST = 100

Granted = frozenset[tuple[str, int]]
"""Paths that a caller sees besides, with what is below them, as far as its level is at most this one."""
NOTHING_GRANTED: Granted = frozenset()


def restrictions(snapshot: MetadataSnapshot) -> str:
    """A hash of all that hides or protects something: an answer made under another hash may show attributes
    that are hidden now."""
    attributes = sorted(
        (each.path, each.authorization_level, str(each.encryption))
        for each in snapshot.attributes
        if each.authorization_level or each.encryption is not EncryptionLevel.NONE
    )
    types = sorted({(place.type, place.path) for spec in snapshot.specs for place in spec.identifiers})
    defaults = [snapshot.defaults.authorization_level, str(snapshot.defaults.encryption)]
    return hashlib.sha256(canonical.encode([attributes, types, defaults])).hexdigest()


class AuthorizationLevels:
    """The levels of attributes, as `tree` decides them, and of identifier types under one snapshot. Immutable."""

    def __init__(self, snapshot: MetadataSnapshot, tree: PolicyTree | None = None) -> None:
        tree = tree or PolicyTree(snapshot)
        self.of = tree.level
        """The level of an attribute, declared or not."""
        self.of_sealed = tree.level_of_sealed
        """The level of an attribute whose value is sealed."""
        self.own = tree.levels
        """The declared levels above 0."""
        self.default = snapshot.defaults.authorization_level
        """The level of attributes that nobody declared."""
        self.highest = tree.highest_level
        """The highest level that an attribute has."""
        self.highest_sealed = max(tree.highest_level, tree.sealing_level)
        """The highest level that a sealed value has."""
        self._of_types: dict[str, int] = {}
        self.places: dict[str, set[str]] = {}
        """By type of identifiers, the paths that active specs take them from."""
        for spec in snapshot.specs:
            for place in spec.identifiers:
                self.places.setdefault(place.type, set()).add(place.path)
                self._of_types[place.type] = max(self.of(place.path), self._of_types.get(place.type, 0))

    def of_type(self, kind: str) -> int:
        """The level of a type of identifiers: of all attributes that active specs take them from. The highest for those that
        no active spec takes: a spec that is retired shows nothing."""
        return self._of_types.get(kind, self.highest)


_SPELLING = re.compile(r"[/?+~'\"\\]")


def _spelled(found: re.Match[str]) -> str:
    """A path in a JSON pointer, or with the signs of a Jolt key, as its attribute's is."""
    return "." if found[0] == "/" else ""


class Visibility:
    """The attributes that one clearance sees, with those granted to a caller. Safe for several threads."""

    def __init__(
        self, levels: AuthorizationLevels, clearance: int, granted: Granted = NOTHING_GRANTED
    ) -> None:
        self._levels = levels
        self._granted = granted
        self.clearance = clearance
        self.is_total = levels.highest <= clearance
        """Whether no path is hidden."""
        self.sees_all_sealed = levels.highest_sealed <= clearance
        self._known: dict[str, bool] = {}
        self._known_sealed: dict[str, bool] = {}

    def sees(self, path: str) -> bool:
        """Whether the attribute exists for the caller."""
        if self.is_total:
            return True
        known = self._known.get(path)
        return self._decide(path, self._levels.of, self._known) if known is None else known

    def sees_sealed(self, path: str) -> bool:
        """Whether the attribute's value exists for the caller where it is sealed."""
        if self.sees_all_sealed:
            return True
        known = self._known_sealed.get(path)
        return self._decide(path, self._levels.of_sealed, self._known_sealed) if known is None else known

    def _decide(self, path: str, level_of: Callable[[str], int], known: dict[str, bool]) -> bool:
        needed = level_of(path)
        is_seen = needed <= self.clearance or any(
            needed <= level and paths.is_within(path, granted) for granted, level in self._granted
        )
        if len(known) < MOST_KNOWN:
            known[path] = is_seen
        return is_seen

    def names_hidden(self, text: str) -> bool:
        """Whether a text, as a message of a spec's error, names an attribute or a type of identifiers that is
        hidden. Any text may name one if attributes that nobody declared are hidden."""
        if self._levels.default > self.clearance:
            return True
        return self._hidden is not None and self._hidden.search(_SPELLING.sub(_spelled, text)) is not None

    @cached_property
    def _hidden(self) -> re.Pattern[str] | None:
        hidden = [] if self.is_total else [each for each in self._levels.own if not self.sees(each)]
        hidden += [] if self.is_total else [each for each in self._levels.places if not self.sees_type(each)]
        named = "|".join(re.escape(_SPELLING.sub(_spelled, each)) for each in hidden)
        return re.compile(rf"(?<!\w)(?:{named})(?!\w)", re.IGNORECASE) if named else None

    def sees_type(self, kind: str) -> bool:
        """Whether identifiers of this type exist for the caller."""
        if self._levels.of_type(kind) <= self.clearance:
            return True
        places = self._levels.places.get(kind) if self._granted else None
        return bool(places) and all(map(self.sees, places or ()))
