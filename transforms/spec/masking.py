"""A payload as somebody sees it who may not see all of it: each value by the policies of the attributes that a spec
may make of it. A value is shown where it is seen in one of them; all others are sealed.

A spec's operations say what it reads, and may say too much. That is right for protecting a value, but no proof that a
value was mapped. So the output must have it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from itertools import islice
from typing import Any, NamedTuple

from idgraph.model import paths
from idgraph.model.errors import TransformError
from idgraph.model.events import kind
from idgraph.model.paths import Place
from idgraph.model.specs import RESERVED_KEY
from transforms.schema.detection import shaped_key
from transforms.schema.diff import AttributeTree
from transforms.spec.mapping import MappingSpec
from transforms.spec.pointers import pointer
from transforms.spec.value_flow import ValueFlow
from transforms.spec.value_forms import in_form

MOST_TRIED = 200
"""Values beyond them are not tried as the culprit: each costs a mapping."""
DEEPEST = 50
_LONG = 4
"""So many characters are no coincidence."""
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_.:/-]{0,79}")
_LEFT_OUT = object()

_Keys = tuple[str | None, ...]


class MaskedPayload(NamedTuple):
    """The part of a payload that may be shown: a sealed value is `{"$protected": true, "type": ...}`, with `like`
    another number or time for one, so that a spec can be tried on it; one above the clearance is left out. `becomes`
    has, by JSON pointer, the attributes that each value becomes; `culprits` are the pointers of a value without which
    the spec can map the payload, and with which it cannot."""

    document: Any
    becomes: dict[str, frozenset[str]]
    culprits: list[str]


def mask(
    payload: Any,
    spec: MappingSpec | None,
    context: Mapping[str, Any],
    tree: AttributeTree,
    sees: Callable[[str], bool],
) -> MaskedPayload:
    """`spec` is None where no policy applies: then only keys and types are shown. `sees` says of an attribute whether it
    exists for the reader. Not for several threads, as `tree` is not."""
    masked = MaskedPayload(None, {}, [])
    mapped = _Mapped(None, None) if spec is None else _mapped(payload, spec, context)
    shown = _Masking(spec, tree, sees, masked, mapped).shown(payload, (), ())
    return masked._replace(document=shown)


class _Mapped(NamedTuple):
    output: Any
    culprit: Place | None


class _Masking:
    def __init__(
        self,
        spec: MappingSpec | None,
        tree: AttributeTree,
        sees: Callable[[str], bool],
        masked: MaskedPayload,
        mapped: _Mapped,
    ) -> None:
        self._flow = None if spec is None else ValueFlow(spec.document.operations)
        self._reads = self._flow.reads() if self._flow else set()
        self._ordinal = spec.document.ordinal if spec else None
        self._tree = tree
        self._sees = sees
        self._masked = masked
        self._output, self._culprit = mapped

    def shown(self, value: Any, place: Place, shown_place: Place) -> Any:
        if isinstance(value, dict | list) and value and len(place) >= DEEPEST:
            return _sealed(value)
        if isinstance(value, dict):
            found: dict[str, Any] = {}
            for number, (key, below) in enumerate(value.items(), start=1):
                name = key if self._is_name(key, (*place, key)) else f"(key {number})"
                shown = self.shown(below, (*place, key), (*shown_place, name))
                if shown is not _LEFT_OUT:
                    found[name] = shown
            return found
        if isinstance(value, list):
            elements: list[Any] = []
            for number, below in enumerate(value):
                shown = self.shown(below, (*place, number), (*shown_place, len(elements)))
                if shown is not _LEFT_OUT:
                    elements.append(shown)
            return elements
        outputs = self._outputs(place)
        becomes = frozenset(outputs)
        if not all(map(self._sees, becomes)):
            return _LEFT_OUT
        if place == self._culprit:
            self._masked.culprits.append(pointer(*shown_place))
        if becomes:
            self._masked.becomes[pointer(*shown_place)] = becomes
        is_protected = any(self._protects(each, value) for each in becomes)
        return _sealed(value) if is_protected or not self._is_mapped(value, place, outputs) else value

    def _is_mapped(self, value: Any, place: Place, outputs: Mapping[str, _Keys]) -> bool:
        """Whether an attribute has the value, so that its policy is that of the value."""
        is_read = any(len(read) == len(place) and _matches(read, place) for read in self._reads)
        if is_read and self._ordinal in outputs:
            return True
        texts = _texts(value)
        is_telling = is_read or any(len(each) >= _LONG for each in texts)
        for path, keys in outputs.items():
            copied = _value_at(self._output, keys)
            if type(copied) is type(value) and copied == value and keys[-1] == str(place[-1]):
                return True
            mapped = _value_at(self._output, tuple(paths.split(path)))
            if is_telling and texts & _texts(mapped, in_parts=True):
                return True
        return False

    def _is_name(self, key: str, place: Place) -> bool:
        """Whether a key is no value: one that only a wildcard of the spec takes may become a protected one."""
        if not _NAME.fullmatch(key) or shaped_key(key) is not None:
            return False
        is_literal = any(
            len(read) >= len(place) and _matches(read, place) and read[len(place) - 1] == key
            for read in self._reads
        )
        return is_literal or not any(map(self._protects, self._outputs(place)))

    def _outputs(self, place: Place) -> dict[str, _Keys]:
        """By attribute that the spec may make of what stands at a place, where in the output that would be."""
        found: dict[str, _Keys] = {}
        for keys in self._flow.outputs(tuple(map(str, place))) if self._flow else ():
            path = paths.join("*" if key is None else key for key in whole_value(keys, place))
            # Other fields below the reserved key, such as an event's id, have no policy.
            if keys and (path == self._ordinal or keys[0] != RESERVED_KEY):
                found[path] = keys
        return found

    def _protects(self, path: str, value: Any = None) -> bool:
        """Whether policy protects an attribute, or what the value looks like. A path with a key that is not known may be any."""
        if "*" in path or self._tree.policy(path).is_protected:
            return True
        return value is not None and self._tree.policy_of_value(path, value).is_protected


def whole_value(keys: _Keys, place: Place) -> _Keys:
    """The path of the attribute for a place of a payload: an array is one attribute, whatever it holds."""
    numbers = {str(each) for each in place if isinstance(each, int)}
    end = next((at for at, key in enumerate(keys) if at and key in numbers), len(keys))
    return keys[:end]


def _sealed(value: Any) -> dict[str, Any]:
    sealed = {"$protected": True, "type": kind(value).removeprefix("a ").removeprefix("an ")}
    like = in_form(value)
    return sealed if like is None else {**sealed, "like": like}


def _matches(read: _Keys, place: Place) -> bool:
    return all(known in (None, str(own)) for known, own in zip(read, place, strict=False))


def _value_at(output: Any, keys: _Keys) -> Any:
    for key in keys:
        if isinstance(output, dict):
            output = output.get(key)
        elif isinstance(output, list) and key is not None and key.isdecimal() and int(key) < len(output):
            output = output[int(key)]
        else:
            return None
    return output


def _texts(value: Any, in_parts: bool = False) -> set[str]:
    """A value as text, and a number without its zeros; in parts, the words of a text and all that stands in an array."""
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return {text for each in inside for text in _texts(each, in_parts)}
    if value is None:
        return set()
    text = json.dumps(value) if isinstance(value, bool) else str(value).strip().casefold()
    found = {text, *text.split()} if in_parts else {text}
    with suppress(ArithmeticError):
        found.add(str(Decimal(text).normalize()))
    return found - {""}


def _mapped(payload: Any, spec: MappingSpec, context: Mapping[str, Any]) -> _Mapped:
    """The spec's output for a payload; if one value alone prevents that, its output for the others."""

    def output_of(changed: Any) -> Any:
        try:
            return spec.transformed(copy.deepcopy(changed), context)
        except TransformError:
            return None

    output = output_of(payload)
    if output is not None:
        return _Mapped(output, None)
    found = paths.places(payload, enters=lambda above, _: len(above) < DEEPEST)
    for place, _ in islice(found, MOST_TRIED):
        # Without an element the others would stand elsewhere.
        if (
            place
            and isinstance(place[-1], str)
            and (output := output_of(_without(payload, place))) is not None
        ):
            return _Mapped(output, place)
    return _Mapped(None, None)


def _without(payload: Any, place: Place) -> Any:
    changed = copy.deepcopy(payload)
    at = changed
    for key in place[:-1]:
        at = at[key]
    del at[place[-1]]
    return changed
