"""What the index may know of a fragment."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from merge.fragments import FragmentState
from merge.index import IndexDocument
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
    fields: dict[str, Scalar | list[Scalar]] = {}
    for path, register in state.visible():
        if register.kind is Kind.SEALED:
            token = SealedValue.parse(register.value).token
            if token is not None:
                fields[path] = token
        elif is_indexable(path):
            value = _indexed(register.value)
            if value is not None:
                fields[path] = value
    return IndexDocument(fragment_id, version, fields)


def _indexed(value: Any) -> Scalar | list[Scalar] | None:
    # Objects inside arrays are not indexed: they have no path of their own.
    if isinstance(value, list):
        elements = [scalar for element in value if (scalar := _scalar(element)) is not None]
        return elements or None
    return _scalar(value)


def _scalar(value: Any) -> Scalar | None:
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, str | int | float | bool) else None
