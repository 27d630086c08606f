"""What the index may know of a fragment."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from merge import codec
from merge.fragments import FragmentState
from merge.index import IndexDocument
from model import canonical, native
from model.fragments import Kind
from model.queries import Scalar
from model.sealed import SealedValue


def document(
    fragment_id: str, version: int, state: FragmentState, is_indexable: Callable[[str], bool]
) -> IndexDocument:
    """The index document of a fragment's normalised state at a store version.

    `is_indexable` answers for a path whether policy lets its plaintext into the index. Of sealed values
    only the blind-index token goes in, where there is one.
    """
    fields = _fields_of_bytes(state, is_indexable)
    if fields is None and native.loops is not None:
        fields = native.loops.fields(state.registers, state.replaced(), is_indexable, _shown)
    if fields is None:
        fields = _fields(state, is_indexable)
    return IndexDocument(fragment_id, version, fields)


_Fields = dict[str, Scalar | list[Scalar]]


def _fields_of_bytes(state: FragmentState, is_indexable: Callable[[str], bool]) -> _Fields | None:
    if native.states is None or state.encoded is None or state.encoded[:1] != codec.FORMAT:
        return None
    return native.states.fields(codec.body(state.encoded), is_indexable, _shown_of_json)


def _fields(state: FragmentState, is_indexable: Callable[[str], bool]) -> _Fields:
    # Twin of `fields` in native/loops.c and, for a state that has its bytes, of that in native/states.c.
    fields: _Fields = {}
    for path, register in state.visible():
        _, kind, value = register
        if kind is Kind.SEALED or is_indexable(path):
            seen = _seen(kind, value)
            if seen is not None:
                fields[path] = seen
    return fields


def _seen(kind: Kind, value: Any) -> Scalar | list[Scalar] | None:
    # Most values are scalars, which stand as they are.
    return value if kind is Kind.PLAIN and type(value) in _SCALARS else _shown(kind, value)


def _shown_of_json(kind: int, json: bytes) -> Scalar | list[Scalar] | None:
    return _seen(Kind(kind), canonical.decode(json))


def _shown(kind: Kind, value: Any) -> Scalar | list[Scalar] | None:
    return SealedValue.parse(value).token if kind is Kind.SEALED else _indexed(value)


def _indexed(value: Any) -> Scalar | list[Scalar] | None:
    if type(value) is Decimal:
        return float(value)
    # Objects inside arrays are not indexed: they have no path of their own.
    elements = [
        float(e) if type(e) is Decimal else e for e in value if type(e) in _SCALARS or type(e) is Decimal
    ]
    return elements or None


_SCALARS = frozenset({str, int, float, bool})
