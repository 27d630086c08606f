"""Every function with every hostile value: `python -m tests.transforms.hostile_functions VALUE`.

A new function is covered by being in its table, a new value by a line here. Prints what took too long, what was not
bounded, and what raised anything but TransformError.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from jmespath.functions import Functions

from model.errors import SpecError, TransformError
from tests.transforms.hostile import MEMORY, nested
from transforms import compile_spec
from transforms.expressions.functions import CUSTOM_FUNCTIONS
from transforms.jolt.functions import FUNCTIONS

STALLED = 4
"""Seconds of a processor: twice of what a call may take, since machines differ."""
VALUES: dict[str, Callable[[], Any]] = {
    "50 MB": lambda: "x" * 50_000_000,
    "50 MB of digits": lambda: "1" * 50_000_000,
    "50 MB of other letters": lambda: "é " * 12_500_000,
    "10,000 arrays in one another": lambda: nested(10_000, list),
    "10,000 objects in one another": lambda: nested(10_000, dict),
    "4,300 digits": lambda: int("9" * 4_300),
}
JOLT = ("={}", "={}(@(1,a))", "={}(@(1,a),@(1,a))", "={}(2,@(1,a))", "={}(',',@(1,a))", "={}(@(1,a),1,2)")
JMESPATH = ("{}(a)", "{}(a,a)", "{}(',',a)", "{}(a,',')", "{}(a,&@)", "{}(&@,a)")


def specs() -> Iterator[dict[str, Any]]:
    """Each function in each form. Of some forms the spec is refused, which is as well."""
    for name in FUNCTIONS:
        for form in JOLT:
            yield {"operation": "modify-overwrite-beta", "spec": {"a": form.format(name)}}
    for name in [*CUSTOM_FUNCTIONS, *Functions.FUNCTION_TABLE]:
        for form in JMESPATH:
            yield {"operation": "jmespath", "spec": {"x": form.format(name)}}


def complaint(spec: dict[str, Any], payload: Any) -> str | None:
    started = time.process_time()
    try:
        compile_spec(spec)(payload)
    except (SpecError, TransformError) as error:
        if "unexpected" in error.message:
            return error.message
    except Exception as error:
        return f"raised {type(error).__name__}"
    seconds = time.process_time() - started
    return f"took {seconds:.1f} s" if seconds > STALLED else None


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    payload = {"a": VALUES[sys.argv[1]]()}
    for spec in specs():
        wrong = complaint(spec, payload)
        if wrong:
            print(json.dumps(spec["spec"]), wrong)


if __name__ == "__main__":
    main()
