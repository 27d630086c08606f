"""docs/quickstart.md does what it says: its shell blocks are run, their output is compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from idgraph.app.java import require_java
from idgraph.model.errors import ConfigError
from tests.docs.shell_pages import run_page, steps

pytestmark = pytest.mark.long


@pytest.mark.spark
def test_quickstart(tmp_path: Path) -> None:
    try:
        require_java()
    except ConfigError as error:
        pytest.skip(str(error))
    assert len(steps("quickstart.md")) > 10
    run_page("quickstart.md", tmp_path)
