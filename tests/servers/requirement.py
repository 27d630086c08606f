"""Requirements of tests that may be missing here: such tests are skipped with the reason, or fail if nothing may be
missing."""

from __future__ import annotations

import atexit
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.processes import ServerUnavailableError

T = TypeVar("T")

REQUIRED = "TEST_SERVERS_REQUIRED"
"""When set, what cannot be had fails the tests, rather than leaving them out."""


@contextmanager
def required(module: str, packages: str) -> Iterator[None]:
    """Skip the test when `module`, which comes with what pip is reported, is not installed, or what the block starts
    cannot be had."""
    if not os.environ.get(REQUIRED):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install {packages}")
    try:
        yield
    except ServerUnavailableError as error:
        if os.environ.get(REQUIRED):
            raise
        pytest.skip(" ".join(str(error).split()))


def started(name: str, server: Callable[[Path], AbstractContextManager[T]]) -> tuple[T, Path]:
    """A server that lives as long as this process, and its folder, which goes with it."""
    stack = ExitStack()
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{name}-")))
    running = stack.enter_context(server(folder))
    atexit.register(stack.close)
    return running, folder
