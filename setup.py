"""What pyproject.toml cannot say: the native modules, and the examples inside of the wheel."""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from pathlib import Path
from zlib import crc32

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

MODULES = ("events", "functions", "leaves", "programs", "states")
SOURCES = sorted(Path("native").rglob("*.[ch]"))
STRICT = os.environ.get("IDGRAPH_NATIVE") == "strict"
"""A warning of the compiler is an error, and so is a module that cannot be built."""


def extension(name: str) -> Extension:
    # A module that is older than the sources of a checkout is not used: idgraph/native/__init__.py computes the same.
    digest = crc32(b"".join(file.read_bytes() for file in SOURCES))
    return Extension(
        f"idgraph.native._{name}",
        [f"native/{name}.c"],
        depends=[str(file) for file in SOURCES],
        define_macros=[("SOURCE", f"{digest}U")],
        extra_compile_args=["-std=c11", "-O3", "-g0", "-Wall", "-Wextra", *(["-Werror"] if STRICT else [])],
        optional=not STRICT,
    )


class BuildWithExamples(build_py):
    """`idgraph demo` finds the examples beside the package; in a checkout they lie at its root."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            shutil.copytree("examples", Path(self.build_lib, "idgraph", "examples"), dirs_exist_ok=True)


if shutil.which(shlex.split(sysconfig.get_config_var("CC") or "cc")[0]) is None:
    # A Python that was built elsewhere names the compiler of there.
    os.environ.setdefault("CC", "cc")

setup(ext_modules=[extension(name) for name in MODULES], cmdclass={"build_py": BuildWithExamples})
