"""The image's own folder, as the Dockerfile makes it: the environment is this test's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from idgraph.app.adapters.inputs import SPARK_KAFKA
from idgraph.app.java import jars
from tests.deploy.manifests import DEPLOY


def make_image(folder: Path) -> Path:
    """What is below `/opt/idgraph`."""
    shutil.copytree(DEPLOY / "image", folder)
    for script in folder.glob("*.sh"):
        script.chmod(0o755)
    (folder / "venv").symlink_to(sys.prefix)
    (folder / "work").mkdir()
    cached = jars(SPARK_KAFKA)
    shutil.copytree(cached, folder / "cache" / "idgraph" / "servers" / cached.name)
    for each in folder.rglob("*"):
        if not each.is_symlink():
            each.chmod(0o755)
    return folder


def make_broken_image(folder: Path) -> Path:
    """The same, of a flow that cannot start."""
    make_image(folder)
    entry = folder / "entrypoint.sh"
    entry.write_text(
        entry.read_text().replace("set -eu", 'set -eu\ncase "$*" in "idgraph run"*) exit 1;; esac')
    )
    return folder
