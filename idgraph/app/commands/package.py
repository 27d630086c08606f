"""`idgraph package`: code for a cluster's executors."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Annotated

import typer


def package(
    target: Annotated[Path, typer.Argument(help="File to write: .tar.gz, .tgz or .tar.")],
) -> None:
    r"""Write idgraph and its dependencies into an archive for the executors of a Spark cluster.

    Set it as `\[spark] archive`. It fits machines with this system and processor, this minor version of Python,
    and Spark of this PySpark's version. It has no configuration and no keys. Build it again after each upgrade.
    """
    from idgraph.app.package import write_archive

    size = write_archive(target)
    version = ".".join(map(str, sys.version_info[:2]))
    print(f"{target}: {size / 1e6:,.0f} MB for Python {version} on {platform.system()} {platform.machine()}")
