"""Names between the parts of `deploy/` exist, and their HTTP requests are served."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from idgraph.app.settings.document import Settings, load
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from tests.app.test_observation import World, got
from tests.deploy.manifests import DEPLOY, containers

pytestmark = pytest.mark.long


GIVEN = {"default"}
"""Service accounts that each namespace has."""

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def names(kubernetes: list[dict[str, Any]], kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in kubernetes if each["kind"] == kind}


def secrets() -> dict[str, set[str]]:
    """The files of each secret, as the operator is asked to make it."""
    lines = re.findall(r"create secret generic (\S+) (.*)", (DEPLOY / "README.md").read_text())
    files = {name: re.findall(r"--from-file=(\S+)|--from-literal=([^=]+)=", rest) for name, rest in lines}
    return {name: {Path(a or b).name for a, b in found} for name, found in files.items()}


def pods(kubernetes: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each pod with its containers."""
    for document in kubernetes:
        pod, parts = containers(document)
        if parts:
            yield pod, parts


def labels_of_pods(kubernetes: list[dict[str, Any]]) -> list[dict[str, str]]:
    templates = [each["spec"].get("template", {}) for each in kubernetes if "spec" in each]
    found = [each["metadata"]["labels"] for each in templates if each]
    return [*found, *(each["metadata"]["labels"] for each in kubernetes if each["kind"] == "Pod")]


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(
        labels.get(each["key"]) in each["values"] and each["operator"] == "In"
        for each in selector.get("matchExpressions", ())
    )


def test_volumes_are_of_what_there_is(kubernetes: list[dict[str, Any]]) -> None:
    used: set[str] = set()
    for pod, _ in pods(kubernetes):
        for volume in pod["volumes"]:
            match volume:
                case {"configMap": {"name": name}}:
                    assert name in names(kubernetes, "ConfigMap")
                case {"secret": {"secretName": name}}:
                    used.add(name)
                case {"persistentVolumeClaim": {"claimName": name}}:
                    assert name in names(kubernetes, "PersistentVolumeClaim")
                case _:
                    assert "emptyDir" in volume
    assert used == secrets().keys()


def test_each_file_of_a_secret_that_is_configured_is_made(kubernetes: list[dict[str, Any]]) -> None:
    settings = configured(kubernetes)
    mounted = {
        Path(mount["mountPath"]): volume["secret"]["secretName"]
        for pod, parts in pods(kubernetes)
        for volume in pod["volumes"]
        if "secret" in volume
        for part in parts
        for mount in part["volumeMounts"]
        if mount["name"] == volume["name"]
    }
    stated = settings.metadata
    of_metadata = stated.ca_file, stated.certificate_file, stated.certificate_key_file
    for file in (
        settings.flow_token_file(),
        settings.index.api_key_file,
        settings.index.ca_file,
        *of_metadata,
    ):
        assert file
        assert file.name in secrets()[mounted[file.parent]]
    copied = {
        Path(word)
        for _, parts in pods(kubernetes)
        for part in parts
        for argument in part.get("args", ())
        for word in re.findall(r"cp (\S+)", argument)
    }
    assert all(file.name in secrets()[mounted[file.parent]] for file in copied)
    assert copied


def configured(kubernetes: list[dict[str, Any]]) -> Settings:
    (reported,) = [each["data"] for each in kubernetes if each["kind"] == "ConfigMap"]
    return Settings.model_validate(tomllib.loads(reported["idgraph.toml"]))


def test_accounts_and_their_rights_are_there(kubernetes: list[dict[str, Any]]) -> None:
    accounts = names(kubernetes, "ServiceAccount")
    for pod, _ in pods(kubernetes):
        assert pod.get("serviceAccountName", "default") in accounts | GIVEN
    for binding in (each for each in kubernetes if each["kind"] == "RoleBinding"):
        assert binding["roleRef"]["name"] in names(kubernetes, binding["roleRef"]["kind"])
        assert {each["name"] for each in binding["subjects"]} <= accounts


def test_services_and_policies_are_of_pods_that_there_are(kubernetes: list[dict[str, Any]]) -> None:
    labels = labels_of_pods(kubernetes)
    ports = {
        port["name"]: port["containerPort"]
        for _, parts in pods(kubernetes)
        for part in parts
        for port in part.get("ports", ())
    }
    for document in kubernetes:
        spec = document.get("spec", {})
        match document["kind"]:
            case "Service":
                assert any(matches({"matchLabels": spec["selector"]}, each) for each in labels)
                for port in spec["ports"]:
                    target = port.get("targetPort", port["port"])
                    assert target in ports or target in ports.values()
            case "Deployment" | "StatefulSet":
                assert matches(spec["selector"], spec["template"]["metadata"]["labels"])
            case "NetworkPolicy":
                assert any(matches(spec["podSelector"], each) for each in labels)
            case _:
                continue
    (flow,) = [each for each in kubernetes if each["kind"] == "StatefulSet"]
    assert flow["spec"]["serviceName"] in names(kubernetes, "Service")
    service = urlsplit(configured(kubernetes).metadata.url)
    assert service.hostname in names(kubernetes, "Service")
    assert service.port in ports.values()


@contextmanager
def flow_that_runs(folder: Path) -> Iterator[str]:
    with World().observed(folder) as (url, _):
        yield url


@contextmanager
def metadata_that_runs(folder: Path) -> Iterator[str]:
    with serving(create_app(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}"))) as url:
        yield url


SERVERS = {"flow": flow_that_runs, "metadata": metadata_that_runs}


@pytest.mark.parametrize("name", SERVERS)
def test_probes_ask_what_is_served(kubernetes: list[dict[str, Any]], tmp_path: Path, name: str) -> None:
    (part,) = [each for _, parts in pods(kubernetes) for each in parts if each["name"] == name]
    ports = {port["name"]: port["containerPort"] for port in part["ports"]}
    settings = configured(kubernetes)
    served_at = {"flow": settings.metrics.port, "metadata": urlsplit(settings.metadata.url).port}
    asked = [part[probe]["httpGet"] for probe in PROBES]
    with SERVERS[name](tmp_path) as url:
        for each in asked:
            assert ports[each["port"]] == served_at[name]
            assert got(url + each["path"])[0] == 200
    # What ends a process asks only whether it lives.
    assert asked[2]["path"] == "/health/live"


@pytest.mark.parametrize("name", SERVERS)
def test_what_compose_asks_is_served(compose: dict[str, Any], tmp_path: Path, name: str) -> None:
    program = compose["services"][name]["healthcheck"]["test"][-1]
    (asked,) = re.findall(r"urlopen\('([^']+)'", program)
    settings = load(DEPLOY / "compose" / "idgraph.toml")
    served_at = {"flow": settings.metrics.port, "metadata": urlsplit(settings.metadata.url).port}
    assert urlsplit(asked).port == served_at[name]
    with SERVERS[name](tmp_path) as url:
        assert got(url + urlsplit(asked).path)[0] == 200
