"""One function in the making: its names, and the objects that it is given."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from transforms.spec.generation.nodes import Argument, Block, FunctionDef, Name, assign, constant, name
from transforms.spec.generation.verification import build


class Code:
    """Makes the names of one function, so that none comes from a spec."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self.payload, self.context, self.borrowed = (self.fresh(dead_letter) for dead_letter in "vcb")
        self._bound: dict[str, Any] = {}
        self._by_identity: dict[int, str] = {}
        self._purposes: dict[str, str] = {}
        self._unset: list[str] = []
        self.start: Block = []
        """Statements before all others."""

    def fresh(self, dead_letter: str, unset: bool = False) -> str:
        """A new local variable; `unset` ones are None when the function starts."""
        made = f"{dead_letter}{len(self._names)}"
        self._names.add(made)
        if unset:
            self._unset.append(made)
        return made

    def variable(self, purpose: str, start: ast.expr) -> str:
        """The one variable for a purpose, set when the function starts."""
        made = self._purposes.get(purpose)
        if made is None:
            made = self._purposes[purpose] = self.fresh("s")
            self.start.append(assign(made, start))
        return made

    def bind(self, value: Any) -> Name:
        """The name of an object that the code uses."""
        known = self._by_identity.get(id(value))
        if known is None:
            known = self._by_identity[id(value)] = self.fresh("x")
            self._bound[known] = value
        return name(known)

    def uses(self, value: Any) -> bool:
        """Whether the code so far uses an object."""
        return id(value) in self._by_identity

    def function(self, arguments: list[str], defaults: int, body: Block) -> Callable[..., Any]:
        """The function with this body; so many of its last arguments are None if left out.

        The variables that are None at the start are arguments too, which nobody gives: Python sets all of them at
        once, where assignments would be a tenth of what a small spec does.
        """
        signature = ast.arguments(
            posonlyargs=[],
            args=[Argument(argument, None) for argument in arguments + self._unset],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[constant(None)] * (defaults + len(self._unset)),
        )
        title = self.fresh("f")
        function = FunctionDef(title, signature, self.start + body, [], None)
        return build(function, frozenset(self._names), self._bound)
