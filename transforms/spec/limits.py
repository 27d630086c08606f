"""Bounds on what a spec may do, so that no spec and no event can use up a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from idgraph.model.errors import SpecLimitError


@dataclass(frozen=True, slots=True)
class SpecLimits:
    """Bounds that hold for one compiled spec.

    `max_operations`, `max_spec_depth` and `max_spec_size` are checked when a spec is compiled, the others
    when it runs.
    """

    max_operations: int = 100
    max_spec_depth: int = 64
    max_spec_size: int = 10_000
    """Keys and array elements of a whole spec, where `a|b` counts as two keys with all that is below each; a long
    text or key counts as one more for each 20 characters, a JMESPath expression as its tokens."""
    max_steps: int = 1_000_000
    """Rounds of loops over what an event holds, all operations together; and as many for what functions read and
    make."""
    max_depth: int = 256
    """Nesting of the mapped output."""
    max_nodes: int = 250_000
    """Keys and array elements of the mapped output, written out in full; a long text counts as one more for each
    64 characters."""
    max_index: int = 10_000
    """Highest array index that may be written; what lies before it is filled with nulls."""
    max_text: int = 1_000_000
    """Characters of a text that a function takes or makes. Texts up to `budget.FREE` characters always pass."""
    max_pattern_text: int = 10_000
    """Characters of a text that is split by a pattern, as opposed to a plain separator."""
    max_copies: int = 16
    """A spec that may place one part of its input more often has its output measured."""


DEFAULT_LIMITS = SpecLimits()

_CHARACTERS_A_VALUE = 64
_BITS_A_DIGIT = 3


def measure(value: Any, limits: SpecLimits) -> None:
    """Raise TransformError if `value` is nested too deeply or too large when written out.

    Parts that occur several times are visited once and counted each time: a few operations can make a
    value whose text would be exponentially long.
    """
    known: dict[int, tuple[int, int]] = {}

    def visit(node: Any, level: int) -> tuple[int, int]:
        if level > limits.max_depth:
            raise SpecLimitError(f"the output is nested deeper than {limits.max_depth} levels")
        kind = type(node)
        if kind is not dict and kind is not list:
            return 1 + _characters(node) // _CHARACTERS_A_VALUE, 0
        found = known.get(id(node))
        if found is None:
            size = 1 + sum(map(len, node)) // _CHARACTERS_A_VALUE if kind is dict else 1
            height = 0
            for below in node.values() if kind is dict else node:
                below_size, below_height = visit(below, level + 1)
                size += below_size
                height = max(height, below_height)
            found = known[id(node)] = (size, height + 1)
        size, height = found
        if size > limits.max_nodes:
            raise SpecLimitError(f"the output has more than {limits.max_nodes} values and 64ths of texts")
        if level + height > limits.max_depth:
            raise SpecLimitError(f"the output is nested deeper than {limits.max_depth} levels")
        return found

    visit(value, 0)


def _characters(leaf: Any) -> int:
    """About how long a value without parts is when written out."""
    if type(leaf) is str:
        return len(leaf)
    return leaf.bit_length() // _BITS_A_DIGIT if type(leaf) is int else 0
