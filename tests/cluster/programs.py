"""The programs of a control plane, and helm, out of public Go modules.

The first build takes ten minutes and 20 minutes of processor time, and 350 MB in the user's cache; then they are there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from idgraph.files import file_lock
from tests.support.processes import ServerUnavailableError

KUBERNETES = "1.34.4"
HELM = "4.0.5"
COMMANDS = {
    "apiserver": ("kube-apiserver", "NewAPIServerCommand"),
    "controllers": ("kube-controller-manager", "NewControllerManagerCommand"),
    "scheduler": ("kube-scheduler", "NewSchedulerCommand"),
}
SERVED = "TEST_CLUSTER_PROGRAMS"
"""A folder that has them already."""


def programs() -> Path:
    """The folder of `apiserver`, `controllers`, `scheduler` and `helm`. Raises ServerUnavailableError."""
    if stated := os.environ.get(SERVED):
        return Path(stated)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "idgraph"
    folder = cache / f"kubernetes-{KUBERNETES}-helm-{HELM}"
    cache.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_suffix(".lock")):
        if not (folder / "bin" / "helm").exists():
            _build(folder)
    return folder / "bin"


def _build(folder: Path) -> None:
    if shutil.which("go") is None:
        raise ServerUnavailableError("the control plane is built from Go modules, and go is not on the path")
    folder.mkdir(exist_ok=True)
    release = json.loads(_go(folder, "mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"))
    stated = Path(release["GoMod"]).read_text()
    version = re.search(r"^go (\S+)", stated, re.MULTILINE)
    assert version
    # Its own parts are in its repository; those that are published beside it are the same.
    parts = sorted(set(re.findall(r"^\s+(k8s\.io/\S+) => \./staging", stated, re.MULTILINE)))
    replaced = "".join(f"\t{part} => {part} v0.{KUBERNETES.partition('.')[2]}\n" for part in parts)
    (folder / "go.mod").write_text(
        f"module controlplane\n\ngo {version[1]}\n\n"
        f"require k8s.io/kubernetes v{KUBERNETES}\n\nrequire helm.sh/helm/v4 v{HELM}\n\nreplace (\n{replaced})\n"
    )
    for name, (command, maker) in COMMANDS.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "main.go").write_text(
            'package main\n\nimport (\n\t"os"\n\n\t"k8s.io/component-base/cli"\n'
            f'\t"k8s.io/kubernetes/cmd/{command}/app"\n)\n\n'
            f"func main() {{ os.Exit(cli.Run(app.{maker}())) }}\n"
        )
    (folder / "tools.go").write_text(
        '//go:build tools\n\npackage tools\n\nimport _ "helm.sh/helm/v4/cmd/helm"\n'
    )
    _go(folder, "mod", "tidy")
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"
    _go(
        folder,
        "build",
        "-ldflags",
        flags,
        "-o",
        "bin/",
        *(f"./{name}" for name in COMMANDS),
        "helm.sh/helm/v4/cmd/helm",
    )


def _go(folder: Path, *words: str) -> str:
    done = subprocess.run(["go", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServerUnavailableError(f"go {words[0]} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout
