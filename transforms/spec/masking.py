"""A payload as somebody sees it who may not see all of it: each value by the policies of the attributes that it becomes.

Which attributes a value becomes is found by mapping the payload without it, and with another value in its place. A value of
which that is not known is sealed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from idgraph.model import paths
from idgraph.model.errors import EventError, TransformError
from idgraph.model.events import kind
from idgraph.model.fragments import Origin
from idgraph.model.specs import RESERVED_KEY
from idgraph.model.stamps import Stamp
from transforms.schema.detection import shaped_key
from transforms.schema.diff import AttributeTree
from transforms.spec.mapping import MappingSpec
from transforms.spec.pointers import pointer

MOST_TRIED = 200
"""Values of a payload beyond them are sealed: each costs two mappings."""
DEEPEST = 50
_CONTAINED = 4
"""A protected value of so many characters is looked for within others."""
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_.:/-]{0,79}")

_Place = tuple[str | int, ...]


class MaskedPayload(NamedTuple):
    """What may be shown: a sealed value is `{"$protected": true, "type": ...}`, one above the clearance is left out. `becomes`
    has, by JSON pointer, the attributes that each shown value becomes; `culprits` are the pointers of a value without which the
    spec can map the payload, and with which it cannot."""

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
    mapped = _Mapped({}, None) if spec is None else _mapped(payload, spec, context, tree)
    masked = MaskedPayload(None, {}, [])
    return masked._replace(document=_Masking(mapped, sees, masked).shown(payload, (), ()))


class _Flow(NamedTuple):
    """What a value becomes, and whether policy protects any of it."""

    becomes: frozenset[str]
    is_protected: bool


class _Mapped(NamedTuple):
    flows: dict[_Place, _Flow]
    culprit: _Place | None


_LEFT_OUT = object()


class _Masking:
    def __init__(self, mapped: _Mapped, sees: Callable[[str], bool], masked: MaskedPayload) -> None:
        self._mapped = mapped
        self._sees = sees
        self._masked = masked

    def shown(self, value: Any, place: _Place, shown_place: _Place) -> Any:
        if isinstance(value, dict | list) and value and len(place) >= DEEPEST:
            return _sealed(value)
        if isinstance(value, dict):
            found: dict[str, Any] = {}
            for number, (key, below) in enumerate(value.items(), start=1):
                name = key if _NAME.fullmatch(key) and shaped_key(key) is None else f"(key {number})"
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
        if place == self._mapped.culprit:
            self._masked.culprits.append(pointer(*shown_place))
        flow = self._mapped.flows.get(place)
        if flow is None or not flow.becomes:
            return _sealed(value)
        if not all(map(self._sees, flow.becomes)):
            return _LEFT_OUT
        self._masked.becomes[pointer(*shown_place)] = flow.becomes
        return _sealed(value) if flow.is_protected else value


def _sealed(value: Any) -> dict[str, Any]:
    return {"$protected": True, "type": kind(value).removeprefix("a ").removeprefix("an ")}


def _mapped(payload: Any, spec: MappingSpec, context: Mapping[str, Any], tree: AttributeTree) -> _Mapped:
    """Without flows where the spec cannot map the payload, or no policy can be found for what it makes of it."""

    def output_of(changed: Any) -> dict[str, Any] | None:
        try:
            output = spec.transformed(copy.deepcopy(changed), context)
        except TransformError:
            return None
        return output if isinstance(output, dict) else {}

    places = dict(islice(_places(payload), MOST_TRIED))
    culprit: _Place | None = None
    output = output_of(payload)
    if output is None:
        # Often one value alone is to blame: the policies of the others hold without it.
        for culprit in (each for each in places if isinstance(each[-1], str)):
            if output := output_of(_changed(payload, culprit, _LEFT_OUT)):
                payload = _changed(payload, culprit, _LEFT_OUT)
                places = dict(islice(_places(payload), MOST_TRIED))
                break
    if not output:
        return _Mapped({}, None)
    try:
        leaves = tree.leaves(copy.deepcopy(output), Origin(Stamp(0, 0, "", ""), spec.ref))
    except EventError:
        return _Mapped({}, culprit)
    before = dict(_leaves(output))
    sealed = {each.path for each in leaves.to_seal}
    texts = {text for each in leaves.to_seal for text in _texts(each.value)}
    flows: dict[_Place, _Flow] = {}
    for place, value in places.items():
        changed: set[str] = set()
        for other in (_LEFT_OUT, _other(value)):
            if (found := output_of(_changed(payload, place, other))) is not None:
                after = dict(_leaves(found))
                changed |= {
                    each for each in before.keys() | after.keys() if before.get(each) != after.get(each)
                }
        becomes = frozenset(path for path in changed if not _is_reserved(path, spec.document.ordinal))
        is_protected = any(path in sealed or tree.policy(path).is_protected for path in changed)
        flows[place] = _Flow(becomes, is_protected or _holds(value, texts))
    return _Mapped(flows, culprit)


def _is_reserved(path: str, ordinal: str | None) -> bool:
    # What else stands there, such as an event's id, has no policy.
    return paths.split(path)[0] == RESERVED_KEY and path != ordinal


def _changed(payload: Any, place: _Place, other: Any) -> Any:
    changed = copy.deepcopy(payload)
    at = changed
    for key in place[:-1]:
        at = at[key]
    if other is _LEFT_OUT:
        del at[place[-1]]
    else:
        at[place[-1]] = other
    return changed


def _other(value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return not value
    return value + 1 if not isinstance(value, str) else f"{value[::-1]}7"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif value is not None and not isinstance(value, bool):
        yield str(value).strip().casefold()


def _holds(value: Any, texts: set[str]) -> bool:
    """Whether a value is a protected one, holds one, or is a part of one: by another way it may have become it."""
    for own in _texts(value):
        for text in texts:
            is_long = min(len(own), len(text)) >= _CONTAINED
            if own == text or (is_long and (text in own or own in text)):
                return True
    return False


def _leaves(tree: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """An array is one leaf."""
    for key, value in tree.items() if isinstance(tree, dict) else ():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield paths.join((*above, key)), value


def _places(value: Any, above: _Place = ()) -> Iterator[tuple[_Place, Any]]:
    if isinstance(value, dict | list) and len(above) < DEEPEST:
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(below, (*above, key))
    elif above and not isinstance(value, dict | list):
        yield above, value
