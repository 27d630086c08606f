"""A cluster with idgraph on it: the servers beside it, the control plane, two nodes, and a release of the chart."""

from __future__ import annotations

import base64
import json
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from benchmarks.topics import make_topics
from sinks.keyring.provider import KeyringFile
from tests.cluster.control_plane import ControlPlane, control_plane
from tests.cluster.image import make_broken_image, make_image
from tests.cluster.network import HOST, network
from tests.cluster.node import Nodes, nodes
from tests.deploy.manifests import CHART
from tests.support.kafka import kafka
from tests.support.stores import dynamodb, elasticsearch

SPACE = "idgraph"
REPOSITORY = "registry.example.com/idgraph"
GOOD, BETTER, BROKEN = "0.1.0", "0.1.1", "0.2.0"
"""Tags: of the same content, and one whose flow cannot start."""

PARTITIONS = 2
BATCH_OFFSETS = 100
TIMEOUT = "6m"
PATIENCE = 240
"""Seconds."""

RESOURCES = {"requests": {"cpu": "100m", "memory": "256Mi"}}


class Cluster:
    """The running one. `values` are those of the next release."""

    def __init__(
        self, plane: ControlPlane, running: Nodes, folder: Path, values: dict[str, Any], brokers: str
    ) -> None:
        self.plane = plane
        self.api = plane.api
        self.nodes = running
        self.folder = folder
        self.values = values
        self.brokers = brokers

    def release(self, *words: str, timeout: str = TIMEOUT) -> tuple[int, str]:
        """Install or upgrade to the values, and wait; the exit code of helm and its words."""
        file = self.folder / "values.json"
        file.write_text(json.dumps(self.values))
        command = [
            "upgrade",
            "--install",
            "idgraph",
            str(CHART),
            "-n",
            SPACE,
            "-f",
            str(file),
            "--wait",
            "--timeout",
            timeout,
        ]
        done = self.plane.helm(*command, *words)
        return done.returncode, done.stdout + done.stderr

    def describe(self) -> str:
        """The pods and what they printed last, for a message."""
        lines = []
        for each in self.nodes.running.values():
            if not each.is_done:
                states = {
                    part.name: part.status()["state"] | {"ready": part.is_ready}
                    for part in (*each.init, *each.containers)
                }
                lines.append(f"{each.name}: {states}")
                lines += [
                    f"--- {part.name}\n{each.log(part.name)[-1500:]}"
                    for part in (*each.init, *each.containers)
                ]
        return "\n".join(lines)

    def pods(self, component: str) -> list[dict[str, Any]]:
        return self.api.items(
            f"/api/v1/namespaces/{SPACE}/pods", labelSelector=f"app.kubernetes.io/component={component}"
        )

    def ready(self, component: str) -> list[dict[str, Any]]:
        return [
            each
            for each in self.pods(component)
            if "deletionTimestamp" not in each["metadata"]
            and any(
                one["type"] == "Ready" and one["status"] == "True"
                for one in each["status"].get("conditions", ())
            )
        ]

    def is_whole(self, component: str) -> bool:
        return len(self.ready(component)) == len(self.pods(component)) > 0

    def is_paused(self, flow: str) -> bool:
        ip = self.nodes.pod(f"idgraph-flow-{flow}-").ip
        return bool(httpx.get(f"http://{ip}:9410/health/ready").json()["paused"])

    def admin(self, *words: str) -> str:
        """What a command prints beside the metadata service, as its first admin."""
        return self.nodes.pod("idgraph-metadata").command("metadata", *words).stdout

    def operator(self, *words: str) -> str:
        """What a command prints where profiles and keyring are, by the first admin's token."""
        token = f"IDGRAPH_METADATA__TOKEN={self.admin('cat', '/var/lib/idgraph/state/admin.token').strip()}"
        return self.nodes.pod("idgraph-profiles").command("profiles", "env", token, *words).stdout

    def until(self, is_so: Callable[[], Any], what: str) -> Any:
        """What it gives as soon as it is true."""
        deadline = time.monotonic() + PATIENCE
        while not (found := is_so()):
            assert time.monotonic() < deadline, f"{what}\n{self.describe()}"
            time.sleep(0.5)
        return found


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """All but the release. Raises ServerUnavailableError for what this machine does not have."""
    with ExitStack() as stack:
        net = stack.enter_context(network())
        plane = stack.enter_context(control_plane(folder / "control-plane"))
        tables = stack.enter_context(dynamodb(folder / "dynamodb"))
        index = stack.enter_context(elasticsearch(folder / "elasticsearch"))
        broker = stack.enter_context(kafka(folder / "kafka", host=HOST))
        make_topics(broker.bootstrap_servers, ["segment", "orders"], PARTITIONS)
        images = {
            f"{REPOSITORY}:{GOOD}": make_image(folder / "image"),
            f"{REPOSITORY}:{BETTER}": folder / "image",
            f"{REPOSITORY}:{BROKEN}": make_broken_image(folder / "broken-image"),
        }
        urls = [stack.enter_context(_reached(each.url)) for each in (tables, index)]
        running = stack.enter_context(nodes(plane.api, net, folder / "nodes", images))
        _prepare(plane, folder)
        yield Cluster(
            plane, running, folder, _values(broker.bootstrap_servers, *urls), broker.bootstrap_servers
        )


