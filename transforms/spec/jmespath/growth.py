"""The growth of an expression: the size of its value by that of its input.

`[@, @]` holds its input twice, forty of them one after the other a million million times: as shared parts, which cost
nothing until something walks them. The *growth* of a part, the number of times that it can place its input, is known
when it is compiled. If parts that follow each other multiply to more than a few, the value between them is measured
per event.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from transforms.spec.budget import check_length
from transforms.spec.limits import SpecLimits, measure


def paths_read(node: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The keys at or below which the result's parts stand in the input, for an expression whose result is at most one
    part."""
    keys = field_chain(node)
    if keys is not None:
        yield keys
    elif node["type"] in ("function_expression", "or_expression", "and_expression"):
        for child in node["children"]:
            yield from paths_read(child)
    elif node["type"] != "literal":
        # A part of another kind reads below its first child.
        yield from paths_read(node["children"][0]) if node["children"] else ((),)


def all_read(node: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """The keys at or below which all parts of the input stand that an expression looks at; no keys: anywhere."""
    keys, kind, children = field_chain(node), node["type"], node["children"]
    if keys is not None:
        yield keys
    elif kind in ("identity", "current"):
        yield ()
    elif kind in _SEQUENCES or kind in _PROJECTIONS or kind == "flatten":
        # The later children read the value of the first.
        yield from all_read(children[0])
    elif kind not in ("literal", "expref"):
        for child in children:
            yield from all_read(child)


def is_path(node: dict[str, Any]) -> bool:
    """Whether the result is at most one part of the input, or a text or number made of it."""
    if node["type"] == "function_expression":
        return node["value"] in _SMALL_RESULTS and all(map(is_path, node["children"]))
    return node["type"] in _PATH_TYPES and all(map(is_path, node["children"]))


_FORMS = frozenset(
    {"trim", "lower", "upper", "digits", "strip_leading_zeros", "epoch_ms", "hash", "to_number", "to_string"}
    | {"to_number_exact", "null_if_blank"}
)


def is_form(node: dict[str, Any]) -> bool:
    """Whether an expression is one part of the input as it is, or by functions of it alone. Nobody can ask by them whether a
    value is this or that: they say of it that it is blank, or no number."""
    if field_chain(node) is not None:
        return True
    is_call = node["type"] == "function_expression" and node["value"] in _FORMS
    return is_call and len(node["children"]) == 1 and is_form(node["children"][0])


def is_small(node: dict[str, Any]) -> bool:
    """Whether an expression is a call whose result is a text or number of its own."""
    return node["type"] == "function_expression" and node["value"] in _OWN_RESULTS


_PATH_TYPES = frozenset(
    {"field", "subexpression", "index_expression", "index", "current", "identity", "literal", "pipe"}
    | {"or_expression", "and_expression", "not_expression", "comparator"}
)
_OWN_RESULTS = frozenset(
    {"trim", "lower", "upper", "digits", "strip_leading_zeros", "epoch_ms", "to_number_exact"}
)
_SMALL_RESULTS = _OWN_RESULTS | frozenset(
    {"first_non_null", "try", "not_null", "null_if_blank", "length", "to_number", "abs", "ceil", "floor"}
    | {"type", "contains", "starts_with", "ends_with"}
)


def field_chain(node: dict[str, Any]) -> tuple[str, ...] | None:
    """The keys of `a.b.c`, if the expression is nothing else."""
    if node["type"] == "field":
        return (node["value"],)
    if node["type"] != "subexpression":
        return None
    keys: tuple[str, ...] = ()
    for child in node["children"]:
        below = field_chain(child)
        if below is None:
            return None
        keys += below
    return keys


MOST_UNMEASURED = 16
"""A value that may be so many times its input is not measured."""

_SEQUENCES = frozenset({"subexpression", "index_expression", "pipe"})
_PROJECTIONS = frozenset({"projection", "value_projection", "filter_projection"})
_ONE = frozenset({"comparator", "not_expression"})
_REDUCING = frozenset(
    {"abs", "avg", "ceil", "contains", "ends_with", "floor", "keys", "length", "max", "min", "starts_with"}
    | {"sum", "to_number", "type", "hash", "epoch_ms", "digits", "lower", "upper", "trim", "to_number_exact"}
)
"""Functions that give a text or number no larger than what they get, or keys."""


_ENOUGH = 1_000_000
"""Growth is not distinguished above this: the factors of a long expression make a number of thousands of digits."""


class Growths:
    """The largest size of the parts of one expression. Each is looked at once, however often it is asked for."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._sizes: dict[int, int] = {}

    def of(self, node: dict[str, Any]) -> int:
        """At most how often a part of the input occurs in what a node gives, were nothing measured. The nodes
        must outlive this object."""
        known = self._known.get(id(node))
        if known is None:
            known = self._known[id(node)] = min(_ENOUGH, self._of(node))
        return known

    def size(self, node: dict[str, Any]) -> int:
        """The number of nodes of a part."""
        known = self._sizes.get(id(node))
        if known is None:
            below = node["children"] if node["type"] != "slice" else ()
            known = self._sizes[id(node)] = 1 + sum(map(self.size, below))
        return known

    def _of(self, node: dict[str, Any]) -> int:
        kind, children = node["type"], node["children"]
        if kind in _SEQUENCES:
            return prod(map(self.of, children))
        if kind in _PROJECTIONS:
            return self.of(children[0]) * self.of(children[1])
        if kind in ("multi_select_list", "multi_select_dict"):
            return max(1, sum(map(self.of, children)))
        if kind == "function_expression":
            return self._of_call(node)
        if kind in _ONE or kind == "slice":
            return 1
        return max(map(self.of, children), default=1)

    def _of_call(self, node: dict[str, Any]) -> int:
        if node["value"] in _REDUCING:
            return 1
        references = [child["children"][0] for child in node["children"] if child["type"] == "expref"]
        values = [child for child in node["children"] if child["type"] != "expref"]
        return prod(map(self.of, references)) * max(1, sum(map(self.of, values)))


def needs_measure(before: int, after: int) -> bool:
    """Whether a value of one growth is to be measured before a part of another growth continues with it."""
    return before > 1 and before * after > MOST_UNMEASURED


def measured(limits: SpecLimits, value: Any) -> Any:
    """The value, if it is not too large or too deep. Raises TransformError."""
    measure(value, limits)
    return value


def check_spelled(value: Any) -> None:
    """Raises TransformError if an array or object would be too long when written out as one text. Stops
    where that is clear, so that shared parts cost no more."""
    length = 0
    waiting = [value]
    while waiting:
        each = waiting.pop()
        length += len(each) if isinstance(each, str | dict | list) else 1
        check_length(length)
        if isinstance(each, dict):
            waiting += each.keys()
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
