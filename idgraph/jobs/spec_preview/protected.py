"""The attributes that get protected values of an event, by the spec in force and by its new version. No
preview may show or count them.

A draft is a program that its author runs over values that they may not see. The uses of a value are therefore
found by the specs' text, never by the mapping's output. Two versions that put one value somewhere in
different ways differ there, whether or not the results do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from itertools import takewhile
from typing import Any, NamedTuple

from idgraph.model import paths
from idgraph.model.attributes import AttributeMetadata, EncryptionLevel
from idgraph.model.specs import RESERVED_KEY, SpecDefinition
from transforms.privacy.protected_names import EVENT
from transforms.schema.diff import AttributeTree
from transforms.spec.masking import whole_value
from transforms.spec.operation_moves import SpecLine
from transforms.spec.value_flow import Trail, ValueFlow

_LEAST_TEXT = 3
"""A protected text that is shorter is in other values by chance."""

LOOKED_AT = "(looked at)"
"""A key that no attribute has."""

_Place = tuple[str | int, ...]
_Keys = tuple[str | None, ...]


class _Found(NamedTuple):
    outputs: list[tuple[_Keys, Trail]]
    computed: set[tuple[Trail, SpecLine]]


_NOWHERE = _Found([], set())


class VersionFlow:
    """The spec that maps an event, and the policies that its attributes have. `spec` is None where none maps it."""

    def __init__(
        self,
        spec: SpecDefinition | None,
        tree: AttributeTree,
        attribute: Callable[[str], AttributeMetadata | None],
    ) -> None:
        self.spec = spec
        self._attribute = attribute
        self._flow = None if spec is None else ValueFlow(spec.operations)
        self._tree = tree
        self._found: dict[_Place, _Found] = {}

    def of(self, place: _Place) -> _Found:
        """The spec's uses of the value at a place of a payload."""
        known = self._found.get(place)
        if known is None:
            if self._flow is None:
                return _NOWHERE
            ways = self._flow.ways(tuple(map(str, place)))
            outputs = [(whole_value(keys, place), trail) for keys, trail in ways.outputs.items() if keys]
            known = self._found[place] = _Found(outputs, ways.computed)
        return known

    def may_name(self, path: str) -> bool:
        """Whether a keyed hash of an attribute, which shows equal values, is no more than policy lets it show."""
        above = [self._attribute(each) for each in (path, *paths.ancestors(path))]
        is_named = any(each is not None and each.identifiable for each in above)
        return is_named or self._tree.policy(path).encryption is not EncryptionLevel.PROTECTED

    def ends(self, place: _Place) -> Iterator[tuple[str, Trail]]:
        """The attributes that may have the value at a place, each up to a key that is not known."""
        for keys, trail in self.of(place).outputs:
            if keys[0] != RESERVED_KEY:
                yield _shown(keys), trail

    def looks_sensitive(self, place: _Place, value: Any) -> bool:
        """Whether a value would be sealed by its name and form, were it an attribute that nobody decided on."""
        names = [each for each in place if isinstance(each, str)]
        return self._tree.policy_of_value(paths.join((LOOKED_AT, *names[-2:])), value).is_protected

    def protects(self, path: str, value: Any, trail: Trail) -> bool:
        """Whether an attribute would be sealed that has a value, or the statements' result of it."""
        if any(each.computes for each in trail):
            return self._tree.policy(path).is_protected
        return self._tree.policy_of_value(path, value).is_protected


class HiddenPlaces:
    """The values of an event that a version puts into protected attributes, that an earlier one put there
    (`once`), or that look sensitive. Values of the last kind count unless the version in force has them in
    the clear somewhere."""

    def __init__(self, before: VersionFlow, after: VersionFlow, once: Mapping[_Keys, bool]) -> None:
        """`once` as of `JobContext.protected_places`."""
        self._before, self._after = before, after
        self._once = once

    def hides(self, place: _Place, value: Any) -> bool:
        """Whether no draft may see the value."""
        texts = tuple(map(str, place))
        if any(_may_be(each, texts) for each in self._once):
            return True
        ends = [[*version.ends(place)] for version in (self._before, self._after)]
        for version, own in zip((self._before, self._after), ends, strict=True):
            if any(version.protects(path, value, trail) for path, trail in own):
                return True
        return not ends[0] and self._after.looks_sensitive(place, value)

    def named(self, place: _Place) -> Iterator[str]:
        """The types of the identifiers that the version in force makes of a value, and of its event's id; those of the new
        version too, unless the value's attributes may not show which values are equal."""
        versions = self._before, self._after
        may_name = all(each.may_name(path) for each in versions for path, _ in each.ends(place)) and all(
            may_name for keys, may_name in self._once.items() if _may_be(keys, tuple(map(str, place)))
        )
        for version in versions:
            if version.spec is None or not (version is self._before or may_name):
                continue
            reached = {_shown(keys) for keys, _ in version.of(place).outputs}
            yield from (each.type for each in version.spec.identifiers if each.path in reached)
            if version.spec.id in reached:
                yield EVENT


