"""The content of a built wheel is enough, in a folder that has nothing else. It takes the tests' own dependencies:
those of the lock file are 400 MB."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from idgraph import native

pytestmark = pytest.mark.long


ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import app, model, idgraph
from idgraph import native
print(model.MINE, app.MINE, idgraph.__version__, native.state, sep=",")
"""


def run(*command: str | Path, folder: Path = ROOT) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that has the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    run("git", "clone", "-q", ROOT, source)
    build = (sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps")
    run(*build, "-w", folder / "dist", source, folder=folder)
    (wheel,) = (folder / "dist").glob("idgraph-*.whl")
    run(sys.executable, "-m", "venv", folder / "venv")
    run(folder / "venv" / "bin" / "pip", "install", "-q", "--no-deps", "--no-index", wheel)
    (site,) = (folder / "venv").glob("lib/python3*/site-packages")
    # A path alone: the .pth file of this checkout's own installation does not count there.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "venv" / "bin"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A folder with a program that has modules of its own."""
    (tmp_path / "model.py").write_text("MINE = 1\n")
    (tmp_path / "app.py").write_text("MINE = 2\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def test_a_script_beside_its_own_modules_runs_with_native_code(installed: Path, empty: Path) -> None:
    expected = "in use" if native.built_states is not None else "not built"
    assert run(installed / "python", "script.py", folder=empty) == f"1,2,0.1.0,{expected}\n"


def test_the_demo_runs_in_an_empty_folder(installed: Path, empty: Path) -> None:
    shown = run(installed / "idgraph", "demo", folder=empty)
    assert "user_id:3474 has activity.library.version" in shown
    found = run(
        installed / "idgraph", "-c", ".idgraph/demo-retail/idgraph.toml", "search", "guitar", folder=empty
    )
    assert "guitar" in found.lower()
