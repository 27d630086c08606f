"""The chart of `deploy/` as helm renders it, and the parts of pods."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "chart"
EXAMPLES = {file.stem: file for file in sorted((CHART / "examples").glob("*.yaml"))}
RENDERED = Path(__file__).resolve().parents[1] / "data" / "chart"
KUBERNETES = "1.34"


def rendered(values: Path, *more: str) -> str:
    """The chart with these values. Raises FileNotFoundError without helm, CalledProcessError for values it refuses."""
    command = [
        "helm",
        "template",
        "idgraph",
        str(CHART),
        "--namespace",
        "idgraph",
        "--kube-version",
        f"{KUBERNETES}.0",
    ]
    return subprocess.run(
        [*command, "--values", str(values), *more], check=True, capture_output=True, text=True
    ).stdout


def documents(name: str) -> list[dict[str, Any]]:
    """The rendered chart of an example, as the repository has it, with the template of each flow's executors."""
    found = [each for each in yaml.safe_load_all((RENDERED / f"{name}.yaml").read_text()) if each]
    return [
        *found,
        *(
            yaml.safe_load(each["data"]["executor-pod.yaml"])
            for each in of_kind(found, "ConfigMap")
            if "executor-pod.yaml" in each["data"]
        ),
    ]


def of_kind(found: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [each for each in found if each["kind"] in kinds]


def template_of(document: dict[str, Any]) -> dict[str, Any]:
    """The pod that a document is or makes; empty without one."""
    found: dict[str, Any] = {}
    match document["kind"]:
        case "Pod":
            found = document
        case "CronJob":
            found = document["spec"]["jobTemplate"]["spec"]["template"]
        case "Deployment" | "StatefulSet" | "Job":
            found = document["spec"]["template"]
    return found


def pods(found: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each document that makes a pod, with that pod."""
    for document in found:
        if template := template_of(document):
            yield document, template


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


if __name__ == "__main__":
    if shutil.which("helm") is None:
        sys.exit("helm is not on the path")
    RENDERED.mkdir(parents=True, exist_ok=True)
    for name, values in EXAMPLES.items():
        (RENDERED / f"{name}.yaml").write_text(rendered(values))
