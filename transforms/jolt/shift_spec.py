"""A `shift` spec read into nodes: one for each key of its left side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from model.errors import SpecError
from transforms.jolt.elements import (
    Amp,
    Array,
    At,
    Dollar,
    Element,
    Hash,
    Literal,
    Transpose,
    parse_key,
)
from transforms.jolt.levels import FrameLayout, Level, Text, Walk, key_text, transposed
from transforms.jolt.output_paths import OutputPath, output_path, root_path
from transforms.jolt.stars import Star, precedence
from transforms.jolt.text import is_blank, sort_key, split_or
from transforms.pointers import found, pointer


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
    lookup: Any = None
    """For `@(1,a)`: finds the value."""

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


def read_spec(spec: object, layout: FrameLayout) -> tuple[Level, Node]:
    """The root node and the level around it (Jolt has two levels at the root).

    Raises SpecError with a pointer into `spec`.
    """
    if not isinstance(spec, dict):
        raise SpecError(f"expected an object as the spec of shift, found {found(spec)}")
    outer, root = Level(layout, "root"), Level(layout, "root")
    node = Node(Literal("root"), root)
    _read_children(node, spec, [outer, root], once=True)
    return outer, node


def _read_children(parent: Node, spec: dict[str, Any], walk: list[Level], once: bool) -> None:
    if not spec:
        raise SpecError("an empty object matches nothing; remove the key or give it an output path")
    seen: set[str] = set()
    for spelled, right in spec.items():
        try:
            for key in split_or(spelled):
                child = _read_node(key, right, walk, once)
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


def _read_node(key: str, right: Any, walk: list[Level], once: bool) -> Node:
    element = parse_key(key)
    node = Node(element, _level(element, walk))
    once = once and not isinstance(element, Star | Amp)
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
        _read_children(node, right, walk, once)
        return node
    node.is_leaf = True
    if isinstance(right, list):
        for index, path in enumerate(right):
            try:
                node.outputs.append(_output(path, walk, once))
            except SpecError as error:
                raise error.under(pointer(index)) from None
    elif right is not None:
        node.outputs.append(_output(right, walk, once))
    return node


def _output(path: Any, walk: Walk, once: bool) -> OutputPath:
    if not isinstance(path, str):
        raise SpecError(
            f"expected an output path, an array of output paths, or an object, found {found(path)}"
        )
    return root_path(once) if is_blank(path) else output_path(path, walk, once)


def _level(element: Element, walk: list[Level]) -> Level:
    layout = walk[-1].layout
    match element:
        case Literal(key):
            return Level(layout, key)
        case Hash():
            return Level(layout, element.text)
        case At() | Transpose():
            return Level(layout, None, alias=walk[-1])
        case Dollar():
            text = key_text(element, walk)
            return Level(layout, text if isinstance(text, str) else None)
        case Star():
            return Level(layout, None, element.groups)
    return Level(layout, None)
