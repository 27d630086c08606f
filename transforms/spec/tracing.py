"""What each operation of a spec does to a payload, for people who look for a mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

from idgraph.model.errors import TransformError
from transforms.spec.compiler import compile_operations
from transforms.spec.jolt.numbers import unmark
from transforms.spec.limits import DEFAULT_LIMITS, SpecLimits
from transforms.spec.operation import copy_all


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
