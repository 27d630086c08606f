"""What a compiled operation is to the chain it stands in."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from transforms.spec.emit_context import EmitContext
from transforms.spec.generation.nodes import Block
from transforms.spec.ownership import PathTree

Emit: TypeAlias = Callable[[EmitContext, Block], None]
"""Adds the code that makes the new value out of the flow's."""

UNBOUNDED = math.inf


@dataclass(frozen=True, slots=True)
class Operation:
    """A compiled operation. Safe for several threads: what it needs for one event lives in the call.

    An operation either builds its output (`changes` is None) or changes its input in place: then the chain
    sees to it that it owns the containers in `changes`.
    """

    emit: Emit
    changes: PathTree | None = None
    builds: PathTree | None = None
    """For an operation that builds: containers of its output that are certainly new."""
    assigns: list[tuple[str, ...]] = field(default_factory=list)
    """For an operation that changes: paths (`*` for any key) where it may put parts of its input."""
    copies: float = 1
    """At most how often one part of the input stands in the output."""
    reports_longs: bool = False
    """Whether a `Long` is another number to it than an integer."""
