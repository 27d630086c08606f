"""Which lane plays a test: `make check` what runs in memory and is not `slow`, `make test` all that is not `long`, `make test-long` the rest.

Tests, modules and parameters carry their lane as a marker; `process` and `property` follow from what a module uses.
A test belongs to the long lane when it needs minutes, a server's fault or many variants of one law; one run of each law
stays in `make test`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

TESTS = Path(__file__).parent
EXAMPLES = "TEST_EXAMPLES"
SHORT = 15
"""Examples of a property outside of the long lane."""

SERVED = ("dynamodb", "elasticsearch")
"""In the names and parameters of tests that start a server."""

SLOW_FIRST = ("e2e/", "spark/", "contracts/", "metadata_service/ui/test_browser.py")
"""Begun last, these would leave all cores but one idle."""

TOGETHER = (
    ("spark/",),
    (
        "contracts/",
        "jobs/test_reconcile.py",
        "jobs/test_reindex.py",
        "properties/test_stores.py",
        "sinks/test_dynamo",
        "sinks/test_elasticsearch",
    ),
)
"""Each of these shares servers, which every process that plays one of its files would start."""


def is_thorough() -> bool:
    """Whether properties play all their examples, and other ones in each run."""
    return os.environ.get(EXAMPLES) == "all"


def examples(many: int, short: int = SHORT) -> int:
    """How many examples a property plays: `many` in the long lane, at most `short` elsewhere."""
    return many if is_thorough() else min(many, short)


def long(*values: object) -> list[ParameterSet]:
    """Parameters of a test that play in the long lane only."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]


def place(item: pytest.Item) -> str:
    """`folder/file.py::test[parameters]`."""
    return f"{item.path.relative_to(TESTS).as_posix()}::{item.name}"


def unit(test_id: str) -> str:
    """The tests that one process plays one after the other: a file, or those of `TOGETHER`."""
    file = test_id.partition("::")[0]
    return next((files[0] for files in TOGETHER if file.removeprefix("tests/").startswith(files)), file)


def mark(item: pytest.Item) -> None:
    """Adds the marks of the lanes to a collected test."""
    module = getattr(item, "module", None)
    values = vars(module) if module is not None else {}
    if (
        values.get("subprocess") is subprocess
        or any(getattr(value, "__module__", "") == "tests.installation" for value in values.values())
        or any(each in item.name for each in SERVED)
    ):
        item.add_marker("process")
    if "given" in values:
        item.add_marker("property")
