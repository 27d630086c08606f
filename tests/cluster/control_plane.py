"""etcd, API server, controllers and scheduler as processes of this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.cluster.api import Api
from tests.cluster.network import API
from tests.cluster.programs import programs
from tests.support.processes import ServerUnavailableError, free_port, listening, running

URL = f"https://{API}:443"
TOKEN = "administrator"


class ControlPlane(NamedTuple):
    """A running one: its API, the file of clients' settings, and its programs."""

    api: Api
    kubeconfig: Path
    bin: Path

    def helm(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of helm, however it ends."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "HELM_CACHE_HOME": str(self.kubeconfig.parent / "helm"),
        }
        return subprocess.run(
            [str(self.bin / "helm"), *words], capture_output=True, text=True, check=False, env=environment
        )


@contextmanager
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    """It lives as long as the context; `network` is there before. Raises ServerUnavailableError."""
    if shutil.which("etcd") is None:
        raise ServerUnavailableError("there is no etcd: apt-get install etcd-server")
    bin_ = programs()
    folder.mkdir(parents=True)
    _keys(folder)
    config = folder / "kubeconfig"
    config.write_text(json.dumps(_kubeconfig()))
    api = Api(URL, TOKEN)
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    etcd = [
        "etcd",
        "--data-dir",
        str(folder / "etcd"),
        "--listen-client-urls",
        client,
        "--advertise-client-urls",
        client,
    ]
    # Nothing needs to survive this machine.
    etcd += [
        "--listen-peer-urls",
        peer,
        "--initial-advertise-peer-urls",
        peer,
        "--initial-cluster",
        f"default={peer}",
        "--unsafe-no-fsync",
    ]
    server = [
        str(bin_ / "apiserver"),
        f"--etcd-servers={client}",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--bind-address={API}",
        "--secure-port=443",
        f"--cert-dir={folder / 'certs'}",
        f"--service-account-key-file={folder / 'sa.pub'}",
        f"--service-account-signing-key-file={folder / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--endpoint-reconciler-type=none",
        # Debian's etcd is too old for it.
        "--feature-gates=WatchList=false",
    ]
    controllers = [
        str(bin_ / "controllers"),
        f"--kubeconfig={config}",
        f"--service-account-private-key-file={folder / 'sa.key'}",
        f"--root-ca-file={folder / 'certs' / 'apiserver.crt'}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--controllers=*,-nodeipam",
    ]
    scheduler = [str(bin_ / "scheduler"), f"--kubeconfig={config}", "--leader-elect=false"]
    # Small heaps, on a machine that has others.
    small = {**os.environ, "GOGC": "50"}
    with ExitStack() as stack:
        stack.callback(api.close)
        stack.enter_context(listening("etcd", etcd, folder / "etcd.log", int(client.rpartition(":")[2])))
        stack.enter_context(
            running("kube-apiserver", server, folder / "apiserver.log", api.is_ready, small, URL)
        )
        for name, command in (("controllers", controllers), ("scheduler", scheduler)):
            # Asked before it is started, and after.
            lives = iter([False, True])
            stack.enter_context(running(name, command, folder / f"{name}.log", partial(next, lives), small))
        yield ControlPlane(api, config, bin_)


def _keys(folder: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = rsa.generate_private_key(65537, 2048)
    (folder / "sa.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (folder / "sa.pub").write_bytes(public)
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n")


def _kubeconfig() -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": URL, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "admin"}}],
        "current-context": "c",
    }