def _values(brokers: str, tables: str, index: str) -> dict[str, Any]:
    key = "test"
    return {
        "image": {"repository": REPOSITORY, "tag": GOOD},
        "settings": {
            # Small micro-batches: a backlog has several.
            "kafka": {
                "bootstrap_servers": brokers,
                "max_offsets_per_batch": BATCH_OFFSETS,
                "min_offsets_per_batch": BATCH_OFFSETS,
            },
            "store": {"kind": "dynamodb", "region": "eu-central-1", "endpoint": tables},
            "index": {
                "kind": "elasticsearch",
                "url": index,
                "replicas": 0,
                "api_key_file": None,
                "ca_file": None,
            },
        },
        "secrets": {"elasticsearch": ""},
        "flows": {
            "shop": {
                "sources": [
                    {"name": "segment", "kind": "kafka", "topics": ["segment"], "type": {"path": "type"}}
                ]
            }
        },
        "flowDefaults": {
            "executors": {"count": 1, "cores": 2, "memory": "512m", "memoryOverhead": "512m"},
            "driverMemory": "512m",
            "resources": RESOURCES,
        },
        "tokens": {"everySeconds": 2},
        "backup": {"schedule": "7 4 * * *"},
        "profiles": {"replicas": 2},
        "env": [{"name": name, "value": key} for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")],
    }


@contextmanager
def _reached(url: str) -> Iterator[str]:
    """The URL at which pods reach a server on this machine's loopback."""
    port = int(url.rpartition(":")[2])

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as inner:
                back = threading.Thread(target=_copy, args=(inner, self.request), daemon=True)
                back.start()
                _copy(self.request, inner)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server((HOST, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{HOST}:{server.server_address[1]}"
        server.shutdown()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


def _prepare(plane: ControlPlane, folder: Path) -> None:
    """The namespace and the secrets that the chart expects."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    plane.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE, "labels": labels}})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims"
    plane.api.call("POST", claims, {"metadata": {"name": "idgraph-backup"}, "spec": claim})
    KeyringFile.create(folder / "keyring.json")
    authority = _Authority()
    secrets = {"idgraph-keys": {"keyring.json": (folder / "keyring.json").read_bytes()}}
    for service in ("metadata", "profiles"):
        secrets[f"idgraph-{service}-tls"] = authority.files(f"idgraph-{service}")
    for name, files in secrets.items():
        data = {key: base64.b64encode(content).decode() for key, content in files.items()}
        plane.api.call(
            "POST", f"/api/v1/namespaces/{SPACE}/secrets", {"metadata": {"name": name}, "data": data}
        )


class _Authority:
    """Signs the services' certificates."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        self._own = self._signed(
            self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=None)
        )

    def files(self, name: str) -> dict[str, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName(
            [x509.DNSName(each) for each in (name, f"{name}.{SPACE}.svc", "localhost")]
        )
        certificate = self._signed(subject, key.public_key(), names)
        return {
            "tls.crt": certificate.public_bytes(Encoding.PEM),
            "tls.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "ca.crt": self._own.public_bytes(Encoding.PEM),
        }

    def _signed(self, subject: x509.Name, key: Any, extension: x509.ExtensionType) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number()).add_extension(extension, critical=False)
        moments = now - timedelta(hours=1), now + timedelta(days=1)
        return builder.not_valid_before(moments[0]).not_valid_after(moments[1]).sign(self._key, SHA256())
