"""Which objects of an event are asked for several keys: the machine looks at those once for all of them."""

from __future__ import annotations

import ast

from transforms.spec.generation import nodes

_FEWEST = 3


def keys_asked_for(everything: nodes.ByKind) -> dict[str, tuple[str, ...]]:
    """For each variable whose object is only read the constant keys that it is asked for, if there are several."""
    found: dict[str, dict[str, None]] = {}
    changed: set[str] = set()
    for node in everything.get(nodes.Compare, ()):
        if type(node.ops[0]) is ast.In:
            _note(node.comparators[0], node.left, found)
    for node in everything.get(nodes.Call, ()):
        if isinstance(node.func, nodes.Attribute) and node.func.attr == "get":
            _note(node.func.value, node.args[0], found)
    for node in (*everything.get(nodes.Assign, ()), *everything.get(nodes.Delete, ())):
        for target in node.targets:
            if isinstance(target, nodes.Subscript) and isinstance(target.value, nodes.Name):
                changed.add(target.value.id)
    return {name: tuple(keys) for name, keys in found.items() if len(keys) >= _FEWEST and name not in changed}


def _note(owner: ast.expr, key: ast.expr, found: dict[str, dict[str, None]]) -> None:
    if isinstance(owner, nodes.Name) and isinstance(key, nodes.Constant) and type(key.value) is str:
        found.setdefault(owner.id, {})[key.value] = None
