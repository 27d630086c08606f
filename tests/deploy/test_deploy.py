"""Checks of `deploy/` without Docker and Kubernetes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from idgraph.app.cli import app
from idgraph.app.flow_runner import require_shared
from idgraph.app.java import require_java
from idgraph.app.settings.document import load
from tests.deploy.manifests import DEPLOY, KUBERNETES, containers, spark_jars

pytestmark = pytest.mark.long


def commands_of_idgraph(words: list[str]) -> list[list[str]]:
    """The commands of idgraph in a container's arguments, of a shell script too."""
    if words[0] == "idgraph":
        return [words[1:]]
    script = words[-1] if words[:1] == ["/bin/sh"] else ""
    return [shlex.split(each) for each in re.findall(r"\bidgraph ([a-z][^&|\n]*)", script)]


def check_command(words: list[str]) -> None:
    """Fails for a command or an option that the command line does not know."""
    command: Any = get_command(app)
    context = typer.Context(command)
    while hasattr(command, "get_command"):
        command = command.get_command(context, words[0])
        assert command is not None, words
        words = words[1:]
    command.make_context("idgraph", list(words))


def test_each_file_of_kubernetes_is_named_and_in_the_namespace(
    kubernetes: list[dict[str, Any]], plain: list[dict[str, Any]]
) -> None:
    assert sorted(plain[1]["resources"]) == [file.name for file in KUBERNETES]
    for document in kubernetes:
        if document["kind"] not in ("Namespace", "Pod"):
            assert document["metadata"]["namespace"] == "idgraph"


def test_pods_mount_what_there_is_and_run_as_nobody_special(kubernetes: list[dict[str, Any]]) -> None:
    pods = 0
    for document in kubernetes:
        pod, parts = containers(document)
        pods += bool(parts)
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        volumes |= {
            claim["metadata"]["name"] for claim in document.get("spec", {}).get("volumeClaimTemplates", ())
        }
        for part in parts:
            assert {mount["name"] for mount in part.get("volumeMounts", ())} <= volumes
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert part["securityContext"]["allowPrivilegeEscalation"] is False
            assert part["securityContext"]["readOnlyRootFilesystem"] is True
            if "args" in part:
                for words in commands_of_idgraph(part["args"]):
                    check_command(words)
            if document["kind"] != "Pod":
                assert part["resources"]["requests"]
                assert "cpu" not in part["resources"]["limits"]
    assert pods == 4


def test_the_flow_on_kubernetes_is_a_cluster_that_shares_all(
    tmp_path: Path, kubernetes: list[dict[str, Any]]
) -> None:
    (reported,) = [each["data"] for each in kubernetes if each["kind"] == "ConfigMap"]
    file = tmp_path / "idgraph.toml"
    file.write_text(reported["idgraph.toml"])
    settings = load(file)
    require_shared(settings)
    options = {name: value.get_secret_value() for name, value in settings.spark.options.items()}
    (flow,) = [each for each in kubernetes if each["kind"] == "StatefulSet"]
    name, service = flow["metadata"]["name"], flow["spec"]["serviceName"]
    assert settings.spark.driver_host == f"{name}-0.{service}.idgraph.svc"
    assert options["spark.kubernetes.driver.pod.name"] == f"{name}-0"
    _, (_keys, driver) = containers(flow)
    ports = {port["containerPort"] for port in driver["ports"]}
    assert settings.metrics
    spark_ports = {int(options["spark.driver.port"]), int(options["spark.driver.blockManager.port"])}
    assert ports == {*spark_ports, settings.metrics.port}
    mounts = {mount["mountPath"] for mount in driver["volumeMounts"]}
    for needed in (settings.keyring_file(), settings.flow_token_file(), settings.index.api_key_file):
        assert needed
        assert str(needed.parent) in mounts
    assert str(settings.directory) in mounts
    images = {part["image"] for each in kubernetes for part in containers(each)[1] if "image" in part}
    assert images == {options["spark.kubernetes.container.image"]}
    cores = int(options["spark.executor.instances"]) * int(options["spark.executor.cores"])
    assert settings.flow.partitions == cores
    (template,) = [each for each in kubernetes if each["kind"] == "Pod"]
    _, (_, executor) = containers(template)
    assert options["spark.kubernetes.executor.podTemplateContainerName"] == executor["name"]
    assert str(settings.keyring_file().parent) in {mount["mountPath"] for mount in executor["volumeMounts"]}


def test_only_the_flow_and_prometheus_reach_a_service(kubernetes: list[dict[str, Any]]) -> None:
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    ports = {
        port["containerPort"]
        for document in kubernetes
        for container in containers(document)[1]
        for port in container.get("ports", ())
    }
    policies = {
        each["metadata"]["name"]: each["spec"] for each in kubernetes if each["kind"] == "NetworkPolicy"
    }
    (service,) = policies["idgraph-metadata"]["ingress"]
    flow, prometheus = service["from"]
    assert flow["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "flow"
    assert prometheus == monitoring
    (metrics,) = policies["idgraph-metrics"]["ingress"]
    assert metrics["from"] == [monitoring]
    assert {port["port"] for rule in (service, metrics) for port in rule["ports"]} <= ports


def test_only_the_driver_may_make_pods(kubernetes: list[dict[str, Any]]) -> None:
    (binding,) = [each for each in kubernetes if each["kind"] == "RoleBinding"]
    (allowed,) = [each["name"] for each in binding["subjects"]]
    makers = []
    for document in kubernetes:
        pod, parts = containers(document)
        if parts and pod.get("automountServiceAccountToken") is not False:
            makers.append((document["kind"], pod["serviceAccountName"]))
    assert makers == [("StatefulSet", allowed)]


def test_each_pod_reaches_what_a_policy_names(kubernetes: list[dict[str, Any]]) -> None:
    policies = [each["spec"] for each in kubernetes if each["kind"] == "NetworkPolicy"]
    limited = [str(each["podSelector"]) for each in policies if "Egress" in each["policyTypes"]]
    for component in ("flow", "executor", "setup", "metadata"):
        assert any(component in selector for selector in limited), component


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
    places = [settings.metadata.url, settings.store.endpoint, settings.index.url, settings.flow.master]
    hosts = [re.sub(r"^\w+://|:\d+$", "", str(place)) for place in places]
    hosts += [settings.kafka.bootstrap_servers.split(":")[0], settings.spark.driver_host or ""]
    assert set(hosts) <= set(services)
    topics = {topic for source in settings.sources for topic in getattr(source, "topics", ())}
    assert topics == set(re.findall(r"for topic in ([\w ]+);", services["topics"]["command"][0])[0].split())


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
    command = ["/bin/sh", str(DEPLOY / "entrypoint.sh"), *given]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"|{class_name}|" in done.stdout
    assert reported in done.stdout
    place = class_name.replace(".", "/") + ".class"
    assert any(place in zipfile.ZipFile(jar).namelist() for jar in spark_jars().glob("spark-*.jar"))


def test_anything_else_is_run_as_it_is(tmp_path: Path) -> None:
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["/bin/sh", str(DEPLOY / "entrypoint.sh"), "echo", "two words", "*"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "two words *\n"
