"""What a fragment's state shows: a tree of attributes, each value with where it came from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from idgraph.model import paths


def tree(leaves: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Attribute paths and values as nested objects. No path may be a prefix of another."""
    root: dict[str, Any] = {}
    for path, value in leaves:
        *above, last = paths.split(path)
        node = root
        for key in above:
            node = node.setdefault(key, {})
        node[last] = value
    return root
