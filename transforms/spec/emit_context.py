"""What is known of the value that flows through a chain, while its code is made."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

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
    """What the variable `at` stands for: a pointer, and what an error's message begins with."""

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
