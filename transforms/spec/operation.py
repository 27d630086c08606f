"""A compiled operation, and the state of a chain while the code of its operations is generated."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from transforms.spec.budget import budgeted
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import Block, assign, call, constant, name
from transforms.spec.jolt.places import PathElement
from transforms.spec.limits import SpecLimits


@dataclass(slots=True)
class EmitContext:
    """The variable that holds the value between two operations, and the variables of containers in it."""

    code: Code
    value: str
    limits: SpecLimits
    known: PathElement | None = None
    """The root container, if the value is either that or null. Certain ones below it have variables too."""
    borrows: bool = False
    """Whether some operation may have to start over on a copy of the event."""
    reaches_below: bool = False
    """Whether that may be because a write reaches into what another one put there."""

    keeps_longs: bool = True
    """Whether `Long` markers matter to what comes after the operation whose code is made."""
    makes_longs: bool = False
    """Whether the value may hold `Long` markers."""

    pointer: str = ""
    """To the operation whose code is made."""
    marks: list[tuple[str, str]] = field(default_factory=list)
    """The values of the variable `at`: a pointer, and the beginning of an error's message."""

    def budgeted(self) -> Block:
        """The code before a call of a function that may take many steps."""
        return budgeted(self.code, self.limits)

    def mark(self, detail: str, body: Block) -> None:
        """From here on errors are of the operation at hand, and reported with this detail."""
        at = self.code.variable("at", constant(0))
        body.append(assign(at, constant(len(self.marks))))
        self.marks.append((self.pointer, detail))

    def replace(self, value: ast.expr, body: Block) -> None:
        """A new value, of which nothing is known."""
        self.value = self.code.fresh("v")
        self.known = None
        body.append(assign(self.value, value))

    def pass_through(self, function: object, body: Block) -> None:
        """The value becomes what a function makes of it."""
        self.replace(call(self.code.bind(function), name(self.value)), body)


PathTree: TypeAlias = "dict[str, PathTree]"
"""Containers by the keys that lead to them; the tree itself stands for the root."""

EVERYTHING: Final[PathTree] = {}
"""Stands for all containers; compare by identity."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Facts about a value between two operations.

    `owned` is None when not even the root may be changed. `plain` says that no part occurs twice.
    """

    owned: PathTree | None
    plain: bool = False

    def covers(self, changed: PathTree) -> bool:
        """Whether all containers that an operation changes are owned."""
        return self.owned is not None and _covers(self.owned, changed)

    def without(self, assigned: list[tuple[str, ...]]) -> Ownership:
        """After values were put at these paths (`*` for any key) that may be shared or not owned."""
        if self.owned is None or self.owned is EVERYTHING:
            return self
        return Ownership(_pruned(self.owned, assigned))


EVENT: Final = Ownership(None, plain=True)
"""An event as it came."""
ALL_OWNED: Final = Ownership(EVERYTHING)


def merge_trees(into: PathTree, other: PathTree) -> None:
    """Adds the containers of `other`; neither may be EVERYTHING."""
    for key, below in other.items():
        merge_trees(into.setdefault(key, {}), below)


def _covers(owned: PathTree, changed: PathTree) -> bool:
    if owned is EVERYTHING:
        return True
    if changed is EVERYTHING:
        return False
    return all(key in owned and _covers(owned[key], below) for key, below in changed.items())


def _pruned(owned: PathTree, assigned: list[tuple[str, ...]]) -> PathTree:
    kept: PathTree = {}
    for key, below in owned.items():
        heads = [path for path in assigned if path[0] in (key, "*")]
        if not any(len(path) == 1 for path in heads):
            kept[key] = _pruned(below, [path[1:] for path in heads])
    return kept


def copy_all(value: Any) -> Any:
    """A copy in which every container is new and what was shared is shared."""
    known: dict[int, Any] = {}

    def visit(node: Any) -> Any:
        kind = type(node)
        if kind is not dict and kind is not list:
            return node
        copied = known.get(id(node))
        if copied is None:
            if kind is dict:
                copied = known[id(node)] = {}
                for key, below in node.items():
                    copied[key] = visit(below)
            else:
                copied = known[id(node)] = []
                for below in node:
                    copied.append(visit(below))
        return copied

    return visit(value)


def copy_along(value: Any, changed: PathTree) -> Any:
    """A copy in which the containers of `changed` are new; the rest is the same."""
    if type(value) is dict:
        copied = dict(value)
        for key, below in changed.items():
            inner = copied.get(key)
            if type(inner) is dict or type(inner) is list:
                copied[key] = copy_along(inner, below)
        return copied
    if type(value) is list:
        # Keys may be array indexes; which ones is not worth knowing.
        return [copy_all(element) if changed else element for element in value]
    return value


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
