"""Short ways for functions of several arguments, for texts as they mostly are.

Each takes the first argument if it stands in the spec (else KNOWN_LATER), the number of arguments, and the function
of all of them, which is called for what is not as it mostly is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from transforms.jolt.functions.calling import ShortWay
from transforms.jolt.functions.separators import plain_separator
from transforms.meter import FREE

_FEW = 8
"""So many texts may be put together before their length is looked at."""
_SHORT = 10_000

Call = Callable[[Sequence[Any]], Any]


def quick_concat(_first: Any, count: int, call: Call) -> ShortWay | None:
    """`concat` of two or more."""
    if not 2 <= count <= _FEW:
        return None
    together = "".join

    def concat(values: Sequence[Any]) -> Any:
        try:
            text = together(values)
        except TypeError:
            return call(values)
        return text if len(text) <= FREE else call(values)

    return ShortWay(concat, 0)


def quick_join(separator: Any, count: int, call: Call) -> ShortWay | None:
    """`join` of two or more by a separator of the spec."""
    if type(separator) is not str or not 3 <= count <= _FEW or len(separator) > _SHORT:
        return None
    together = separator.join

    def join(values: Sequence[Any]) -> Any:
        try:
            text = together(values)
        except TypeError:
            return call((separator, *values))
        return text if "" not in values and len(text) <= FREE else call((separator, *values))

    return ShortWay(join, 1)


def quick_split(separator: Any, count: int, call: Call) -> ShortWay | None:
    """`split` of one text by a separator of the spec that is no pattern."""
    plain = plain_separator(separator) if count == 2 and type(separator) is str else None
    if not plain:
        return None

    def split(values: Sequence[Any]) -> Any:
        text = values[0]
        if type(text) is str and len(text) <= FREE:
            parts = text.split(plain)
            if parts[-1]:
                return parts
        return call((separator, text))

    return ShortWay(split, 1)
