"""What a Java server needs before it can be started: Java, and its jars."""

from __future__ import annotations

from pathlib import Path

from idgraph.app.jars.maven import JarSet, jars
from idgraph.app.java import require_java
from idgraph.model.errors import ConfigError, ServerUnavailableError


def java_and_jars(*wanted: JarSet) -> tuple[str, list[Path]]:
    """The program `java`, and the folder of each set. Raises ServerUnavailableError with what to do about it."""
    try:
        return require_java(), [jars(each) for each in wanted]
    except ConfigError as error:
        raise ServerUnavailableError(str(error)) from None
