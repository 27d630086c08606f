"""Levels: where a spec has walked to in its input, and what can be looked up from there.

Jolt keeps a stack of matched keys and values while it walks. The depth of the stack at each place of a spec is known
when the spec is compiled. So a look-up becomes a local variable of the generated function, and only values that some
reference reads are stored in one.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from idgraph.model.errors import SpecError
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    call,
    choice,
    constant,
    either,
    is_,
    item,
    method,
    name,
    named,
    new_tuple,
)
from transforms.spec.jolt.elements import Amp, Array, Dollar, Element, Literal, Reference, Transpose
from transforms.spec.jolt.views import (
    MISSING,
    checked_index,
    index_text,
    joined,
    key_of,
    step_to_element,
    step_to_key,
)


class KeySource(NamedTuple):
    """A matched key (group 0) or a group of it, between two texts."""

    level: Level
    group: int
    before: str = ""
    after: str = ""

    @property
    def is_distinct(self) -> bool:
        """Whether different keys of one object or array always give different texts."""
        return self.group == 0 or self.level.groups == 1


class Computed(NamedTuple):
    """A key that is looked up: an expression of text, or of None when there is nothing to look up."""

    node: ast.expr
    optional: bool = False
    source: KeySource | None = None
    """Its reference, if it is one (for keys, perhaps with fixed text around it)."""


Text: TypeAlias = "str | Computed"
"""A key: known when compiled, or looked up."""


class Level:
    """One level of the walk. Variables stay None until some reference needs them."""

    __slots__ = ("alias", "code", "count", "group_texts", "groups", "is_object", "key", "matched", "tree")

    def __init__(self, code: Code, key: str | None, groups: int = 0, alias: Level | None = None) -> None:
        """`key` is None when it is known only at run time; `alias` is the level whose key and count this
        one shares (the values differ)."""
        self.code = code
        self.key = key
        self.groups = groups
        self.alias: Level | None = alias.owner if alias else None
        self.matched: str | None = None
        """The variable of the matched key."""
        self.group_texts: str | None = None
        self.tree: str | None = None
        """The variable of the value at this level."""
        self.count: str | None = None
        self.is_object = False
        """Whether the value at this level is an object for certain where something looks it up."""

    @property
    def owner(self) -> Level:
        """The level that holds key and count."""
        return self.alias or self

    def read_key(self, group: int) -> Text:
        """The matched key (group 0) or what one of its `*` stands for."""
        level = self.owner
        if group > level.groups:
            raise SpecError(f"there is no group {group}: the key it refers to has {level.groups} '*' groups")
        if group == 0:
            if level.key is not None:
                return level.key
            return Computed(name(level.need_matched()), source=KeySource(level, 0))
        if level.group_texts is None:
            level.group_texts = self.code.fresh("g", unset=True)
        return Computed(item(name(level.group_texts), constant(group - 1)), source=KeySource(level, group))

    def need_matched(self) -> str:
        """The variable of the matched key."""
        if self.matched is None:
            self.matched = self.code.fresh("k", unset=True)
        return self.matched

    def need_tree(self) -> str:
        """The variable of the value at this level."""
        if self.tree is None:
            self.tree = self.code.fresh("t", unset=True)
        return self.tree

    def read_count(self) -> ast.expr:
        """The number of children that matched here so far."""
        level = self.owner
        if level.count is None:
            level.count = self.code.fresh("n", unset=True)
        return either(name(level.count), constant(0))


Walk: TypeAlias = Sequence[Level]
"""All levels from the outermost to the one at hand."""


def level_above(walk: Walk, up: int) -> Level:
    """The level a reference means. Raises SpecError if there are not so many."""
    if up >= len(walk):
        raise SpecError(f"there are not {up} levels above this place, only {len(walk) - 1}")
    return walk[-1 - up]


def text_node(text: Text) -> ast.expr:
    """A key as an expression."""
    return constant(text) if isinstance(text, str) else text.node


def key_text(element: Element, walk: Walk) -> Text:
    """The key that a path element gives when seen from the end of `walk`."""
    match element:
        case Literal(key):
            return key
        case Amp(tokens):
            return _joined(
                [token if isinstance(token, str) else _referenced(token, walk) for token in tokens],
                walk[-1].code,
            )
        case Dollar(reference):
            return _referenced(reference, walk)
        case Transpose():
            return Computed(call(walk[-1].code.bind(key_of), transposed(element, walk)), optional=True)
        case Array():
            return _index_text(element, walk)
    raise SpecError(f"'{element.canonical}' cannot stand in a path")


def _referenced(reference: Reference, walk: Walk) -> Text:
    return level_above(walk, reference.up).read_key(reference.group)


def _joined(parts: list[Text], code: Code) -> Text:
    if all(isinstance(part, str) for part in parts):
        return "".join(part for part in parts if isinstance(part, str))
    if len(parts) == 1:
        return parts[0]
    return Computed(call(code.bind(joined), new_tuple(*map(text_node, parts))), source=_source(parts))


def _source(parts: list[Text]) -> KeySource | None:
    references = [position for position, part in enumerate(parts) if isinstance(part, Computed)]
    reference = parts[references[0]]
    if len(references) > 1 or isinstance(reference, str) or reference.source is None:
        return None
    before = "".join(part for part in parts[: references[0]] if isinstance(part, str))
    after = "".join(part for part in parts[references[0] + 1 :] if isinstance(part, str))
    return KeySource(reference.source.level, reference.source.group, before, after)


def _index_text(element: Array, walk: Walk) -> Text:
    code = walk[-1].code
    match element.index:
        case None:
            return "[]"
        case int():
            return element.text
        case Reference():
            text = _referenced(element.index, walk)
            if isinstance(text, str):
                fixed = checked_index(text)
                return fixed if fixed is not None else Computed(constant(None), optional=True)
            return Computed(call(code.bind(checked_index), text.node), optional=True, source=text.source)
        case Transpose():
            found = call(code.bind(key_of), transposed(element.index, walk))
            return Computed(call(code.bind(checked_index), found), optional=True)
        case hash_:
            count = level_above(walk, int(hash_.text)).read_count()
            return Computed(call(code.bind(index_text), count))


def transposed(element: Transpose, walk: Walk) -> ast.expr:
    """The value that `@(up,path)` finds, MISSING if there is none."""
    level = level_above(walk, element.up)
    tree = level.need_tree()
    return name(tree) if element.path is None else path_lookup(tree, element.path, walk, level.is_object)


def path_lookup(start: str, path: Sequence[Element], walk: Walk, is_object: bool = False) -> ast.expr:
    """The value found down `path` from what is in a variable, MISSING if there is none. `is_object` says that the
    variable holds an object for certain."""
    code = walk[-1].code
    found: ast.expr = name(start)
    for position, part in enumerate(path):
        text = key_text(part, walk)
        if part.canonical.startswith("["):
            found = call(code.bind(step_to_element), found, text_node(text))
        elif position == 0 and isinstance(text, str):
            if is_object:
                found = method(found, "get", constant(text), code.bind(MISSING))
            else:
                found = quick_get(code, found, found, text)
        elif isinstance(text, str):
            owner = code.fresh("t")
            found = quick_get(code, named(owner, found), name(owner), text)
        else:
            found = call(code.bind(step_to_key), found, text_node(text))
    return found


def quick_get(code: Code, made: ast.expr, owner: ast.expr, key: str) -> ast.expr:
    """`owner[key]` of an object, else MISSING. `made` gives the owner: it is evaluated first, and once."""
    missing = code.bind(MISSING)
    return choice(
        is_(call(code.bind(type), made), code.bind(dict)),
        method(owner, "get", constant(key), missing),
        missing,
    )
