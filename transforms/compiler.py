"""From a spec to one function: the chain of its operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from model.errors import SpecError, TransformError
from transforms.jolt.numbers import unmark
from transforms.limits import DEFAULT_LIMITS, SpecLimits, measure
from transforms.operation import Operation, Run
from transforms.operations import JOLT_CLASSES, OPERATIONS, WITHOUT_SPEC
from transforms.ownership import ALL_OWNED, EVENT, EVERYTHING, Ownership, PathTree, copy_all, copy_along
from transforms.pointers import found, nearest, pointer

Transform: TypeAlias = Callable[..., Any]
"""`f(payload, context=None)`: takes a JSON value, and an object that `^` looks into."""


def compile_spec(spec: Any, limits: SpecLimits = DEFAULT_LIMITS) -> Transform:
    """A spec as the function that maps payloads: `f(payload, context=None) -> mapped`.

    `spec` is an array of `{"operation": NAME, "spec": ...}`, as Jolt has it, or one such object. Raises
    SpecError with the place if it is wrong.

    The function gives None for a payload that maps to nothing. It never changes the payload or the context,
    though its output may share parts with them. It gives the same for the same, can be called by several
    threads at once, and raises nothing but TransformError, whose message holds no values.
    """
    chain = _Chain(limits)
    for place, entry in _entries(spec, limits):
        chain.add(_compile_at(place, entry, limits), place)
    return chain.transform()


class OperationStep(NamedTuple):
    """One operation of a spec, to be run by itself. `run(value, context)` changes neither."""

    pointer: str
    name: str
    run: Run


def compile_operations(spec: Any, limits: SpecLimits = DEFAULT_LIMITS) -> list[OperationStep]:
    """The operations of a spec one by one, for those who look at what each of them does.

    Given to one after the other, a value becomes what `compile_spec` makes of it; only between two
    operations numbers may be `Long`. Raises SpecError as `compile_spec` does. The functions raise what an
    operation happens to raise: `transforms.tracing` turns that into TransformError.
    """
    steps: list[OperationStep] = []
    copies = 1.0
    for place, entry in _entries(spec, limits):
        operation = _compile_at(place, entry, limits)
        chain = _Chain(limits, Ownership(None) if steps else EVENT, copies)
        chain.add(operation, place)
        copies *= operation.copies
        steps.append(OperationStep(place, entry["operation"], chain.run))
    return steps


def find_problems(spec: Any, limits: SpecLimits = DEFAULT_LIMITS) -> list[SpecError]:
    """What is wrong with a spec: the first mistake of each of its operations. Empty if it compiles."""
    problems: list[SpecError] = []
    try:
        for place, entry in _entries(spec, limits):
            try:
                _compile_at(place, entry, limits)
            except SpecError as error:
                problems.append(error)
    except SpecError as error:
        problems.append(error)
    return problems


def _entries(spec: Any, limits: SpecLimits) -> Iterator[tuple[str, Any]]:
    """The operations of a spec with their pointers."""
    single = isinstance(spec, dict)
    entries = [spec] if single else spec
    if not isinstance(entries, list):
        raise SpecError(f"expected an array of operations, found {found(spec)}")
    if not entries:
        raise SpecError("the array of operations is empty")
    if len(entries) > limits.max_operations:
        raise SpecError(f"expected at most {limits.max_operations} operations, found {len(entries)}")
    for index, entry in enumerate(entries):
        yield "" if single else pointer(index), entry


def _compile_at(place: str, entry: Any, limits: SpecLimits) -> Operation:
    try:
        return _compile_entry(entry, limits)
    except SpecError as error:
        raise error.under(place) from None
    except RecursionError:
        raise SpecError("the spec is nested too deeply", place) from None


def _compile_entry(entry: Any, limits: SpecLimits) -> Operation:
    if not isinstance(entry, dict):
        raise SpecError(f'expected {{"operation": ..., "spec": ...}}, found {found(entry)}')
    name = entry.get("operation")
    if name is None:
        raise SpecError("the key 'operation' is missing", hint=_misspelled(entry, "operation"))
    if not isinstance(name, str):
        raise SpecError(f"expected the name of an operation, found {found(name)}", "/operation")
    name = JOLT_CLASSES.get(name, name)
    compile_operation = OPERATIONS.get(name)
    if compile_operation is None:
        raise SpecError(_unknown(name), "/operation", nearest(name, OPERATIONS))
    if "spec" not in entry and name not in WITHOUT_SPEC:
        raise SpecError("the key 'spec' is missing", hint=_misspelled(entry, "spec"))
    operation_spec = entry.get("spec")
    _check_depth(operation_spec, limits.max_spec_depth)
    try:
        return compile_operation(operation_spec, limits)
    except SpecError as error:
        raise error.under("/spec") from None


def _unknown(name: str) -> str:
    known = f"expected one of {', '.join(OPERATIONS)}"
    if "." in name:
        return f"'{name}' names a Java class; specs here cannot run Java code; {known}"
    return f"there is no operation '{name}'; {known}"


def _misspelled(entry: dict[str, Any], key: str) -> str | None:
    for present in entry:
        if present not in ("operation", "spec") and nearest(present, [key]):
            return f"is '{present}' meant to be '{key}'?"
    return None


def _check_depth(spec: Any, left: int) -> None:
    if left < 0:
        raise SpecError("the spec is nested too deeply", "/spec")
    below = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ()
    for part in below:
        _check_depth(part, left - 1)


class _Chain:
    """Puts operations one after the other, with the copies they need between them."""

    def __init__(self, limits: SpecLimits, ownership: Ownership = EVENT, copies: float = 1) -> None:
        self._limits = limits
        self._steps: list[tuple[str, Run]] = []
        self._ownership = ownership
        self._copies = copies
        self._makes_longs = False

    def add(self, operation: Operation, place: str) -> None:
        run = operation.run
        if operation.changes is None:
            if self._ownership.owned is EVERYTHING:
                run = operation.run_owned or run
                self._ownership = ALL_OWNED
            else:
                self._ownership = Ownership(operation.builds)
        else:
            self._own(operation.changes, place)
            self._ownership = self._ownership.without(operation.assigns)
        self._steps.append((place, run))
        self._copies *= operation.copies
        if self._copies > self._limits.max_copies:
            self._steps.append((place, _measuring(self._limits)))
        self._makes_longs |= operation.makes_longs

    def _own(self, changes: PathTree, place: str) -> None:
        if self._ownership.covers(changes):
            return
        if self._ownership.plain and changes is not EVERYTHING:
            self._steps.append((place, lambda value, _context: copy_along(value, changes)))
            self._ownership = Ownership(changes)
        else:
            self._steps.append((place, lambda value, _context: copy_all(value)))
            self._ownership = ALL_OWNED

    def run(self, value: Any, context: Any) -> Any:
        """The operations as they are: no marks are taken away, no errors turned into others."""
        for _, run in self._steps:
            value = run(value, context)
        return value

    def transform(self) -> Transform:
        if self._makes_longs:
            # What `toLong` makes reaches only containers that the chain owns.
            self._steps.append((self._steps[-1][0], lambda value, _context: unmark(value)))
        steps = tuple(self._steps)

        def transform(payload: Any, context: Any = None) -> Any:
            value = payload
            place = ""
            try:
                for place, run in steps:  # noqa: B007 - the handlers say where it went wrong
                    value = run(value, context)
            except TransformError as error:
                raise TransformError(error.message, place) from None
            except RecursionError:
                raise TransformError("the payload is nested too deeply", place) from None
            except Exception as error:
                # The message could quote the payload; the type cannot.
                raise TransformError(f"unexpected {type(error).__name__}", place) from None
            return value

        return transform


def _measuring(limits: SpecLimits) -> Run:
    def run(value: Any, _context: Any) -> Any:
        measure(value, limits)
        return value

    return run
