"""Builds what is native beside `idgraph/native/__init__.py`, which uses it: `python native/build.py`.

Where they cannot be built one line on standard error says why, and the exit code is 0: everything runs
without them. `--strict` makes a warning of the compiler an error, and a failure exit code 1.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from zlib import crc32

FOLDER = Path(__file__).parent
MODULES = {
    "_events": FOLDER / "events.c",
    "_leaves": FOLDER / "leaves.c",
    "_loops": FOLDER / "loops.c",
    "_states": FOLDER / "states.c",
    "_postings": FOLDER / "postings.c",
    "_programs": FOLDER / "programs.c",
    "_functions": FOLDER / "functions.c",
}
TARGET = Path(__file__).parents[1] / "idgraph" / "native"
FLAGS = ("-std=c11", "-O3", "-Wall", "-Wextra")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strict", action="store_true", help="warnings and failures are errors")
    parser.add_argument("--into", type=Path, default=TARGET, help="folder of the built file")
    arguments = parser.parse_args()
    missing = _missing()
    more = ("-Werror",) if arguments.strict else ()
    whys = [missing] if missing else [_build(name, arguments.into, more) for name in MODULES]
    why = next(filter(None, whys), None)
    if why:
        print(f"note: the native loops are left out, everything runs without them: {why}", file=sys.stderr)
    return int(bool(why) and arguments.strict)


def _missing() -> str | None:
    """What is not there that building needs."""
    if sys.implementation.name != "cpython":
        return "they need CPython"
    linker = _linker()
    if not linker or shutil.which(linker[0]) is None:
        return "there is no C compiler"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python.h is not there (on Debian and Ubuntu: sudo apt-get install -y python3-dev)"
    return None


def _linker() -> list[str]:
    """The command that compiles and links a module of this Python."""
    command = shlex.split(sysconfig.get_config_var("LDSHARED") or "")
    # A Python that was built elsewhere may name a compiler of there.
    return command if command and shutil.which(command[0]) else ["cc", *command[1:]]


def _build(module: str, folder: Path, more: tuple[str, ...]) -> str | None:
    """Builds a module into a folder; gives why not, if not."""
    source = MODULES[module]
    name = f"{module}{sysconfig.get_config_var('EXT_SUFFIX')}"
    part = folder / f"{name}.part"
    includes = dict.fromkeys(sysconfig.get_path(name) for name in ("include", "platinclude"))
    command = [
        *_linker(),
        *shlex.split(sysconfig.get_config_var("CCSHARED") or ""),
        *FLAGS,
        *more,
        f"-DSOURCE={_digest(source)}U",
        *(f"-I{each}" for each in includes),
        str(source),
        "-o",
        str(part),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        part.unlink(missing_ok=True)
        lines = done.stderr.splitlines() or ["no reason given"]
        return next((line for line in lines if "error" in line), lines[0])
    # By rename: a process that has the old one open goes on with it.
    part.replace(folder / name)
    return None


def _digest(source: Path) -> int:
    # `idgraph/native/__init__.py` computes the same.
    parts = (*sorted(FOLDER.glob("*.h")), source, *sorted(source.with_suffix("").glob("*.h")))
    return crc32(b"".join(each.read_bytes() for each in parts))


if __name__ == "__main__":
    sys.exit(main())
