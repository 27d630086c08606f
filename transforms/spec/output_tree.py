"""The paths that a chain of operations can produce, as far as its spec says. `can_produce` is for warnings, never for refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any, Final, TypeAlias

from idgraph.model import paths
from transforms.spec.operation_moves import Item, Keys, Place, may_be
from transforms.spec.operations import moves_of

ANYTHING: Final = None
"""Keys that an event brings, or the value of an event with all that is below it."""
Tree: TypeAlias = "dict[str, Any] | None"


def output_tree(operations: Any) -> Tree:
    """The keys that the output of a spec, which compiles, may have."""
    tree: Tree = ANYTHING
    for entry in operations if isinstance(operations, list) else [operations]:
        moves = moves_of(entry, "", "")
        if moves.replaces:
            prefixes = [tuple(takewhile(lambda key: isinstance(key, str), place)) for place in moves.written]
            tree = _added({}, prefixes) if all(prefixes) else ANYTHING
        elif tree is not ANYTHING:
            for gone in moves.removed:
                _remove(tree, gone)
            _added(tree, moves.written)
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


def place_of(operations: Any, path: str) -> str | None:
    """The JSON pointer, within a spec, of the last line that names a path of the output, or one below it; None if no line does,
    though events may bring it."""
    keys = tuple(paths.split(path))
    found = None
    for number, entry in enumerate(operations if isinstance(operations, list) else [operations]):
        at = f"/{number}" if isinstance(operations, list) else ""
        moves = moves_of(entry, at, "")
        if any(place[: len(keys)] == keys for place in moves.written):
            lines = (each.by.place for each in moves.moves if each.target[: len(keys)] == keys)
            found = next(lines, f"/operations{at}")
    return found if found is not None and can_produce(output_tree(operations), path) else None


def leaves(tree: Tree, above: tuple[str, ...] = ()) -> Iterator[str]:
    """The paths whose values are not known."""
    for key, below in (tree or {}).items():
        if below is ANYTHING:
            yield paths.join((*above, key))
        else:
            yield from leaves(below, (*above, key))


def _added(tree: dict[str, Any], places: Iterable[Keys]) -> dict[str, Any]:
    # As Jolt does: keys that are known come before patterns, which take what those added.
    for place in sorted(places, key=lambda place: [not isinstance(key, str) for key in place]):
        _put(tree, place)
    return tree


def _put(tree: dict[str, Any], place: Keys) -> None:
    """Add a place. All below it is not known, nor what an array holds."""
    key, *rest = place
    for name in [key] if isinstance(key, str) else [each for each in tree if may_be(key, each)]:
        if not rest or isinstance(rest[0], Item):
            tree[name] = ANYTHING
        elif (below := tree.setdefault(name, {})) is not ANYTHING:
            _put(below, tuple(rest))


def _remove(tree: Any, place: Place) -> None:
    """Keys that are not known are left: too much may be reported."""
    *above, last = place
    for key in above:
        tree = tree.get(key) if isinstance(tree, dict) else None
    if isinstance(tree, dict):
        tree.pop(last, None)
