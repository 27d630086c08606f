"""The native loops are built where they can be, used when they fit, and left out when they cannot be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest

from idgraph import native

ROOT = Path(__file__).parents[2]
OTHER = "built from another source"


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != native.VARIABLE}
    return subprocess.run(
        command,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def state(folder: Path, **environment: str) -> str:
    code = "from idgraph import native; print(native.state, bool(native.loops), bool(native.programs))"
    # -S: an installation of this checkout would lend its own build to the one in the folder.
    return run(sys.executable, "-S", "-P", "-c", code, PYTHONPATH=_path(folder), **environment).stdout.strip()


def _path(folder: Path) -> str:
    return os.pathsep.join((str(folder), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))


def copy(source: Path, folder: Path, *ignored: str) -> Path:
    """What of a checkout the loops need."""
    for name in ("idgraph", "native"):
        shutil.copytree(source / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", *ignored))
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return copy(ROOT, tmp_path, "*.so")


def build(checkout: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, str(checkout / "native" / "build.py"), *words, **environment)


class Built(NamedTuple):
    """A checkout with the loops, and what the build said."""

    folder: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Built once, since it takes a compiler seconds."""
    folder = copy(ROOT, tmp_path_factory.mktemp("original"), "*.so")
    done = build(folder, "--strict")
    if "no C compiler" in done.stderr or "Python.h" in done.stderr:
        pytest.skip(done.stderr)
    return Built(folder, done)


@pytest.fixture
def built(original: Built, tmp_path: Path) -> Path:
    """A copy with the loops, to change."""
    return copy(original.folder, tmp_path)


def test_they_compile_without_a_warning_and_are_used(original: Built) -> None:
    assert (original.done.returncode, original.done.stderr) == (0, "")
    assert state(original.folder) == "in use True True"


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ("loops.c", {"loops": OTHER}),
        ("programs.c", {"mapping": OTHER}),
        ("programs/keys.h", {"mapping": OTHER}),
        ("states/reading.h", {"states": OTHER}),
    ],
)
def test_an_old_build_is_not_used(built: Path, changed: str, reported: dict[str, str]) -> None:
    with (built / "native" / changed).open("a") as source:
        source.write("\n")
    parts = dict.fromkeys(("events", "leaves", "loops", "states", "postings", "mapping"), "in use") | reported
    expected = ", ".join(f"{name} {each}" for name, each in parts.items())
    assert state(built) == f"{expected} {'loops' not in reported} {'mapping' not in reported}"


def test_without_a_compiler_one_line_says_so_and_nothing_fails(checkout: Path) -> None:
    done = build(checkout, PATH="/nowhere")
    assert done.returncode == 0
    assert done.stderr == (
        "note: the native loops are left out, everything runs without them: there is no C compiler\n"
    )
    assert state(checkout) == "not built False False"


def test_what_all_share_belongs_to_the_source_of_each(built: Path) -> None:
    with (built / "native" / "objects.h").open("a") as source:
        source.write("\n")
    assert state(built) == f"{OTHER} False False"


@pytest.mark.usefixtures("original")
def test_what_does_not_compile_is_left_out(checkout: Path) -> None:
    for path in (checkout / "native").glob("*.c"):
        path.write_text("not C\n")
    done = build(checkout)
    assert done.returncode == 0
    assert len(done.stderr.splitlines()) == 1
    assert "left out" in done.stderr
    assert "error" in done.stderr
    assert build(checkout, "--strict").returncode == 1
    assert state(checkout) == "not built False False"


def test_they_can_be_left_out() -> None:
    assert state(ROOT, **{native.VARIABLE: "off"}) == f"off ({native.VARIABLE}) False False"
