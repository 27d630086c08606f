"""What can be determined of a parsed JMESPath expression without running it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def paths_read(node: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Where the parts of the input stand that the result may hold, for an expression whose result is at most
    one part: at or below these keys."""
    keys = field_chain(node)
    if keys is not None:
        yield keys
    elif node["type"] in ("function_expression", "or_expression", "and_expression"):
        for child in node["children"]:
            yield from paths_read(child)
    elif node["type"] != "literal":
        # What a part of another kind reads is below what stands first in it.
        yield from paths_read(node["children"][0]) if node["children"] else ((),)


def is_path(node: dict[str, Any]) -> bool:
    """Whether the result is at most one part of the input, or a text or number made of it."""
    if node["type"] == "function_expression":
        return node["value"] in _SMALL_RESULTS and all(map(is_path, node["children"]))
    return node["type"] in _PATH_TYPES and all(map(is_path, node["children"]))


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
    {"first_non_null", "not_null", "null_if_blank", "length", "to_number", "abs", "ceil", "floor", "type"}
    | {"contains", "starts_with", "ends_with"}
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
