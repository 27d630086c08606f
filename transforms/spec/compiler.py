"""From a spec to one function, after a check of its size; and operation by operation, to find a mistake.

The size counts the keys that every `a|b` stands for, before any of them is read: `{"a|b": {"a|b": ...}}` doubles with
each level, so a short spec could stand for millions of keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from idgraph.model.errors import SpecError, TransformError
from idgraph.model.text import name_hint
from transforms.spec.chain import Chain, Transform
from transforms.spec.generation.code import Code
from transforms.spec.jmespath.operation import failing_targets
from transforms.spec.jolt.scalars import split_or, unmark
from transforms.spec.limits import DEFAULT_LIMITS, SpecLimits
from transforms.spec.operation import EVENT, Operation, Ownership, copy_all
from transforms.spec.operations import JOLT_CLASSES, OPERATIONS, WITH_ALTERNATIVES, WITHOUT_SPEC
from transforms.spec.pointers import found, pointer, without

MAX_KEY = 10_000
"""Characters of one key."""
_CHARACTERS_A_VALUE = 20
_TOKENS_A_VALUE = 2
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|\w+|\S""", re.DOTALL)
"""A token of a JMESPath expression: the time to read one depends on their number."""


def check_size(entries: list[Any], most: int, single: bool = False) -> None:
    """Raises SpecError with a pointer if the operations hold too much, or a key that is too long."""
    left = most - len(entries)
    for index, entry in enumerate(entries):
        try:
            left = _counted(entry, left, most)
        except SpecError as error:
            raise error if single else error.under(pointer(index)) from None


