"""Checks of `deploy/` without Docker and Kubernetes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from idgraph.app.flow_runner import require_shared
from idgraph.app.java import require_java
from idgraph.app.settings.document import load
from tests.deploy.commands import check_command, commands_of_idgraph
from tests.deploy.manifests import DEPLOY

pytestmark = pytest.mark.long


def spark_jars() -> Path:
    spec = find_spec("pyspark")
    assert spec
    assert spec.origin
    return Path(spec.origin).parent / "jars"


def test_the_composed_parts_fit_together(compose: dict[str, Any]) -> None:
    services, volumes = compose["services"], set(compose["volumes"])
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        sources = {volume.split(":")[0] for volume in service.get("volumes", ())}
        assert {source for source in sources if not source.startswith(".")} <= volumes
        assert all((DEPLOY / "compose" / source).exists() for source in sources if source.startswith("."))
        if service["image"] == "idgraph":
            for words in commands_of_idgraph(service["command"]):
                check_command(words)
    settings = load(DEPLOY / "compose" / "idgraph.toml")
    require_shared(settings)
    places = [
        settings.metadata.url,
        settings.profiles.url,
        settings.store.endpoint,
        settings.index.url,
        settings.flow.master,
    ]
    hosts = [re.sub(r"^\w+://|:\d+$", "", str(place)) for place in places]
    hosts += [settings.kafka.bootstrap_servers.split(":")[0], settings.spark.driver_host or ""]
    assert set(hosts) <= set(services)
    topics = {topic for source in settings.sources for topic in getattr(source, "topics", ())}
    assert topics == set(re.findall(r"for topic in ([\w ]+);", services["topics"]["command"][0])[0].split())


def test_the_documented_commands_for_compose_are_possible(compose: dict[str, Any]) -> None:
    text = (DEPLOY / "README.md").read_text()
    lines = re.findall(r"docker compose -f (\S+) exec (\w+) (.*?)`?$", text, re.MULTILINE)
    assert len(lines) >= 3
    for file, service, words in lines:
        assert (DEPLOY.parent / file).exists()
        assert "idgraph" in compose["services"][service]["image"]
        for each in re.findall(r"\bidgraph ([a-z][^']*)", words):
            check_command(each.split())
        for path in re.findall(r"/opt/idgraph/src/(\S+?)'?(?:\s|$)", words):
            assert list(DEPLOY.parent.glob(path)), path


@pytest.mark.parametrize(
    ("given", "class_name", "reported"),
    [
        (["executor"], "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend", "-Da=1 2|-Xms1g"),
        (["spark-master"], "org.apache.spark.deploy.master.Master", "--port|7077"),
        (["spark-worker", "spark://m:7077"], "org.apache.spark.deploy.worker.Worker", "spark://m:7077"),
    ],
)
def test_the_entry_point_starts_the_classes_of_spark(
    tmp_path: Path, given: list[str], class_name: str, reported: str
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    # Spark's launcher asks its own classes, by Java, how to start another: that one runs.
    real = require_java()
    java.write_text(f'#!/bin/sh\ncase "$*" in *launcher.Main*) exec {real} "$@";; esac\nIFS="|"; echo "$*"\n')
    java.chmod(0o755)
    environment = {
        "PATH": f"{java.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "JAVA_HOME": str(tmp_path),
        "SPARK_JAVA_OPT_0": "-Da=1 2",
        "SPARK_EXECUTOR_MEMORY": "1g",
        "SPARK_DRIVER_URL": "spark://driver:7078",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "pod",
    }
    command = ["/bin/sh", str(DEPLOY / "image" / "entrypoint.sh"), *given]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"|{class_name}|" in done.stdout
    assert reported in done.stdout
    place = class_name.replace(".", "/") + ".class"
    assert any(place in zipfile.ZipFile(jar).namelist() for jar in spark_jars().glob("spark-*.jar"))


def test_anything_else_is_run_as_it_is(tmp_path: Path) -> None:
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["/bin/sh", str(DEPLOY / "image" / "entrypoint.sh"), "echo", "two words", "*"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "two words *\n"
