"""The documents of `deploy/`, read once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.manifests import DEPLOY, KUBERNETES, documents


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """All documents, each field known to the client's types; the pod template is one of them."""
    folder = tmp_path_factory.mktemp("kubernetes")
    template = folder / "executor-pod.yaml"
    text = (DEPLOY / "kubernetes" / "configuration.yaml").read_text()
    _, _, indented = text.partition("executor-pod.yaml: |\n")
    template.write_text("\n".join(line.removeprefix("    ") for line in indented.splitlines()))
    return documents(*KUBERNETES, template, typed=True)


@pytest.fixture(scope="session")
def plain() -> list[dict[str, Any]]:
    """What is not for Kubernetes itself: compose, and kustomization."""
    return documents(DEPLOY / "compose" / "compose.yaml", DEPLOY / "kubernetes" / "kustomization.yaml")


@pytest.fixture(scope="session")
def compose(plain: list[dict[str, Any]]) -> dict[str, Any]:
    found = plain[0]
    for name, service in found["services"].items():
        if service.pop("<<", None):
            found["services"][name] = {**found["x-idgraph"], **service}
    return found
