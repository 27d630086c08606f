"""Where the code of `modify-*` writes."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from transforms.spec.jolt.places import PathElement


@dataclass(slots=True)
class Spot:
    """Where a child's value stands: the container's variable, and the key in it."""

    container: str
    key: ast.expr
    size: ast.expr
    """How long the container was, if it is an array, before this operation made it longer."""
    is_object: bool = True
    """Whether the container is an object for certain."""
    place: PathElement | None = None
    """The container, if more is known of it."""
    is_watched: bool = False
    """Whether the code notes what is put there (see `nesting`)."""
