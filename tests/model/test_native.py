"""The native modules are built where there is a compiler, used if they match their sources, and left out elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from idgraph import native

ROOT = Path(__file__).parents[2]
OTHER = "built from another source"


def run(*command: str, environment: dict[str, str], folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != native.VARIABLE}
    return subprocess.run(
        command,
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def state(folder: Path, **environment: str) -> str:
    code = "from idgraph import native; print(native.state, bool(native.states), bool(native.programs))"
    # -S: an installation of this checkout would lend its own build to the one in the folder.
    return run(
        sys.executable, "-S", "-P", "-c", code, environment=environment | {"PYTHONPATH": _path(folder)}
    ).stdout.strip()


def _path(folder: Path) -> str:
    return os.pathsep.join((str(folder), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))


def copy(source: Path, folder: Path, *ignored: str) -> Path:
    """The parts of a checkout that a build of the native modules needs."""
    for name in ("idgraph", "native"):
        shutil.copytree(source / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", *ignored))
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(source / name, folder)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return copy(ROOT, tmp_path, "*.so")


def build(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    words = ("setup.py", "-q", "build_ext", "--inplace", "--parallel", "2")
    return run(sys.executable, *words, environment=environment, folder=checkout)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the modules, built once, since it takes a compiler seconds."""
    if shutil.which("cc") is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("there is no C compiler, or no Python.h")
    folder = copy(ROOT, tmp_path_factory.mktemp("original"), "*.so")
    done = build(folder, **{native.VARIABLE: "strict"})
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def built(original: Path, tmp_path: Path) -> Path:
    """A copy with the modules, to change."""
    return copy(original, tmp_path)


@pytest.mark.long
def test_they_compile_without_a_warning_and_are_used(original: Path) -> None:
    assert state(original) == "in use True True"


@pytest.mark.parametrize("changed", ["states.c", "programs/keys.h", "objects.h"])
def test_an_old_build_is_not_used(built: Path, changed: str) -> None:
    with (built / "native" / changed).open("a") as source:
        source.write("\n")
    assert state(built) == f"{OTHER} False False"


def test_without_a_compiler_nothing_fails(checkout: Path) -> None:
    done = build(checkout, PATH="/nowhere", CC="cc")
    assert done.returncode == 0, done.stderr
    assert "failed" in done.stdout + done.stderr
    assert state(checkout) == "not built False False"


@pytest.mark.long
@pytest.mark.usefixtures("original")
def test_what_does_not_compile_is_left_out(checkout: Path) -> None:
    (checkout / "native" / "states.c").write_text("not C\n")
    assert build(checkout).returncode == 0
    assert state(checkout) == "not built False False"
    assert build(checkout, **{native.VARIABLE: "strict"}).returncode != 0


def test_they_can_be_left_out() -> None:
    assert state(ROOT, **{native.VARIABLE: "off"}) == f"off ({native.VARIABLE}) False False"
