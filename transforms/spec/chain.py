"""A chain of operations as one function."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, TypeAlias

from idgraph.model.errors import SpecError, TransformError
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    NONE,
    Block,
    ExceptHandler,
    Raise,
    Return,
    Try,
    assign,
    call,
    choice,
    constant,
    do,
    is_,
    name,
)
from transforms.spec.jolt.scalars import unmark
from transforms.spec.jolt.writers import BorrowedError
from transforms.spec.limits import SpecLimits, measure
from transforms.spec.nesting import bound_depth
from transforms.spec.operation import (
    ALL_OWNED,
    EVENT,
    EVERYTHING,
    EmitContext,
    Operation,
    Ownership,
    PathTree,
    copy_all,
    copy_along,
)

Transform: TypeAlias = Callable[..., Any]
"""`f(payload, context=None)`: takes a JSON value, and an object that `^` looks into."""


class Chain:
    """Puts the code of operations one after the other, with the copies they need between them."""

    def __init__(self, limits: SpecLimits, ownership: Ownership = EVENT, copies: float = 1) -> None:
        """`ownership` is of the value that comes in; `copies` are those that were made of its parts."""
        self.code = Code()
        self._limits = limits
        self._flow = EmitContext(self.code, self.code.payload, limits)
        self._body: Block = []
        self._operations: list[tuple[Operation, str]] = []
        self._ownership = ownership
        self._copies = copies
        self._made = _Made()

    def add(self, operation: Operation, place: str) -> None:
        """`place` points to the operation in the spec."""
        self._operations.append((operation, place))

    def _emit(self, operation: Operation) -> None:
        if operation.changes is not None:
            self._own(operation.changes)
        operation.emit(self._flow, self._body)
        if operation.changes is not None:
            self._ownership = self._ownership.without(operation.assigns)
        elif self._ownership.owned is EVERYTHING:
            self._ownership = ALL_OWNED
        else:
            self._ownership = Ownership(operation.builds)
        self._copies *= operation.copies
        if self._copies > self._limits.max_copies:
            limits = self._limits
            measured = self.code.bind(lambda value: measure(value, limits))
            self._body.append(do(call(measured, name(self._flow.value))))

    def _own(self, changes: PathTree) -> None:
        if self._ownership.covers(changes):
            return
        if self._ownership.plain and changes is not EVERYTHING:
            self._flow.pass_through(lambda value: copy_along(value, changes), self._body)
            self._ownership = Ownership(changes)
        else:
            self._flow.pass_through(copy_all, self._body)
            self._ownership = ALL_OWNED

    def transform(self) -> Transform:
        """The function of the whole chain. Raises SpecError for loops too deep for Python."""
        self._emit_all(keeps_longs=False)
        if self._flow.makes_longs:
            # Results of `toLong` reach only containers that the chain owns.
            self._flow.pass_through(unmark, self._body)
        # Only here: what the collector finds in a `Long` has no end.
        bound_depth(self._flow, self._limits, self._body)
        return self._function()

    def step(self) -> Transform:
        """The function of a part of a chain: numbers may be `Long` in what it gives."""
        self._flow.makes_longs = True
        self._emit_all(keeps_longs=True)
        return self._function()

    def _emit_all(self, keeps_longs: bool) -> None:
        for index, (operation, place) in enumerate(self._operations):
            later = self._operations[index + 1 :]
            self._flow.keeps_longs = keeps_longs or any(each.reports_longs for each, _ in later)
            self._flow.pointer = place
            self._flow.mark("", self._body)
            try:
                self._emit(operation)
            except SpecError as error:
                raise error.under(f"{place}/spec") from None
            except RecursionError:
                raise SpecError("the spec is nested too deeply", place) from None

    def _function(self) -> Transform:
        code = self.code
        at = code.variable("at", constant(0))
        error = code.fresh("e")
        failed = call(code.bind(_failures(tuple(self._flow.marks))), name(error), name(at))
        handlers: list[ast.ExceptHandler] = [
            ExceptHandler(code.bind(Exception), error, [Raise(failed, NONE)])
        ]
        arguments = [code.payload, code.context]
        if self._flow.borrows:
            handlers.insert(0, self._start_over(error))
            arguments.append(code.borrowed)
            # Borrowed containers are distinguished only where some write may reach into one.
            borrowed = call(code.bind(set)) if self._flow.reaches_below else constant(False)
            may_change = is_(name(code.borrowed), constant(True))
            code.start.insert(0, assign(code.borrowed, choice(may_change, NONE, borrowed)))
        body: Block = [Try([*self._body, Return(name(self._flow.value))], handlers, [], [])]
        try:
            self._made.function = code.function(arguments, len(arguments) - 1, body)
        except RecursionError:
            raise SpecError("the spec is nested too deeply") from None
        return self._made.function

    def _start_over(self, error: str) -> ast.ExceptHandler:
        """Runs the function again on a copy of the event, which it may change."""
        # Not the chain: the function keeps this, and must not keep all that it was made of.
        code, made = self.code, self._made

        def again(payload: Any, context: Any) -> Any:
            return made.function(_copied(payload), context, True)

        again_node = call(code.bind(again), name(code.payload), name(code.context))
        return ExceptHandler(code.bind(BorrowedError), error, [Return(again_node)])


class _Made:
    """The function of a chain, for what must call it from within."""

    def __init__(self) -> None:
        self.function: Transform = _not_made


def _not_made(_payload: Any, _context: Any = None) -> Any:
    raise ValueError("the chain has no function yet")


def _failures(marks: tuple[tuple[str, str], ...]) -> Callable[[Exception, int], Exception]:
    """The function that says what an event is refused with, and by which operation."""

    def failed(error: Exception, at: int) -> Exception:
        place, detail = marks[at]
        match error:
            case TransformError():
                return TransformError(detail + error.message, place)
            case RecursionError():
                return TransformError("the payload is nested too deeply", place)
        # The message could quote the payload; the type cannot.
        return TransformError(f"unexpected {type(error).__name__}", place)

    return failed


def _copied(payload: Any) -> Any:
    try:
        return copy_all(payload)
    except RecursionError:
        raise TransformError("the payload is nested too deeply") from None
