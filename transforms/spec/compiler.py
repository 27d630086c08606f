"""From a spec to one function: the chain of its operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from idgraph.model.errors import SpecError
from transforms.spec.chain import Chain, Transform
from transforms.spec.generation.code import Code
from transforms.spec.limits import DEFAULT_LIMITS, SpecLimits
from transforms.spec.operation import EVENT, Operation, Ownership
from transforms.spec.operations import JOLT_CLASSES, OPERATIONS, WITHOUT_SPEC
from transforms.spec.pointers import found, nearest, pointer, without
from transforms.spec.spec_size import check_size


def compile_spec(spec: Any, limits: SpecLimits = DEFAULT_LIMITS) -> Transform:
    """A spec as the function that maps payloads: `f(payload, context=None) -> mapped`.

    `spec` is an array of `{"operation": NAME, "spec": ...}`, as Jolt has it, or one such object. Raises
    SpecError with the place if it is wrong.

    The function gives None for a payload that maps to nothing. It never changes the payload or the context,
    though its output may share parts with them. It gives the same for the same, can be called by several
    threads at once, and raises nothing but TransformError, whose message holds no values.
    """
    chain = Chain(limits)
    for place, entry in _entries(spec, limits):
        _add(chain, place, entry, limits)
    return chain.transform()


_MOST_MISTAKES = 20


class OperationStep(NamedTuple):
    """One operation of a spec, to be run by itself. `run(value, context)` changes neither."""

    pointer: str
    name: str
    run: Transform


def compile_operations(spec: Any, limits: SpecLimits = DEFAULT_LIMITS) -> list[OperationStep]:
    """The operations of a spec one by one, for those who look at what each of them does.

    Given to one after the other, a value becomes what `compile_spec` makes of it; only between two
    operations numbers may be `Long`. Raises SpecError as `compile_spec` does; the functions raise TransformError.
    """
    steps: list[OperationStep] = []
    copies = 1.0
    for place, entry in _entries(spec, limits):
        chain = Chain(limits, Ownership(None) if steps else EVENT, copies)
        copies *= _add(chain, place, entry, limits).copies
        steps.append(OperationStep(place, entry["operation"], chain.step()))
    return steps


def find_problems(spec: Any, limits: SpecLimits = DEFAULT_LIMITS) -> list[SpecError]:
    """What is wrong with a spec, up to 20 mistakes of each of its operations. Empty if it compiles."""
    problems: list[SpecError] = []
    try:
        for place, entry in _entries(spec, limits):
            problems += _mistakes(place, entry, limits)
    except SpecError as error:
        problems.append(error)
    return problems


def _mistakes(place: str, entry: Any, limits: SpecLimits) -> list[SpecError]:
    """Each mistake is reported, then the key that has it is left out to see what else is wrong."""
    reported: list[SpecError] = []
    while len(reported) < _MOST_MISTAKES:
        chain = Chain(limits)
        try:
            _add(chain, "", entry, limits)
            chain.transform()
            break
        except SpecError as error:
            reported.append(error.under(place))
            entry = without(entry, error.pointer)
            if entry is None:
                break
    return reported


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
    check_size(entries, limits.max_spec_size, single)
    for index, entry in enumerate(entries):
        yield "" if single else pointer(index), entry


def _add(chain: Chain, place: str, entry: Any, limits: SpecLimits) -> Operation:
    try:
        operation = _compile_entry(entry, limits, chain.code)
        chain.add(operation, place)
    except SpecError as error:
        raise error.under(place) from None
    except RecursionError:
        raise SpecError("the spec is nested too deeply", place) from None
    return operation


def _compile_entry(entry: Any, limits: SpecLimits, code: Code) -> Operation:
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
        return compile_operation(operation_spec, limits, code)
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
