"""Checks of the image without building it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from idgraph.app.java import JarSet
from tests.support.kafka import KAFKA
from tests.support.stores import DYNAMODB_LOCAL, NODE

pytestmark = pytest.mark.long


ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def test_the_image_has_what_is_tested_with_all_extras_by_hash() -> None:
    locked = pinned(DEPLOY / "requirements.lock")
    assert locked.items() <= pinned(ROOT / "requirements-dev.lock").items()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = {re.split(r"[\[<>=]", each)[0] for extra in extras.values() for each in extra}
    assert needed <= {line.split("==")[0] for line in locked}


def test_the_image_is_built_in_two_stages_from_one_digest_and_ends_without_a_compiler() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.search(r"^ARG PYTHON_IMAGE=python:\S+@sha256:[0-9a-f]{64}$", text, re.MULTILINE)
    first, last = re.split(r"^FROM \$\{PYTHON_IMAGE\}", text, flags=re.MULTILINE)[1:]
    assert re.search(r"\bgcc\b", first)
    assert not re.search(r"\bgcc\b|libc6-dev", last)
    copied = [line.split()[1:-1] for line in first.splitlines() if line.startswith("COPY")]
    for file in (file for files in copied for file in files if not file.startswith("--")):
        assert (ROOT / file).exists(), file
    (user,) = re.findall(r"^USER (\d+)$", last, re.MULTILINE)
    assert int(user) > 0
    assert all((DEPLOY / "image" / name).exists() for name in re.findall(r"/opt/idgraph/(\w+\.sh)", last))


def pinned(lock: Path) -> dict[str, str]:
    """The hashes by name and version."""
    entries = re.split(r"^(?=[a-z])", lock.read_text(), flags=re.MULTILINE)
    return {
        entry.split(None, 1)[0]: " ".join(re.findall(r"--hash=(\S+)", entry))
        for entry in entries
        if entry.strip()
    }


@pytest.mark.parametrize(
    ("name", "jars"), [("elasticsearch", NODE), ("kafka", KAFKA), ("dynamodb-local", DYNAMODB_LOCAL)]
)
def test_servers_are_of_the_versions_that_are_tested(name: str, jars: JarSet) -> None:
    composed = (DEPLOY / "compose" / "compose.yaml").read_text()
    versions = set(re.findall(rf"image: \S+/{name}:(\S+)", composed))
    assert versions == {jars.name.rpartition("-")[2]}