def _counted(entry: Any, left: int, most: int) -> int:
    """The rest of the bound after one operation."""
    # A part, how often it is read, whether its keys may be alternatives, and where it stands.
    expressions = _operation(entry) == "jmespath"
    waiting: list[tuple[Any, int, bool, Any]] = [(entry, 1, False, None)]
    while waiting:
        part, times, splits, place = waiting.pop()
        if isinstance(part, str):
            left -= times * (len(part) // _CHARACTERS_A_VALUE)
            left -= len(_TOKEN.findall(part)) // _TOKENS_A_VALUE if expressions else 0
        for key, below in _items(part):
            at = (place, key)
            ways = times
            if isinstance(key, str):
                if len(key) > MAX_KEY:
                    raise SpecError(f"a key is longer than {MAX_KEY} characters", _pointer(place))
                ways *= max(1, len(split_or(key))) if splits else 1
                left -= times * (len(key) // _CHARACTERS_A_VALUE)
            left -= ways
            if left < 0:
                _refuse(most, at, ways)
            splits_below = splits or (
                place is None and key == "spec" and _operation(entry) in WITH_ALTERNATIVES
            )
            waiting.append((below, ways, splits_below, at))
        if left < 0:
            _refuse(most, place, times)
    return left


def _items(part: Any) -> Any:
    if isinstance(part, dict):
        return part.items()
    return enumerate(part) if isinstance(part, list) else ()


def _operation(entry: Any) -> str:
    """The name of an operation; empty if it has none."""
    name = entry.get("operation") if isinstance(entry, dict) else None
    return JOLT_CLASSES.get(name, name) if isinstance(name, str) else ""


def _refuse(most: int, place: Any, times: int) -> None:
    """The whole operation is to blame, unless alternatives make much of little."""
    message = f"the spec is too large: more than {most} keys, elements and texts"
    if times == 1:
        raise SpecError(message)
    raise SpecError(f"{message}, where each 'a|b' counts as its keys with all that is below", _pointer(place))


def _pointer(place: Any) -> str:
    keys: list[Any] = []
    while place is not None:
        place, key = place
        keys.append(key)
    return pointer(*reversed(keys))


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
    """The mistakes of a spec, up to 20 mistakes of each of its operations. Empty if it compiles."""
    problems: list[SpecError] = []
    try:
        for place, entry in _entries(spec, limits):
            problems += _mistakes(place, entry, limits)
    except SpecError as error:
        problems.append(error)
    return problems


def _mistakes(place: str, entry: Any, limits: SpecLimits) -> list[SpecError]:
    """Each mistake is reported, then the key that has it is left out to see what else is wrong."""
    mistakes: list[SpecError] = []
    while len(mistakes) < _MOST_MISTAKES:
        chain = Chain(limits)
        try:
            _add(chain, "", entry, limits)
            chain.transform()
            break
        except SpecError as error:
            mistakes.append(error.under(place))
            entry = without(entry, error.pointer)
            if entry is None:
                break
    return mistakes


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
    kind = OPERATIONS.get(name)
    if kind is None:
        raise SpecError(_unknown(name), "/operation", name_hint(name, OPERATIONS))
    if "spec" not in entry and name not in WITHOUT_SPEC:
        raise SpecError("the key 'spec' is missing", hint=_misspelled(entry, "spec"))
    operation_spec = entry.get("spec")
    _check_depth(operation_spec, limits.max_spec_depth)
    try:
        return kind.compile(operation_spec, limits, code)
    except SpecError as error:
        raise error.under("/spec") from None


def _unknown(name: str) -> str:
    known = f"expected one of {', '.join(OPERATIONS)}"
    if "." in name:
        return f"'{name}' names a Java class; specs here cannot run Java code; {known}"
    return f"there is no operation '{name}'; {known}"


def _misspelled(entry: dict[str, Any], key: str) -> str | None:
    for present in entry:
        if present not in ("operation", "spec") and name_hint(present, [key]):
            return f"is '{present}' meant to be '{key}'?"
    return None


def _check_depth(spec: Any, left: int) -> None:
    if left < 0:
        raise SpecError("the spec is nested too deeply", "/spec")
    below = spec.values() if isinstance(spec, dict) else spec if isinstance(spec, list) else ()
    for part in below:
        _check_depth(part, left - 1)


class TracedStep(NamedTuple):
    """The output of one operation. `value` belongs to the caller; it shares nothing with other steps."""

    pointer: str
    operation: str
    value: Any


Trace: TypeAlias = Callable[[Any, Any], Iterator[TracedStep]]
"""`f(payload, context)`: the steps in their order. The last value is what `compile_spec` gives."""


def compile_trace(spec: Any, limits: SpecLimits = DEFAULT_LIMITS) -> Trace:
    """A spec as a function that shows its steps. Raises SpecError as `compile_spec` does.

    The function raises TransformError at the operation that fails, after it gave the steps before it. It is
    many times slower than the compiled spec and changes neither payload nor context.
    """
    operations = compile_operations(spec, limits)

    def trace(payload: Any, context: Any = None) -> Iterator[TracedStep]:
        value = payload
        for place, name, run in operations:
            try:
                value = run(value, context)
                shown = unmark(copy_all(value))
            except TransformError as error:
                raise TransformError(error.message, place) from None
            except RecursionError:
                raise TransformError("the payload is nested too deeply", place) from None
            except Exception as error:
                # The message could quote the payload; the type cannot.
                raise TransformError(f"unexpected {type(error).__name__}", place) from None
            yield TracedStep(place, name, shown)

    return trace


_MOST_ERRORS = 20


def compile_errors(spec: Any, limits: SpecLimits = DEFAULT_LIMITS) -> Callable[..., list[TransformError]]:
    """A spec as the function `f(payload, context=None)` that gives all errors of the operation at which a payload fails,
    20 at most: one for each target of `jmespath`, one for any other. Empty for a payload that does not fail. Raises
    SpecError as `compile_spec` does."""
    operations = compile_operations(spec, limits)
    entries = [spec] if isinstance(spec, dict) else spec

    def errors(payload: Any, context: Any = None) -> list[TransformError]:
        value = payload
        for (place, name, run), entry in zip(operations, entries, strict=True):
            try:
                value = run(value, context)
            except TransformError as error:
                own = TransformError(error.message, place)
                if name != "jmespath":
                    return [own]
                return list(islice(failing_targets(entry["spec"], value, place, limits), _MOST_ERRORS)) or [
                    own
                ]
        return []

    return errors
