"""What a spec does to a payload, and what is wrong with a payload, for people who look for a mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from idgraph.model.errors import TransformError
from transforms.spec.compiler import compile_operations
from transforms.spec.jolt.numbers import unmark
from transforms.spec.limits import DEFAULT_LIMITS, SpecLimits
from transforms.spec.operation import copy_all
from transforms.spec.operations.jmespath import failing_targets


class TracedStep(NamedTuple):
    """What one operation gave. `value` belongs to the caller; it shares nothing with other steps."""

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
