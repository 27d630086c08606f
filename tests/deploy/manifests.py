"""The documents of `deploy/`, read by the libraries in Spark, and the parts of pods."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from idgraph.app.java import require_java
from idgraph.model.errors import ConfigError

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
KUBERNETES = sorted(file for file in (DEPLOY / "kubernetes").glob("*.yaml") if file.stem != "kustomization")
READER = Path(__file__).with_name("ReadYaml.java")


def spark_jars() -> Path:
    spec = find_spec("pyspark")
    assert spec
    assert spec.origin
    return Path(spec.origin).parent / "jars"


def documents(*files: Path, typed: bool = False) -> list[dict[str, Any]]:
    """YAML read by the libraries in Spark; `typed` by those for Kubernetes."""
    try:
        java = require_java()
    except ConfigError as error:
        pytest.skip(" ".join(str(error).split()))
    command = [java, "-XX:TieredStopAtLevel=1", "-cp", f"{spark_jars()}/*", str(READER)]
    command += [*(["--typed"] if typed else []), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def containers(document: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A document's pod, if it makes one, and its containers."""
    pod = document.get("spec", {}).get("template", {}).get("spec") or {}
    if document["kind"] == "Pod":
        pod = document["spec"]
    return pod, [*pod.get("initContainers", []), *pod.get("containers", [])]
