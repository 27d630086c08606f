"""Every operation and function with every hostile value: `python -m tests.transforms.spec.hostile_functions VALUE`.

A new function is covered by being in its table, a new value by a line here. The operations without functions are there too.
Prints what raised anything but TransformError. The system ends the process at what stalls; the last spec that it reported on
standard error was that.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from unittest import mock

from jmespath.functions import Functions

from idgraph import native
from idgraph.model.errors import SpecError, TransformError
from tests.transforms.spec.attack import CPU_SECONDS
from tests.transforms.spec.hostile import MEMORY, nested
from transforms import compile_spec
from transforms.spec.jmespath.functions import CUSTOM_FUNCTIONS
from transforms.spec.jolt.functions import FUNCTIONS

VALUES: dict[str, Callable[[], Any]] = {
    "50 MB": lambda: "x" * 50_000_000,
    "50 MB of digits": lambda: "1" * 50_000_000,
    "50 MB of other dead letters": lambda: "é " * 12_500_000,
    "10,000 arrays in one another": lambda: nested(10_000, list),
    "10,000 objects in one another": lambda: nested(10_000, dict),
    "4,300 digits": lambda: int("9" * 4_300),
    "250,000 numbers": lambda: list(range(250_000)),
    "250,000 texts": lambda: [str(n) for n in range(250_000)],
    "an object of 250,000 keys": lambda: {str(n): n for n in range(250_000)},
}
LONG = "250,000"
"""Values that say so are given to each function in its first form only: to all of them takes minutes. Without the native
loops they are given to what has a reference implementation there: other functions are the same with and without, only called otherwise, which
the other values show in all forms.

What takes each element once has half a second for them; what takes out the first one again and again needs four.
"""
LONG_SECONDS = CPU_SECONDS // 7
JOLT = ("={}(@(1,a))", "={}", "={}(@(1,a),@(1,a))", "={}(2,@(1,a))", "={}(',',@(1,a))", "={}(@(1,a),1,2)")
OPERATIONS: tuple[dict[str, Any], ...] = (
    {"operation": "shift", "spec": {"a": "b.c"}},
    {"operation": "shift", "spec": {"a": {"*": "b.&"}}},
    {"operation": "shift", "spec": {"a": {"*": "b[]"}}},
    {"operation": "shift", "spec": {"a": {"*": {"$": "b[#2]"}}}},
    {"operation": "shift", "spec": {"a": {"*": {"@": "b.&.c"}}}},
    {"operation": "default", "spec": {"a": {"*": 1, "x": 2}}},
    {"operation": "default", "spec": {"a[]": {"*": 1, "3": 2}}},
    {"operation": "remove", "spec": {"a": {"*": ""}}},
    {"operation": "remove", "spec": {"a": {"1*": "", "x": ""}}},
    {"operation": "cardinality", "spec": {"a": "ONE"}},
    {"operation": "cardinality", "spec": {"a": {"*": "MANY"}}},
    {"operation": "sort"},
    {"operation": "modify-overwrite-beta", "spec": {"a": {"*": "=toString"}}},
    {"operation": "modify-overwrite-beta", "spec": {"a": {"*": {"x": 1}}}},
)
JMESPATH = ("{}(a)", "{}(a,a)", "{}(',',a)", "{}(a,',')", "{}(a,&@)", "{}(&@,a)")


def specs(forms: int) -> Iterator[dict[str, Any]]:
    """Each operation, and each function in each form. Of some forms the spec is refused, which is as well."""
    yield from OPERATIONS
    for name in FUNCTIONS:
        for form in JOLT[:forms]:
            yield {"operation": "modify-overwrite-beta", "spec": {"a": form.format(name)}}
    for name in [*CUSTOM_FUNCTIONS, *Functions.FUNCTION_TABLE]:
        for form in JMESPATH[:forms]:
            yield {"operation": "jmespath", "spec": {"x": form.format(name)}}


def has_twin(spec: dict[str, Any]) -> bool:
    """Whether any function that the compiled spec calls is another one with the native loops. All operations have more."""
    if spec in OPERATIONS:
        return True
    reference_of, used = native.reference_of, []

    def noted(function: Any) -> Any:
        found = reference_of(function)
        used.append(found is not function)
        return found

    native.use(True)
    try:
        with mock.patch.object(native, "twin_of", noted), suppress(SpecError):
            compile_spec(spec)
    finally:
        native.use(False)
    return any(used)


def complaint(spec: dict[str, Any], payload: Any) -> str | None:
    try:
        compile_spec(spec)(payload)
    except (SpecError, TransformError) as error:
        if "unexpected" in error.message:
            return error.message
    except Exception as error:
        return f"raised {type(error).__name__}"
    return None


def allow_cpu(seconds: int) -> None:
    """From now on; the system ends the process when they are used up."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, hard))


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    value = sys.argv[1]
    payload = {"a": VALUES[value]()}
    forms, seconds = (1, LONG_SECONDS) if LONG in value else (len(JOLT), CPU_SECONDS)
    is_again = LONG in value and native.built_programs is not None and native.programs is None
    for spec in specs(forms):
        if is_again and not has_twin(spec):
            continue
        print(json.dumps(spec), file=sys.stderr, flush=True)
        allow_cpu(seconds)
        wrong = complaint(spec, payload)
        if wrong:
            print(json.dumps(spec), wrong)


if __name__ == "__main__":
    main()
