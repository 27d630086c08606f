"""docs/policies.md does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from idgraph.app.java import require_java
from idgraph.model.attributes import ReconciliationPolicy
from idgraph.model.errors import ConfigError
from merge.policies import POLICIES
from tests.docs.shell_pages import DOCS, run_page, steps

pytestmark = pytest.mark.long


@pytest.mark.spark
def test_policies(tmp_path: Path) -> None:
    try:
        require_java()
    except ConfigError as error:
        pytest.skip(str(error))
    assert len(steps("policies.md")) > 3
    run_page("policies.md", tmp_path)


def test_the_page_reports_of_every_policy_and_its_bound() -> None:
    text = (DOCS / "policies.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    reported = {word.strip("`, ") for row in rows for word in row[1].split()}
    assert set(ReconciliationPolicy) <= reported
    for policy, each in POLICIES.items():
        row = next(row for row in rows if f"`{policy}`" in row[1])
        assert f"{each.BOUND:,}" in row[3] or each.BOUND == 1
