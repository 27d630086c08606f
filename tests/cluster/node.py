"""Two nodes of a cluster: what a kubelet, a proxy of services and a provisioner of volumes do there, on one machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from tests.cluster.api import Api, Object
from tests.cluster.network import API, HOST, Network
from tests.cluster.pod import PodRunner, Site, now

NODES = ("alpha", "beta")
STEP_SECONDS = 0.25
LEASE_SECONDS = 5.0
CAPACITY = {"cpu": "32", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}


class Nodes:
    """The nodes, and the pods that run there, by uid. Containers that begin have `environment` beside their own, and all of them
    the folder `marks`."""

    def __init__(self, api: Api, network: Network, folder: Path, images: dict[str, Path]) -> None:
        self.api = api
        self.running: dict[str, PodRunner] = {}
        self.environment: dict[str, str] = {}
        self.marks = folder / "marks"
        self._site = Site(api, network, folder, folder / "hosts", images, self.environment, self.marks)
        self._stopped = threading.Event()
        self._leased = 0.0
        folder.mkdir(parents=True)
        self.marks.mkdir()
        self.marks.chmod(0o777)
        self._site.hosts.write_text("127.0.0.1 localhost\n")
        for name in NODES:
            self._register(name)
        self._thread = threading.Thread(target=self._run, name="nodes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._thread.join(30)
        for each in self.running.values():
            each.vanish()
        for each in self.running.values():
            each.join()

    def pod(self, name: str) -> PodRunner:
        """The running pod whose name begins so; the newest of several."""
        found = [each for each in self.running.values() if each.name.startswith(name) and not each.is_done]
        assert found, (name, [each.name for each in self.running.values()])
        return found[-1]

    def _register(self, name: str) -> None:
        about = {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}}
        self.api.call("POST", "/api/v1/nodes", {"kind": "Node", "apiVersion": "v1", "metadata": about})
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": now(),
            "lastTransitionTime": now(),
        }
        addresses = [{"type": "InternalIP", "address": HOST}]
        status = {
            "capacity": CAPACITY,
            "allocatable": CAPACITY,
            "conditions": [ready],
            "addresses": addresses,
        }
        self.api.patch(f"/api/v1/nodes/{name}/status", {"status": status})

    def _run(self) -> None:
        while not self._stopped.wait(STEP_SECONDS):
            with suppress(httpx.HTTPError):
                self._renew()
                self._provision()
                self._follow(self.api.items("/api/v1/pods"))
                self._resolve()

    def _renew(self) -> None:
        if time.monotonic() < self._leased + LEASE_SECONDS:
            return
        self._leased = time.monotonic()
        for name in NODES:
            path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
            moment = now().replace("Z", ".000000Z")
            spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": moment}
            lease = {
                "kind": "Lease",
                "apiVersion": "coordination.k8s.io/v1",
                "metadata": {"name": name},
                "spec": spec,
            }
            if not self.api.patch(f"{path}/{name}", {"spec": spec}, but=(404,)):
                self.api.call("POST", path, lease, but=(404, 409))

    def _provision(self) -> None:
        """A volume for each claim that has none."""
        for claim in self.api.items("/api/v1/persistentvolumeclaims"):
            space, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
            if claim["status"].get("phase") == "Bound" or claim["spec"].get("volumeName"):
                continue
            spec = {
                "capacity": claim["spec"]["resources"]["requests"],
                "accessModes": claim["spec"]["accessModes"],
                "hostPath": {"path": str(self._site.folder / "claims" / space / name)},
                "claimRef": {"namespace": space, "name": name},
                "persistentVolumeReclaimPolicy": "Retain",
            }
            volume = {
                "kind": "PersistentVolume",
                "apiVersion": "v1",
                "metadata": {"name": f"{space}-{name}"},
                "spec": spec,
            }
            self.api.call("POST", "/api/v1/persistentvolumes", volume, but=(409,))

    def _resolve(self) -> None:
        """The names of services, as the hosts file that all pods share: of a ready endpoint, or of each pod of a set."""
        lines = ["127.0.0.1 localhost", f"{API} kubernetes.default.svc kubernetes.default kubernetes"]
        # Each pod knows itself by name.
        lines += [f"{each.ip} {each.name}" for each in self.running.values() if not each.is_done]
        for part in self.api.items("/apis/discovery.k8s.io/v1/endpointslices"):
            space, labels = part["metadata"]["namespace"], part["metadata"].get("labels", {})
            service = labels.get("kubernetes.io/service-name", "kubernetes")
            if service == "kubernetes":
                continue
            for endpoint in part.get("endpoints") or ():
                if not endpoint["conditions"].get("ready"):
                    continue
                for name in [
                    service,
                    *([f"{endpoint['hostname']}.{service}"] if "hostname" in endpoint else ()),
                ]:
                    lines.append(
                        f"{endpoint['addresses'][0]} {name} {name}.{space} {name}.{space}.svc {name}.{space}.svc.cluster.local"
                    )
        text = "\n".join([*lines, ""])
        if text != self._site.hosts.read_text():
            # In its place: containers have the file itself.
            with self._site.hosts.open("r+") as file:
                file.write(text)
                file.truncate()

    def _follow(self, pods: list[Object]) -> None:
        known = {each["metadata"]["uid"]: each for each in pods if each["spec"].get("nodeName") in NODES}
        for uid, pod in known.items():
            if uid not in self.running and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                self.running[uid] = PodRunner(self._site, pod)
            elif uid not in self.running:
                continue
            if "deletionTimestamp" in pod["metadata"]:
                self.running[uid].delete(pod["metadata"].get("deletionGracePeriodSeconds", 30))
        for uid, runner in list(self.running.items()):
            if uid not in known:
                runner.vanish()


@contextmanager
def nodes(api: Api, network: Network, folder: Path, images: dict[str, Path]) -> Iterator[Nodes]:
    """Two nodes that run pods of these images, as long as the context lives."""
    made = Nodes(api, network, folder, images)
    try:
        yield made
    finally:
        made.close()
