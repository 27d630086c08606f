"""`idgraph package`: code for a cluster's executors."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Annotated

import typer

from idgraph.app.exits import error_handler


def package(
    target: Annotated[Path, typer.Argument(help="File to write: .tar.gz, .tgz or .tar.")],
    include: Annotated[
        list[str] | None,
        typer.Option(help="A further module or package, such as that of a failure handler; may be repeated."),
    ] = None,
) -> None:
    r"""Write idgraph and all that it depends on into an archive for the executors of a Spark cluster.

    Name it as `\[spark] archive`. It is for machines of this system and processor, with Python of this minor
    version and Spark of this PySpark's version, and holds no configuration and no keys. Make it again after each
    upgrade.
    """
    with error_handler():
        from idgraph.app.package import write_archive

        size = write_archive(target, include or ())
        version = ".".join(map(str, sys.version_info[:2]))
        print(
            f"{target}: {size / 1e6:,.0f} MB for Python {version} on {platform.system()} {platform.machine()}"
        )