class ProtectedValues:
    """Those of one event, whose `leaves` are the paths that either version gives it."""

    def __init__(self, payload: Any, before: VersionFlow, after: VersionFlow, leaves: set[str]) -> None:
        self.exposes: dict[str, set[str]] = {}
        """By attribute of the new version that policy does not protect, the protected ones whose value it may have."""
        self.stated: dict[str, set[str]] = {}
        """The same as far as the specs' text says it: other attributes are named by values, or are there by them."""
        self.computed: set[str] = set()
        """Places of the new version that do more with a protected value than put it elsewhere, and are not in force."""
        self._ways: tuple[dict[str, set[Any]], dict[str, set[Any]]] = ({}, {})
        self._texts: dict[str, set[str]] = {}
        self._open: set[str] = set()
        self._leaves = leaves
        for place, value in paths.places(payload):
            if place and value is not None:
                self._follow_value(place, value, (before, after))

    def _follow_value(self, place: _Place, value: Any, versions: tuple[VersionFlow, VersionFlow]) -> None:
        uses = [version.of(place) for version in versions]
        reached = [
            {path: trail for keys, trail in each.outputs for path in self._paths(keys)} for each in uses
        ]
        is_open = [
            {
                path
                for path, trail in trails.items()
                if _is_stored(path) and not version.protects(path, value, trail)
            }
            for version, trails in zip(versions, reached, strict=True)
        ]
        sources = {
            path for trails, opens in zip(reached, is_open, strict=True) for path in trails.keys() - opens
        }
        sources = set(filter(_is_stored, sources))
        if not sources:
            self._open.update(_texts(value))
            return
        for text in _texts(value):
            self._texts.setdefault(text, set()).update(sources)
        for ways, trails in zip(self._ways, reached, strict=True):
            for path, trail in trails.items():
                ways.setdefault(path, set()).add((place, trail))
        stated = [
            {paths.join(filter(None, keys)): trail for keys, trail in each.outputs if None not in keys}
            for each in uses
        ]
        sealed = [
            {
                path
                for path, trail in trails.items()
                if _is_stored(path) and version.protects(path, value, trail)
            }
            for version, trails in zip(versions, stated, strict=True)
        ]
        for path in filter(_is_stored, stated[1].keys() - sealed[1]):
            self.stated.setdefault(path, set()).update(sealed[0] | sealed[1])
        for path in is_open[1]:
            self.exposes.setdefault(path, set()).update(sources - {path})
        self.computed |= {by.place for _, by in uses[1].computed - uses[0].computed}
        for path, trail in reached[1].items():
            # A value that both versions compute has no form of its own: its type, and whether it is there, say something of
            # its source.
            known = reached[0].get(path, frozenset())
            if trail != known and any(each.computes for each in known):
                self.computed |= {each.place for each in trail - known or trail}
        spec = versions[1].spec
        for name in ("ordinal", "retracts") if spec is not None else ():
            path = getattr(spec, name)
            if path in reached[1] and reached[0].get(path) != reached[1][path]:
                self.computed.add(f"/{name}")
        for number, identifier in enumerate(spec.identifiers if spec is not None else ()):
            path = identifier.path
            tells = path in is_open[1] or not _is_stored(path) or not versions[1].may_name(path)
            if path in reached[1] and tells and reached[0].get(path) != reached[1][path]:
                self.computed.add(f"/identifiers/{number}")

    def _paths(self, keys: _Keys) -> list[str]:
        """The attributes that may have what the output has at these keys."""
        path = paths.join("*" if key is None else key for key in keys)
        if path in self._leaves:
            return [path]
        found = [each for each in self._leaves if _may_be(keys, paths.split(each))]
        return found if None in keys else [path, *found]

    def follow(self, path: str) -> bool:
        """Whether an attribute may have a protected value, or something made of it, by either version."""
        return any(path in each for each in self._ways)

    def come_alike(self, path: str) -> bool:
        """Whether both versions give an attribute its protected values in the same way."""
        before, after = (each.get(path) for each in self._ways)
        return before == after

    def in_value(self, value: Any, least: int = _LEAST_TEXT) -> set[str]:
        """The protected attributes whose values, of at least so many characters, are in a value that the
        event has beside them."""
        texts = set(_texts(value))
        if not self._texts or not texts <= self._open:
            return set()
        return {
            path
            for hidden, own in self._texts.items()
            if len(hidden) >= least and any(_is_word_in(hidden, text) for text in texts)
            for path in own
        }

    def hide(self, path: str, value: Any) -> bool:
        """Whether an example may not show an attribute's value, protected or not: it has, or may be made of,
        a protected value."""
        if self.follow(path) or self.in_value(value, 1):
            return True
        return bool(self._texts) and not set(_texts(value)) <= self._open


def _shown(keys: _Keys) -> str:
    return paths.join([key or "" for key in takewhile(lambda key: key is not None, keys)])


def _is_stored(path: str) -> bool:
    return paths.split(path)[0] != RESERVED_KEY


def _may_be(keys: _Keys, own: tuple[str, ...] | list[str]) -> bool:
    # An object that an expression makes has the attributes below it, and of two values Jolt makes an array above.
    return all(key is None or key == each for key, each in zip(keys, own, strict=False))


def _is_word_in(word: str, text: str) -> bool:
    at = text.find(word)
    while at >= 0:
        around = text[max(0, at - 1) : at] + text[at + len(word) : at + len(word) + 1]
        if not any(map(str.isalnum, around)):
            return True
        at = text.find(word, at + 1)
    return False


def _texts(value: Any) -> Iterator[str]:
    """The texts and numbers in a value; true and false say nothing of anybody."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
    elif value is not None and not isinstance(value, bool):
        text = str(value).casefold()
        with suppress(ArithmeticError):
            # However a number is written.
            text = str(Decimal(text).normalize())
        yield text
