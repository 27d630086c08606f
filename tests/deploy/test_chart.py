"""The chart as helm renders it for each example: valid for Kubernetes, its parts fit together, its pods are restricted."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import yaml

from idgraph.app.flow_runner import require_shared
from idgraph.app.settings.document import Settings, load
from tests.deploy.commands import check_command, commands_of_idgraph
from tests.deploy.manifests import (
    CHART,
    DEPLOY,
    EXAMPLES,
    KUBERNETES,
    RENDERED,
    containers,
    documents,
    of_kind,
    pods,
    rendered,
    template_of,
)

Chart = list[dict[str, Any]]
HELM = pytest.mark.skipif(
    shutil.which("helm") is None, reason="helm is not on the path: the rendered files are checked alone"
)
CUSTOM = {"Certificate", "ServiceMonitor"}
"""Kinds of other projects."""
BACKUP = "idgraph-backup"
"""The claim that the operator makes for copies."""
MONITORING = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


@HELM
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_rendered_files_are_the_charts(name: str) -> None:
    # `python -m tests.deploy.manifests` writes them.
    assert (RENDERED / f"{name}.yaml").read_text() == rendered(EXAMPLES[name])


@HELM
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ("flows.shop.sourcez=1", "sourcez"),
        ("flows.Shop.sources[0].name=a", "Shop"),
        ("image.digest=sha256:1", "digest"),
        ("metadata.replicas=2", "settings.metadata.database"),
        ("metadata.resources.limits.cpu=1", "cpu"),
    ],
)
def test_values_that_cannot_work_are_refused(values: str, reason: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered(EXAMPLES["retail"], "--set", values)
    assert reason in refused.value.stderr


def test_each_value_has_a_schema() -> None:
    import json

    schema = json.loads((CHART / "values.schema.json").read_text())
    stated = yaml.safe_load((CHART / "values.yaml").read_text())

    def compare(values: Any, about: dict[str, Any], path: str) -> None:
        about = schema["definitions"][about["$ref"].rpartition("/")[2]] if "$ref" in about else about
        for key, value in values.items() if isinstance(values, dict) and "properties" in about else ():
            assert key in about["properties"] or about.get("additionalProperties") is not False, (
                f"{path}.{key}"
            )
            compare(value, about["properties"].get(key, {}), f"{path}.{key}")

    compare(stated, schema, "")


def test_kubernetes_knows_each_field(chart: Chart) -> None:
    for document in chart:
        if document["kind"] not in CUSTOM:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
    assert {each["kind"] for each in chart} >= {
        "Deployment",
        "StatefulSet",
        "Job",
        "CronJob",
        "NetworkPolicy",
        "PodDisruptionBudget",
    }


def test_the_optional_parts_are_there_when_they_are_asked_for() -> None:
    kinds = {each["kind"] for each in documents("security")}
    assert kinds >= {"Certificate", "ServiceMonitor", "HorizontalPodAutoscaler", "Ingress"}
    assert not {each["kind"] for each in documents("retail")} & {
        *CUSTOM,
        "HorizontalPodAutoscaler",
        "Ingress",
    }


def test_pods_are_restricted_and_bounded(chart: Chart) -> None:
    for document, pod in pods(chart):
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in document["spec"].get("volumeClaimTemplates", ())}
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for volume in pod["spec"]["volumes"]:
            assert "sizeLimit" in volume.get("emptyDir", {"sizeLimit": ""}), volume
        for part in containers(pod):
            assert {mount["name"] for mount in part.get("volumeMounts", ())} <= volumes
            security = part["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert part["resources"]["limits"]["ephemeral-storage"]
            assert "cpu" not in part["resources"]["limits"]
            for words in commands_of_idgraph(part.get("args", ["none"])):
                check_command(words)


def test_one_image_is_named(chart: Chart) -> None:
    options = [
        flow.spark.options["spark.kubernetes.container.image"].get_secret_value()
        for flow in flows(chart).values()
    ]
    images = {part["image"] for _, pod in pods(chart) for part in containers(pod) if "image" in part}
    assert images == set(options)


def configured(document: dict[str, Any]) -> Settings:
    return Settings.model_validate(tomllib.loads(document["data"]["idgraph.toml"]))


def flows(chart: Chart) -> dict[str, Settings]:
    """The settings of each flow, by the name of its set."""
    return {
        each["metadata"]["name"]: configured(each)
        for each in of_kind(chart, "ConfigMap")
        if "executor-pod.yaml" in each["data"]
    }


def test_a_flow_is_a_cluster_that_shares_all(chart: Chart, tmp_path: Path) -> None:
    sets = {each["metadata"]["name"]: each for each in of_kind(chart, "StatefulSet")}
    assert sets.keys() == flows(chart).keys()
    templates = {each["metadata"]["labels"]["idgraph/flow"]: each for each in of_kind(chart, "Pod")}
    for document in of_kind(chart, "ConfigMap"):
        name = document["metadata"]["name"]
        if name not in sets:
            continue
        (tmp_path / "idgraph.toml").write_text(document["data"]["idgraph.toml"])
        settings = load(tmp_path / "idgraph.toml")
        require_shared(settings)
        options = {key: value.get_secret_value() for key, value in settings.spark.options.items()}
        flow, template = sets[name], templates[settings.flow.name]
        assert flow["spec"]["podManagementPolicy"] == "Parallel"
        assert settings.spark.driver_host == f"{name}-0.{flow['spec']['serviceName']}.idgraph.svc"
        assert options["spark.kubernetes.driver.pod.name"] == f"{name}-0"
        *_, driver = containers(flow["spec"]["template"])
        *_, executor = containers(template)
        ports = {port["containerPort"] for port in driver["ports"]}
        spark = {int(options["spark.driver.port"]), int(options["spark.driver.blockManager.port"])}
        assert ports == {*spark, settings.metrics.port}
        mounts = {mount["mountPath"] for mount in driver["volumeMounts"]}
        needed = (
            settings.keyring_file(),
            settings.flow_token_file(),
            settings.metadata.ca_file,
            settings.index.api_key_file,
        )
        assert {str(each.parent) for each in needed if each} <= mounts
        assert str(settings.directory.parent) in mounts
        cores = int(options["spark.executor.instances"]) * int(options["spark.executor.cores"])
        assert settings.flow.partitions == cores
        assert options["spark.kubernetes.executor.podTemplateContainerName"] == executor["name"]
        assert str(settings.keyring_file().parent) in {
            mount["mountPath"] for mount in executor["volumeMounts"]
        }


def test_an_edit_of_the_configuration_restarts_its_readers(chart: Chart) -> None:
    for document, pod in pods(chart):
        reads = any("configMap" in volume for volume in pod["spec"]["volumes"])
        if reads and document["kind"] in ("Deployment", "StatefulSet"):
            assert pod["metadata"]["annotations"]["checksum/configuration"]


def test_setup_needs_only_what_is_made_before_it(chart: Chart) -> None:
    hooks = {
        (each["kind"], each["metadata"]["name"]): each["metadata"]["annotations"]
        for each in chart
        if "helm.sh/hook" in each["metadata"].get("annotations", {})
    }
    (job,) = of_kind(chart, "Job")
    pod = job["spec"]["template"]["spec"]
    needed = {("ServiceAccount", pod["serviceAccountName"])}
    needed |= {("ConfigMap", each["configMap"]["name"]) for each in pod["volumes"] if "configMap" in each}
    own = hooks[("Job", job["metadata"]["name"])]
    assert own["helm.sh/hook"] == "pre-install,pre-upgrade"
    for each in needed:
        assert int(hooks[each]["helm.sh/hook-weight"]) < int(own["helm.sh/hook-weight"])
    assert all("before-hook-creation" in each["helm.sh/hook-delete-policy"] for each in hooks.values())


def names(chart: Chart, kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in of_kind(chart, kind)}


def secrets() -> dict[str, set[str]]:
    """The files of each secret that the operator is asked to make."""
    lines = re.findall(r"create secret generic (\S+) (.*)", (DEPLOY / "README.md").read_text())
    return {
        name: {Path(file).name for file in re.findall(r"--from-file=(\S+)", rest)} for name, rest in lines
    }


def made_by_the_chart(chart: Chart) -> dict[str, set[str]]:
    """The secrets of the tokens, by the arguments of what makes them, and those of cert-manager."""
    (service,) = [
        pod
        for document, pod in pods(chart)
        if document["kind"] == "Deployment" and document["metadata"]["name"] == "idgraph-metadata"
    ]
    (rotation,) = [part for part in containers(service) if part["name"] == "tokens"]
    tokens = [word.split(":") for word in rotation["args"] if word.count(":") == 3]
    certificates = {
        each["spec"]["secretName"]: {"tls.crt", "tls.key", "ca.crt"} for each in of_kind(chart, "Certificate")
    }
    return {secret: {file} for _, _, secret, file in tokens} | certificates


def test_volumes_are_of_what_there_is(chart: Chart) -> None:
    known = secrets() | made_by_the_chart(chart)
    for document, pod in pods(chart):
        for volume in pod["spec"]["volumes"]:
            match volume:
                case {"configMap": {"name": name}}:
                    assert name in names(chart, "ConfigMap")
                case {"secret": {"secretName": name}}:
                    assert {item["key"] for item in volume["secret"].get("items", ())} <= known[name]
                    assert volume["secret"]["defaultMode"] == 0o400
                case {"persistentVolumeClaim": {"claimName": name}}:
                    assert name in names(chart, "PersistentVolumeClaim") | {BACKUP}
                case _:
                    assert volume.keys() & {"emptyDir", "projected"}
        assert pod["spec"]["serviceAccountName"] in names(chart, "ServiceAccount"), document


def test_each_token_is_where_its_process_reads_it(chart: Chart) -> None:
    known = made_by_the_chart(chart)
    settings = next(iter(flows(chart).values()))
    read = {
        "profiles": settings.profiles_token_file(),
        "flow": settings.flow_token_file(),
        "command": settings.flow_token_file(),
    }
    seen = set()
    for _, pod in pods(chart):
        component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        secret_of = {
            volume["name"]: volume["secret"]["secretName"]
            for volume in pod["spec"]["volumes"]
            if "secret" in volume
        }
        for part in containers(pod):
            for mount in part.get("volumeMounts", ()):
                if mount["name"] == "token":
                    seen.add(component)
                    assert mount["mountPath"] == str(read[component].parent)
                    assert known[secret_of["token"]] == {read[component].name}
    assert seen == read.keys()


def test_accounts_and_their_rights_are_there(chart: Chart) -> None:
    for binding in of_kind(chart, "RoleBinding"):
        assert binding["roleRef"]["name"] in names(chart, binding["roleRef"]["kind"])
        assert {each["name"] for each in binding["subjects"]} <= names(chart, "ServiceAccount")


def test_only_drivers_may_make_pods_and_only_the_rotation_sees_tokens(chart: Chart) -> None:
    (makers,) = [
        each for each in of_kind(chart, "Role") if any("pods" in rule["resources"] for rule in each["rules"])
    ]
    (binding,) = [
        each
        for each in of_kind(chart, "RoleBinding")
        if each["roleRef"]["name"] == makers["metadata"]["name"]
    ]
    (allowed,) = [each["name"] for each in binding["subjects"]]
    for document, pod in pods(chart):
        has_account = pod["spec"].get("automountServiceAccountToken") is not False
        assert has_account == (pod["spec"]["serviceAccountName"] == allowed), document["kind"]
        for part in containers(pod):
            is_mounted = any(mount["name"] == "account" for mount in part.get("volumeMounts", ()))
            assert is_mounted == (part["name"] == "tokens")


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(
        labels.get(each["key"]) in each["values"] and each["operator"] == "In"
        for each in selector.get("matchExpressions", ())
    )


def test_selectors_are_of_pods_that_there_are(chart: Chart) -> None:
    labels = [pod["metadata"]["labels"] for _, pod in pods(chart)]
    declared = [port for _, pod in pods(chart) for part in containers(pod) for port in part.get("ports", ())]
    ports = {port["name"] for port in declared} | {port["containerPort"] for port in declared}
    for document in chart:
        spec = document.get("spec", {})
        match document["kind"]:
            case "Service":
                assert any(matches({"matchLabels": spec["selector"]}, each) for each in labels)
                for port in spec["ports"]:
                    target = port.get("targetPort", port["port"])
                    assert target in ports
            case "Deployment" | "StatefulSet":
                assert matches(spec["selector"], template_of(document)["metadata"]["labels"])
                assert document["kind"] != "StatefulSet" or spec["serviceName"] in names(chart, "Service")
            case "NetworkPolicy":
                assert any(matches(spec["podSelector"], each) for each in labels), document["metadata"][
                    "name"
                ]
            case "PodDisruptionBudget":
                assert any(matches(spec["selector"], each) for each in labels)
    settings = next(iter(flows(chart).values()))
    for url in (settings.metadata.url, settings.profiles.url):
        asked = urlsplit(str(url))
        assert asked.hostname in names(chart, "Service")
        assert asked.port in ports


def test_everything_is_denied_but_what_a_policy_names(chart: Chart) -> None:
    policies = of_kind(chart, "NetworkPolicy")
    (deny,) = [each["spec"] for each in policies if each["metadata"]["name"] == "idgraph-deny"]
    assert deny["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in deny
    for _, pod in pods(chart):
        assert matches(deny["podSelector"], pod["metadata"]["labels"])
    opened = {
        component: [
            rule
            for each in policies
            if matches(
                each["spec"]["podSelector"],
                {
                    "app.kubernetes.io/instance": "idgraph",
                    "app.kubernetes.io/name": "idgraph",
                    "app.kubernetes.io/component": component,
                },
            )
            for rule in each["spec"].get("ingress", ())
        ]
        for component in ("metadata", "profiles", "flow", "executor", "setup", "command")
    }
    assert opened["setup"] == opened["command"] == []
    for component in ("metadata", "profiles", "flow"):
        assert any(MONITORING in rule["from"] for rule in opened[component])
    for component in ("metadata", "profiles"):
        for rule in opened[component]:
            assert rule["ports"]
