"""The fields of a fragment for the index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from math import isinf
from typing import Any

from idgraph import native
from idgraph.model import canonical, paths
from idgraph.model.attributes import ReconciliationPolicy
from idgraph.model.classification import SealedValue
from idgraph.model.errors import DamagedStateError
from idgraph.model.fragments import Kind
from idgraph.model.index import IndexDocument, IndexRules
from idgraph.model.queries import Scalar
from merge import codec
from merge.fragments import FragmentState
from merge.identity.components import joined
from merge.resolution import Shown, hides, shown

NOTHING_DERIVED: Mapping[str, Any] = {}


def document(fragment_id: str, version: int, state: FragmentState, rules: IndexRules) -> IndexDocument:
    """The index document of a fragment's normalised state at a store version. Raises DamagedStateError.

    A sealed value has only its blind-index token in it, if there is one.
    """
    return document_of_all(fragment_id, version, (state,), rules)


def document_of_all(
    fragment_id: str,
    version: int,
    states: Sequence[FragmentState],
    rules: IndexRules,
    derived: Mapping[str, Any] = NOTHING_DERIVED,
) -> IndexDocument:
    """The same of the join of several fragments' states, with the values of derived attributes by path."""
    fields = _fields_of_bytes([each.encoded for each in states], rules.is_indexable)
    if fields is None:
        state = joined(states) if len(states) > 1 else states[0]
        fields = _fields_of_state(state, rules.is_indexable)
        if state.cells:
            _set_reconciled(fields, state, rules)
    if rules.behaviour.derived:
        _set_derived(fields, rules, derived)
    if _Members in map(type, fields.values()):
        _set_members(fields, rules.is_indexable)
    return IndexDocument(fragment_id, version, fields)


def _set_derived(fields: _Fields, rules: IndexRules, derived: Mapping[str, Any]) -> None:
    """Events that wrote to the path of a derived attribute wrote in vain."""
    is_hidden = hides(tuple(each.path for each in rules.behaviour.derived))
    for path in [each for each in fields if is_hidden(each)]:
        del fields[path]
    for path, value in derived.items():
        if rules.is_indexable(path) and (seen := _indexed(value)) is not None:
            fields[path] = seen


class _Members:
    """An array with objects or arrays in it, until their leaves are fields."""

    def __init__(self, elements: list[Any]) -> None:
        self.elements = elements


_Field = Scalar | list[Scalar] | _Members | None
_Fields = dict[str, Any]


def _fields_of_bytes(encoded: Sequence[bytes | None], is_indexable: Callable[[str], bool]) -> _Fields | None:
    # Without cells they need not be decoded.
    states = tuple([each for each in encoded if each is not None and each[:1] == codec.FORMAT])
    if native.states is None or len(states) < len(encoded):
        return None
    return native.states.fields(states, is_indexable, shown_of_json)


def _fields_of_state(state: FragmentState, is_indexable: Callable[[str], bool]) -> _Fields:
    # Reference of `fields` in native/states.c.
    fields: _Fields = {}
    for path, register in state.visible():
        _, kind, value = register
        if kind is Kind.SEALED or is_indexable(path):
            seen = _seen(kind, value)
            if seen is not None:
                fields[path] = seen
    return fields


def _seen(kind: Kind, value: Any) -> _Field:
    # Most values are scalars, which stand as they are.
    return value if kind is Kind.PLAIN and type(value) in _SCALARS else _shown(kind, value)


def shown_of_json(kind: int, json: bytes) -> _Field:
    """The index field of a register's indexable value; None for none. Raises DamagedStateError."""
    try:
        value = canonical.decode(json)
    except canonical.MalformedJSON as error:
        raise DamagedStateError(f"a fragment's stored state is damaged: {type(error).__name__}") from None
    return _seen(Kind(kind), value)


def _set_reconciled(fields: _Fields, state: FragmentState, rules: IndexRules) -> None:
    """Put what policies other than `latest` show in place of the latest values."""
    for path in state.cells:
        fields.pop(path, None)
    for each in shown(state, rules.policies):
        if each.path in state.cells:
            seen = _reconciled(each, rules.is_indexable)
            if seen is not None:
                fields[each.path] = seen


def _reconciled(each: Shown, is_indexable: Callable[[str], bool]) -> _Field:
    if each.is_sealed:
        tokens = (SealedValue.parse(part.value).token for part in each.parts if part.kind is Kind.SEALED)
        found: list[Scalar] = [token for token in tokens if token is not None]
        # A set has no order but that of its values, which nobody sees here; one of another join would show.
        return (sorted(found) if each.policy is ReconciliationPolicy.UNION else found) or None
    if not is_indexable(each.path):
        return None
    return _indexed(each.value([part.value for part in each.parts]))


def _shown(kind: Kind, value: Any) -> _Field:
    if kind is not Kind.SEALED:
        return _indexed(value)
    if type(value) is not str:
        raise DamagedStateError("a fragment's stored state is damaged: a sealed value is no text")
    return SealedValue.parse(value).token


def _indexed(value: Any) -> _Field:
    if type(value) is not list:
        return _scalar(value)
    if any(type(each) in _NESTED for each in value):
        return _Members(value)
    return _scalars(value) or None


def _set_members(fields: _Fields, is_indexable: Callable[[str], bool]) -> None:
    """Put the leaves of objects in arrays at paths of their own, `items.sku`, and all of them at the array's as well: it has a
    value, and its words are found by whoever may see the array. Leaves that policy keeps out are at neither."""
    for path, value in list(fields.items()):
        if type(value) is not _Members:
            continue
        del fields[path]
        members: dict[str, list[Any]] = {}
        everything: list[Any] = []
        for place, leaf in _leaves(path, value.elements):
            if place not in members:
                if len(members) == MOST_MEMBERS:
                    continue
                members[place] = []
            members[place].append(leaf)
        for place, values in members.items():
            if place == path or is_indexable(place):
                everything += values
                if place != path:
                    fields.setdefault(place, []).extend(_scalars(values))
        fields[path] = _scalars(everything)
        for place in (path, *members):
            if not fields.get(place):
                fields.pop(place, None)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of what stands in an array; positions are no part of their paths."""
    if type(value) is list:
        for each in value:
            yield from _leaves(path, each)
    elif type(value) is dict:
        for key, each in value.items():
            yield from _leaves(f"{path}.{paths.escape(key)}", each)
    else:
        yield path, value


MOST_MEMBERS = 100
"""Different paths of leaves in one array. Further ones are not indexed: then its objects' keys are values."""


def _scalar(value: Scalar | Decimal) -> Scalar | None:
    if not isinstance(value, Decimal):
        return value
    if value == value.to_integral_value():
        return int(value)
    nearest = float(value)
    # A fraction beyond all doubles is left out: infinity it is not.
    return None if isinf(nearest) else nearest


def _scalars(elements: Iterable[Any]) -> list[Scalar]:
    found = (_scalar(each) for each in elements if type(each) in _SCALARS or type(each) is Decimal)
    return [each for each in found if each is not None]


_SCALARS = frozenset({str, int, float, bool})
_NESTED = frozenset({dict, list})
