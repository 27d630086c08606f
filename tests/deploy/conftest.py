"""The documents of `deploy/`, read once."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, EXAMPLES, documents


@pytest.fixture(scope="session", params=EXAMPLES)
def chart(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """The chart's documents with one example's values."""
    return documents(request.param)


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    return found
