"""The depth of outputs: known when compiled for most parts, looked at for the others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from random import Random
from typing import Any

import msgspec
import pytest

from benchmarks.mapping_cases import cases
from idgraph.model.errors import SpecError, TransformError
from tests.lanes import examples
from tests.oracle.generation import GENERATORS, task_of
from transforms import compile_spec
from transforms.spec.limits import SpecLimits

CASES = {case.name: case for case in cases()}


def height(value: Any, empty: int = 1) -> int:
    """How many containers are inside one another. An empty one at the end may count or not."""
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if not below:
        return 0 if below is None else empty
    return 1 + max(height(each, empty) for each in below)


def is_refused(spec: Any, payload: Any, most: int) -> bool:
    try:
        compile_spec(spec, SpecLimits(max_depth=most))(payload)
    except TransformError as error:
        return error.message == f"the output is nested deeper than {most} levels"
    return False


def deepened(random: Random, value: Any) -> Iterator[Any]:
    """The value with one of its scalars under more arrays and objects, again and again."""
    paths = list(_scalars(value, ()))
    for path in random.sample(paths, min(len(paths), 60)):
        changed = msgspec.json.decode(msgspec.json.encode(value))
        at = changed
        for key in path[:-1]:
            at = at[key]
        for level in range(random.randint(1, 9)):
            at[path[-1]] = [at[path[-1]]] if level % 2 else {"x": at[path[-1]]}
        yield changed


def _scalars(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list):
        for key, below in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _scalars(below, (*path, key))
    elif path:
        yield path


@pytest.mark.property
@pytest.mark.parametrize("operation", GENERATORS)
def test_generated_specs_refuse_what_is_nested_too_deeply(operation: str) -> None:
    refused = 0
    many = examples(200, 70)
    for number in range(many):
        random = Random(f"nesting-{operation}-{number}")
        task = task_of(random, operation)
        try:
            transform = compile_spec(task["spec"])
        except SpecError:
            continue
        for payload in (task["input"], *islice(deepened(random, task["input"]), 2)):
            try:
                output = transform(payload)
            except TransformError:
                continue
            least = height(output, empty=0)
            if least > 1:
                assert is_refused(task["spec"], payload, least - 1), (task, payload)
                refused += 1
    assert refused > many // 4


@pytest.mark.parametrize("name", CASES)
def test_real_specs_refuse_what_is_nested_too_deeply(name: str) -> None:
    case, random, refused = CASES[name], Random(f"nesting-{name}"), 0
    transform = compile_spec(case.spec)
    limited = cache(lambda most: compile_spec(case.spec, SpecLimits(max_depth=most)))
    for line in random.sample(case.lines, 10):
        for payload in deepened(random, msgspec.json.decode(line)):
            try:
                output = transform(payload)
            except TransformError:
                continue
            assert limited(height(output))(payload) == output
            with pytest.raises(TransformError, match="nested deeper"):
                limited(height(output, empty=0) - 1)(payload)
            refused += 1
    assert refused > 50
