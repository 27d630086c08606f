"""docs/protection.md does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.shell_pages import run_page, steps

pytestmark = pytest.mark.long


def test_protection(tmp_path: Path) -> None:
    assert len(steps("protection.md")) > 5
    run_page("protection.md", tmp_path, seconds=120)
