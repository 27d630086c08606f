"""One pod: its init containers in turn, then its containers, watched by their probes, until it is deleted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.cluster import container
from tests.cluster.api import Api, Object, path_of
from tests.cluster.network import HOST, Network
from tests.cluster.volumes import Volumes, field

STEP_SECONDS = 0.2
REFRESH_SECONDS = 2.0
"""Until a changed secret is in its volume."""
MOST_BACKOFF_SECONDS = 8.0

IMAGE_ENVIRONMENT = {
    "PATH": "/opt/idgraph/venv/bin:/usr/local/bin:/usr/bin:/bin",
    "XDG_CACHE_HOME": "/opt/idgraph/cache",
    "PYTHONUNBUFFERED": "1",
    "HOME": "/home/idgraph",
    "KUBERNETES_SERVICE_HOST": "kubernetes.default.svc",
    "KUBERNETES_SERVICE_PORT": "443",
}
MARKS = Path("/var/marks")
ENTRYPOINT = ["/opt/idgraph/entrypoint.sh"]


class Site(NamedTuple):
    """What the pods of a node share."""

    api: Api
    network: Network
    folder: Path
    hosts: Path
    images: dict[str, Path]
    environment: dict[str, str]
    """More of it, for processes that begin from now on."""
    marks: Path
    """A folder that all containers have, at `MARKS`."""


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Container:
    """One container of a pod: its process, how often it began again, and what its probes say."""

    def __init__(self, spec: Object, is_init: bool) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.is_init = is_init
        self.process: subprocess.Popen[bytes] | None = None
        self.code: int | None = None
        self.restarts = 0
        self.begun = self.again = 0.0
        self.waiting = "PodInitializing"
        self.is_started = self.is_ready = False
        self._asked: dict[str, float] = {}
        self._failed: dict[str, int] = {}

    @property
    def is_running(self) -> bool:
        return self.process is not None

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        self.process, self.code, self.begun = process, None, time.monotonic()
        self.is_started = "startupProbe" not in self.spec
        self.is_ready = False
        self._asked, self._failed = {}, {}

    def look(self) -> bool:
        """Whether its process has ended since the last look."""
        if self.process is None or (code := self.process.poll()) is None:
            return False
        self.process, self.code, self.is_ready, self.is_started = None, code, False, False
        lived = time.monotonic() - self.begun
        self.again = time.monotonic() + (min(MOST_BACKOFF_SECONDS, 2.0**self.restarts) if lived < 60 else 1)
        return True

    def probe(self, ip: str) -> None:
        """Ask what is due. A failed liveness or startup probe ends the process."""
        if not self.is_started:
            self._ask("startupProbe", ip)
            return
        if "readinessProbe" not in self.spec:
            self.is_ready = True
        else:
            self._ask("readinessProbe", ip)
        self._ask("livenessProbe", ip)

    def _ask(self, kind: str, ip: str) -> None:
        probe = self.spec.get(kind)
        if probe is None or time.monotonic() < self._asked.get(kind, 0):
            return
        self._asked[kind] = time.monotonic() + probe.get("periodSeconds", 10)
        if self._is_good(probe, ip):
            self._failed[kind] = 0
            self.is_started = True
            self.is_ready = self.is_ready or kind == "readinessProbe"
            return
        self._failed[kind] = self._failed.get(kind, 0) + 1
        if self._failed[kind] >= probe.get("failureThreshold", 3):
            if kind == "readinessProbe":
                self.is_ready = False
            else:
                self.signal(signal.SIGKILL)

    def _is_good(self, probe: Object, ip: str) -> bool:
        about = probe["httpGet"]
        ports = {port.get("name"): port["containerPort"] for port in self.spec.get("ports", ())}
        url = f"{about.get('scheme', 'HTTP').lower()}://{ip}:{ports.get(about['port'], about['port'])}{about['path']}"
        try:
            answer = httpx.get(url, verify=False, timeout=probe.get("timeoutSeconds", 1))
        except httpx.HTTPError:
            return False
        return answer.is_success

    def signal(self, number: int) -> None:
        """To the container's first process."""
        if self.process is None:
            return
        with suppress(OSError, ValueError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            for child in children:
                os.kill(int(child), number)

    def status(self) -> Object:
        if self.process is not None:
            state: Object = {"running": {"startedAt": now()}}
        elif self.code is not None:
            state = {"terminated": {"exitCode": self.code, "reason": "Error" if self.code else "Completed"}}
        else:
            state = {"waiting": {"reason": self.waiting}}
        image = self.spec["image"]
        is_done = self.is_init and self.code == 0
        return {
            "name": self.name,
            "image": image,
            "imageID": image,
            "restartCount": self.restarts,
            "ready": is_done or self.is_ready,
            "started": self.is_started,
            "state": state,
        }


class PodRunner:
    """Runs one pod on a thread of its own, from its binding to its end."""

    def __init__(self, site: Site, pod: Object) -> None:
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.name: str = pod["metadata"]["name"]
        self._site = site
        self._folder = site.folder / "pods" / f"{self.name}-{self.uid[:8]}"
        self._volumes = Volumes(site.api, pod, self._folder / "volumes", site.folder / "claims")
        self._address = site.network.add()
        self.ip = self._address.ip
        spec = pod["spec"]
        self.init = [Container(each, True) for each in spec.get("initContainers", ())]
        self.containers = [Container(each, False) for each in spec["containers"]]
        self._policy = spec.get("restartPolicy", "Always")
        self._reported: Object = {}
        self._since: dict[str, tuple[str, str]] = {}
        self._begun = now()
        self._deleted: float | None = None
        self._gone = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pod {self.name}", daemon=True)
        self._thread.start()

    def delete(self, grace: float) -> None:
        """As the API server asks: end in order, within so many seconds."""
        if self._deleted is None:
            self._deleted = time.monotonic() + grace

    def vanish(self) -> None:
        """It is no longer in the API: end at once."""
        self._gone.set()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(30)

    def command(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a container, as `kubectl exec` does; asserts that it ends well."""
        (of,) = [each for each in self.containers if each.name == name]
        done = subprocess.run(
            self._command_line(of, list(words), f"{name}-command"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-4000:])
        return done

    def log(self, name: str) -> str:
        """What a container has printed, over its restarts."""
        file = self._folder / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def _run(self) -> None:
        try:
            while not self._step():
                self._gone.wait(STEP_SECONDS)
        finally:
            for each in (*self.init, *self.containers):
                each.signal(signal.SIGKILL)
                if each.process:
                    each.process.wait(20)
            self._site.network.remove(self._address)
            shutil.rmtree(self._folder / "volumes", ignore_errors=True)
            if self._deleted is not None and not self._gone.is_set():
                with suppress(httpx.HTTPError):
                    self._site.api.delete(
                        path_of(self.pod), gracePeriodSeconds=0, preconditions={"uid": self.uid}
                    )

    def _step(self) -> bool:
        """One look at everything; whether the pod is at its end."""
        if self._gone.is_set():
            return True
        for each in (*self.init, *self.containers):
            each.look()
        if self._deleted is not None:
            return self._end()
        with suppress(httpx.HTTPError):
            if self._phase() in ("Pending", "Running"):
                self._go_on()
            self._report()
        return False

    def _go_on(self) -> None:
        if self._missing():
            return
        for each in self.init:
            if each.code == 0:
                continue
            self._keep(each)
            return
        for each in self.containers:
            self._keep(each)
            if each.is_running:
                each.probe(self.ip)

    _refreshed = 0.0

    def _missing(self) -> str | None:
        if time.monotonic() < self._refreshed + REFRESH_SECONDS and self._refreshed:
            return None
        reason = self._volumes.make()
        if reason is None:
            self._refreshed = time.monotonic()
        return reason

    def _keep(self, each: Container) -> None:
        """Begin it, or begin it again when that is due."""
        if each.is_running or time.monotonic() < each.again:
            return
        if each.code is not None:
            if self._policy == "Never" or (each.code == 0 and self._policy == "OnFailure"):
                return
            each.restarts += 1
        if each.spec["image"] not in self._site.images:
            each.waiting = "ErrImagePull"
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        stated = each.spec.get("command") or ENTRYPOINT
        with (self._folder / f"{each.name}.log").open("ab") as log:
            command = self._command_line(each, [*stated, *each.spec.get("args", ())], each.name)
            each.begin(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            )

    def _command_line(self, each: Container, command: list[str], name: str) -> list[str]:
        root = self._folder / f"{name}-root"
        root.mkdir(parents=True, exist_ok=True)
        mounts = []
        for mount in each.spec.get("volumeMounts", ()):
            source = self._volumes.place(mount["name"]) / mount.get("subPath", "")
            if not source.exists():
                source.mkdir(parents=True)
                shutil.copystat(source.parent, source)
                os.chown(source, 0, source.parent.stat().st_gid)
            mounts.append((mount["mountPath"], str(source), mount.get("readOnly", False)))
        mounts.append((str(MARKS), str(self._site.marks), False))
        spec = {
            "root": str(root),
            "image": str(self._site.images[each.spec["image"]]),
            "hosts": str(self._site.hosts),
            "hostname": self.name[:63],
            "mounts": mounts,
            "is_read_only": each.spec.get("securityContext", {}).get("readOnlyRootFilesystem", False),
            "folder": each.spec.get("workingDir", "/"),
            "command": command,
            "environment": IMAGE_ENVIRONMENT | self._site.environment | self._environment(each.spec),
        }
        file = self._folder / f"{name}.json"
        file.write_text(json.dumps(spec))
        inside = [
            "nsenter",
            f"--net=/run/netns/{self._address.namespace}",
            "unshare",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
        ]
        return [
            *inside,
            "--kill-child=KILL",
            "--propagation=private",
            sys.executable,
            "-S",
            container.__file__,
            str(file),
        ]

    def _environment(self, spec: Object) -> dict[str, str]:
        now_ = {**self.pod, "status": {"podIP": self.ip, "hostIP": HOST}}
        found = {}
        for each in spec.get("env", ()):
            of = each.get("valueFrom", {}).get("fieldRef")
            found[each["name"]] = field(now_, of["fieldPath"]) if of else each.get("value", "")
        return found

    def _end(self) -> bool:
        """Ask all to end, then make them; whether all have."""
        assert self._deleted is not None
        for each in (*self.init, *self.containers):
            if each.is_running and not getattr(each, "is_asked", False):
                each.is_asked = True  # type: ignore[attr-defined]
                hook = each.spec.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
                if hook:
                    subprocess.run(
                        self._command_line(each, hook, f"{each.name}-stop"), check=False, capture_output=True
                    )
                each.signal(signal.SIGTERM)
            elif time.monotonic() > self._deleted:
                each.signal(signal.SIGKILL)
            each.is_ready = False
        with suppress(httpx.HTTPError):
            self._report()
        return not any(each.is_running for each in (*self.init, *self.containers))

    def _phase(self) -> str:
        ended = [each for each in self.containers if each.code is not None and not each.is_running]
        if len(ended) == len(self.containers) and self._policy != "Always":
            if all(each.code == 0 for each in ended):
                return "Succeeded"
            if self._policy == "Never":
                return "Failed"
        if self._policy == "Never" and any(each.code for each in self.init):
            return "Failed"
        return (
            "Running"
            if any(each.is_running or each.code is not None for each in self.containers)
            else "Pending"
        )

    def _report(self) -> None:
        is_initialized = all(each.code == 0 for each in self.init)
        is_ready = self._deleted is None and all(each.is_ready for each in self.containers)
        conditions = {
            "PodScheduled": True,
            "Initialized": is_initialized,
            "ContainersReady": is_ready,
            "Ready": is_ready,
        }
        for kind, value in conditions.items():
            if self._since.get(kind, ("", ""))[0] != str(value):
                self._since[kind] = str(value), now()
        status = {
            "phase": self._phase(),
            "hostIP": HOST,
            "podIP": self.ip,
            "podIPs": [{"ip": self.ip}],
            "startTime": self._begun,
            "conditions": [
                {"type": kind, "status": value, "lastTransitionTime": at}
                for kind, (value, at) in self._since.items()
            ],
            "initContainerStatuses": [each.status() for each in self.init],
            "containerStatuses": [each.status() for each in self.containers],
        }
        # Its moment says nothing new.
        compared = json.loads(json.dumps(status))
        for each in (*compared["initContainerStatuses"], *compared["containerStatuses"]):
            each["state"].get("running", {}).pop("startedAt", None)
        if compared != self._reported:
            self._site.api.patch(
                f"{path_of(self.pod)}/status",
                {"status": status, "metadata": {"uid": self.uid}},
                but=(404, 409),
            )
            self._reported = compared
