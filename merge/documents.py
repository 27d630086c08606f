"""What the index may know of a fragment."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from merge.fragments import FragmentState
from merge.index import IndexDocument
from model import native
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
    if native.loops is None:
        fields = _fields(state, is_indexable)
    else:
        fields = native.loops.fields(state.registers, state.replaced(), is_indexable, _shown)
    return IndexDocument(fragment_id, version, fields)


def _fields(state: FragmentState, is_indexable: Callable[[str], bool]) -> dict[str, Scalar | list[Scalar]]:
    # Twin of `fields` in native/loops.c.
    fields: dict[str, Scalar | list[Scalar]] = {}
    for path, register in state.visible():
        _, kind, value = register
        if kind is Kind.SEALED or is_indexable(path):
            # Most values are scalars, which stand as they are: not worth a call.
            seen = value if kind is Kind.PLAIN and type(value) in _SCALARS else _shown(kind, value)
            if seen is not None:
                fields[path] = seen
    return fields


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
