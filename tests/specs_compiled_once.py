"""For tests that are not of compiling: hundreds of them start with the same specs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from idgraph import native
from transforms import compile_spec
from transforms.spec.chain import Transform


@pytest.fixture(scope="package", autouse=True)
def each_spec_is_compiled_once() -> Iterator[None]:
    """For packages whose conftest imports it: a spec that was compiled before gives the same function, which may be shared."""
    known: dict[tuple[bool, str], Transform] = {}

    def compiled(operations: Any) -> Transform:
        key = native.programs is not None, json.dumps(operations)
        if key not in known:
            known[key] = compile_spec(operations)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transforms.spec.mapping.compile_spec", compiled)
        yield
