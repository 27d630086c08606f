"""The paths that a chain of operations can produce, as far as its spec says: for warnings, never for refusals."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from idgraph.model import paths
from transforms.spec.jolt.elements import Literal, parse_path
from transforms.spec.jolt.scalars import split_or
from transforms.spec.operations import JOLT_CLASSES

ANYTHING: Final = None
"""Keys that an event brings, or the value of an event with all that is below it."""
Tree: TypeAlias = "dict[str, Any] | None"


def output_tree(operations: Any) -> Tree:
    """The keys that the output of a spec, which compiles, may have."""
    tree: Tree = ANYTHING
    for entry in operations if isinstance(operations, list) else [operations]:
        name = JOLT_CLASSES.get(entry["operation"], entry["operation"])
        spec = entry.get("spec")
        if name == "shift":
            tree = _built(_shifted(spec))
        elif name == "jmespath":
            tree = _built(_targets(spec, ()))
        elif tree is not ANYTHING and (name == "default" or name.startswith("modify")):
            _added(tree, spec)
        elif tree is not ANYTHING and name == "remove":
            _removed(tree, spec)
    return tree


def can_produce(tree: Tree, path: str) -> bool:
    """Whether an output may have a value at a path, or below it."""
    for key in paths.split(path):
        if tree is ANYTHING:
            return True
        if key not in tree:
            return False
        tree = tree[key]
    return True


def leaves(tree: Tree, above: tuple[str, ...] = ()) -> Iterator[str]:
    """The paths whose values are not known."""
    for key, below in (tree or {}).items():
        if below is ANYTHING:
            yield paths.join((*above, key))
        else:
            yield from leaves(below, (*above, key))


def _built(ways: Iterator[tuple[str | None, ...]]) -> Tree:
    """A tree of paths, in which None is any key."""
    tree: dict[str, Any] = {}
    for way in ways:
        place = tree
        for key, following in zip_longest(way, way[1:]):
            if key is None:
                return ANYTHING
            if following is None or place.get(key, place) is ANYTHING:
                place[key] = ANYTHING
                break
            place = place.setdefault(key, {})
        if not way:
            return ANYTHING
    return tree


def _shifted(spec: Any) -> Iterator[tuple[str | None, ...]]:
    for right in spec.values():
        if isinstance(right, dict):
            yield from _shifted(right)
            continue
        for path in right if isinstance(right, list) else [right]:
            if isinstance(path, str):
                elements = parse_path(path) if path else ()
                yield tuple(each.key if isinstance(each, Literal) else None for each in elements)


def _targets(spec: dict[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str | None, ...]]:
    for path, right in spec.items():
        keys = (*above, *paths.split(path))
        if isinstance(right, dict):
            yield from _targets(right, keys)
        else:
            yield keys


def _added(tree: dict[str, Any], spec: dict[str, Any]) -> None:
    """Keys with wildcards add nothing at the places that the tree knows, but may add to each of them."""
    for spelled, right in spec.items():
        for option in split_or(spelled):
            key = option.strip("+~_?").removesuffix("[]").replace("\\", "")
            if "*" in key:
                for known in tree:
                    tree[known] = ANYTHING
            elif not isinstance(right, dict) or not right:
                tree[key] = ANYTHING
            elif (below := tree.setdefault(key, {})) is not ANYTHING:
                _added(below, right)


def _removed(tree: dict[str, Any], spec: dict[str, Any]) -> None:
    """Keys that are not known are left: too much may be reported."""
    for spelled, right in spec.items():
        for option in split_or(spelled):
            key = option.replace("\\", "")
            if isinstance(right, dict) and isinstance(tree.get(key), dict):
                _removed(tree[key], right)
            elif not isinstance(right, dict) and "*" not in key:
                tree.pop(key, None)
