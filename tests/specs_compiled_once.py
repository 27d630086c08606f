"""For tests that are not of compiling: hundreds of them start with the same specs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from model import native
from transforms import compile_spec
from transforms.chain import Transform


@contextmanager
def specs_compiled_once() -> Iterator[None]:
    """Whoever compiles a spec that was compiled before gets the same function, which may be shared."""
    known: dict[tuple[bool, str], Transform] = {}

    def compiled(operations: Any) -> Transform:
        key = native.programs is not None, json.dumps(operations)
        if key not in known:
            known[key] = compile_spec(operations)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transforms.mapping.compile_spec", compiled)
        yield
