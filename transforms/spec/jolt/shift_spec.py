"""A `shift` spec read into nodes: one for each key of its left side."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from idgraph.model.errors import SpecError
from transforms.spec.budget import CHARACTERS_A_STEP
from transforms.spec.generation.code import Code
from transforms.spec.jolt.elements import Amp, Array, At, Dollar, Element, Hash, Literal, Transpose, parse_key
from transforms.spec.jolt.levels import Level, Text, Walk, key_text, transposed
from transforms.spec.jolt.scalars import is_blank, sort_key, split_or
from transforms.spec.jolt.stars import Star, precedence
from transforms.spec.jolt.writers import OutputPath, output_path, root_path
from transforms.spec.pointers import found, pointer

Loops: TypeAlias = "tuple[Level, ...] | None"
"""The levels of the `*` above; None where that is not all that says how often a key is visited."""


@dataclass(slots=True)
class Node:
    """One key. A leaf has output paths, an inner node has children."""

    element: Element
    level: Level
    outputs: list[OutputPath] = field(default_factory=list)
    specials: list[Node] = field(default_factory=list)
    literals: dict[str, Node] = field(default_factory=dict)
    computed: list[Node] = field(default_factory=list)
    is_leaf: bool = False
    text: Text | None = None
    """For `$` and `#`: the value. For `&`: the key to match."""
    lookup: ast.expr | None = None
    """For `@(1,a)`: the value, or MISSING."""

    @property
    def effort(self) -> int:
        """The number of values of all leaves' writes, as `count_steps` counts them."""
        total = 0
        for leaf in self.leaves():
            constant = leaf.text if isinstance(leaf.element, Hash) and isinstance(leaf.text, str) else ""
            longer = 1 + len(constant) // CHARACTERS_A_STEP
            total += sum(output.effort for output in leaf.outputs) * longer
        return total

    def leaves(self) -> Iterator[Node]:
        if self.is_leaf:
            yield self
        for child in (*self.specials, *self.literals.values(), *self.computed):
            yield from child.leaves()

    @property
    def is_conflicted(self) -> bool:
        """Whether a key of the input may match a literal child as well as a computed one."""
        return any(
            not isinstance(child.element, Star)
            or any(child.element.match(key) is not None for key in self.literals)
            for child in self.computed
        )


def read_spec(spec: object, code: Code) -> tuple[Level, Node]:
    """The root node and the level around it (Jolt has two levels at the root).

    Raises SpecError with a pointer into `spec`.
    """
    if not isinstance(spec, dict):
        raise SpecError(f"expected an object as the spec of shift, found {found(spec)}")
    outer, root = Level(code, "root"), Level(code, "root")
    node = Node(Literal("root"), root)
    _read_children(node, spec, [outer, root], ())
    return outer, node


def _read_children(parent: Node, spec: dict[str, Any], walk: list[Level], loops: Loops) -> None:
    if not spec:
        raise SpecError("an empty object matches nothing; remove the key or give it an output path")
    seen: set[str] = set()
    for spelled, right in spec.items():
        try:
            for key in split_or(spelled):
                child = _read_node(key, right, walk, loops)
                if child.element.canonical in seen:
                    raise SpecError(f"the key '{key}' occurs twice at this level")
                seen.add(child.element.canonical)
                _place(parent, child)
        except SpecError as error:
            raise error.under(pointer(spelled)) from None
    if len(parent.computed) > 1 and any(isinstance(child.element, Array) for child in parent.computed):
        raise SpecError("an array index cannot compete with wildcards on the left side")
    parent.computed.sort(key=_precedence)


def _place(parent: Node, child: Node) -> None:
    match child.element:
        case Literal(key):
            parent.literals[key] = child
        case At() | Dollar() | Hash() | Transpose():
            parent.specials.append(child)
        case _:
            parent.computed.append(child)


def _precedence(node: Node) -> tuple[int, int, bytes]:
    if isinstance(node.element, Star):
        return precedence(node.element)
    canonical = node.element.canonical
    return 0, -len(canonical), sort_key(canonical)


def _read_node(key: str, right: Any, walk: list[Level], loops: Loops) -> Node:
    element = parse_key(key)
    node = Node(element, _level(element, walk))
    loops = _loops(element, node.level, loops)
    match element:
        case Dollar() | Amp():
            node.text = key_text(element, walk)
        case Hash():
            node.text = element.text
        case Transpose():
            node.lookup = transposed(element, walk)
    walk = [*walk, node.level]
    if isinstance(right, dict):
        if isinstance(element, At | Dollar):
            raise SpecError(f"'{element.canonical}' cannot have children")
        _read_children(node, right, walk, loops)
        return node
    node.is_leaf = True
    if isinstance(right, list):
        for index, path in enumerate(right):
            try:
                node.outputs.append(_output(path, walk, loops))
            except SpecError as error:
                raise error.under(pointer(index)) from None
    elif right is not None:
        node.outputs.append(_output(right, walk, loops))
    return node


def _loops(element: Element, level: Level, above: Loops) -> Loops:
    if above is None or isinstance(element, Amp):
        return None
    if not isinstance(element, Star):
        return above
    return (*above, level)


def _output(path: Any, walk: Walk, loops: Loops) -> OutputPath:
    if not isinstance(path, str):
        raise SpecError(
            f"expected an output path, an array of output paths, or an object, found {found(path)}"
        )
    return root_path(loops) if is_blank(path) else output_path(path, walk, loops)


def _level(element: Element, walk: list[Level]) -> Level:
    code = walk[-1].code
    match element:
        case Literal(key):
            return Level(code, key)
        case Hash():
            return Level(code, element.text)
        case At() | Transpose():
            return Level(code, None, alias=walk[-1])
        case Dollar():
            text = key_text(element, walk)
            return Level(code, text if isinstance(text, str) else None)
        case Star():
            return Level(code, None, element.groups)
    return Level(code, None)
