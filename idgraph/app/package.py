"""The dependencies of idgraph: as an archive for executors that have Python and Spark only, and as a command that installs it."""

from __future__ import annotations

import re
import shlex
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from idgraph.app import OURS
from idgraph.model.errors import ConfigError

OF_SPARK = frozenset({"pyspark", "py4j"})
"""Spark brings them along, in its own version."""
_EXTRA = re.compile(r"""extra == ["']([\w-]+)["']""")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def write_archive(target: Path) -> int:
    """Write the archive, whole or not at all; gives its bytes. `.tar.gz` and `.tgz` are compressed, `.tar` is not. Raises
    ConfigError for a file that cannot be written.
    """
    if not target.name.endswith((".tar", ".tar.gz", ".tgz")):
        raise ConfigError(f"{target}: Spark unpacks .tar, .tar.gz and .tgz")
    part = target.with_name(f".{target.name}.part")
    try:
        with _opened(part, compressed=not target.name.endswith(".tar")) as archive:
            for name in OURS:
                for file, place in _of_package(name):
                    archive.add(file, place, recursive=False)
            for dependency in _dependencies():
                for file, place in _of_distribution(dependency):
                    archive.add(file, place, recursive=False)
        size = part.stat().st_size
        part.replace(target)
        return size
    except OSError as error:
        raise ConfigError(f"{target}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _opened(file: Path, compressed: bool) -> tarfile.TarFile:
    return tarfile.open(file, "w:gz", compresslevel=1) if compressed else tarfile.open(file, "w")


def _of_package(name: str) -> Iterator[tuple[Path, str]]:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ConfigError(f"there is no package {name} here")
    folder = Path(spec.origin).parent
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file, f"{name}/{file.relative_to(folder).as_posix()}"


def _of_distribution(found: Distribution) -> Iterator[tuple[Path, str]]:
    for file in found.files or ():
        place = PurePosixPath(file)
        # Neither programs, which lie beside, nor their own tests, which are a fifth of it all.
        if ".." in place.parts or "tests" in place.parts:
            continue
        path = Path(str(file.locate()))
        if path.is_file():
            yield path, str(place)


def _dependencies() -> list[Distribution]:
    """All installed dependencies of idgraph, its extras included, and their dependencies in turn."""
    found: dict[str, Distribution] = {}
    waiting = ["idgraph"]
    while waiting:
        for requirement in distribution(waiting.pop()).requires or ():
            match = _NAME.match(requirement)
            name = re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""
            if name in found or name in OF_SPARK or name == "idgraph":
                continue
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:
                # A requirement for another system, or of an extra that is not installed.
                continue
            waiting.append(name)
    return [found[name] for name in sorted(found)]


def install_command(*extras: str) -> str:
    """The command that installs the requirements of these extras into this environment. It names their
    packages: `idgraph[EXTRA]` would ask the index for a package `idgraph`, which may be a stranger's."""
    try:
        known = distribution("idgraph").requires or ()
    except PackageNotFoundError:
        # In the archive of a cluster's executors.
        return shlex.join(["pip", "install", "-e", f".[{','.join(extras)}]"])
    wanted = {each.partition(";")[0].strip() for each in known if _extra(each) in extras}
    return shlex.join([sys.executable, "-m", "pip", "install", *sorted(wanted)])


def _extra(requirement: str) -> str | None:
    found = _EXTRA.search(requirement)
    return found[1] if found else None
