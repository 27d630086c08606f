"""Credentials that an adapter finds for itself: in the environment, else in a file."""

from __future__ import annotations

import os
from pathlib import Path

from idgraph.model.errors import ConfigError


def secret(variable: str, file: str | None) -> str | None:
    """The content of the variable, else of the file; None where there is neither. Raises ConfigError for a file that cannot
    be read."""
    if found := os.environ.get(variable):
        return found
    return None if file is None else secret_in(Path(file))


def secret_in(file: Path) -> str:
    """The content of a file. Raises ConfigError for one that cannot be read or that holds nothing: a server that is asked
    without a secret says something else, or nothing."""
    try:
        found = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {getattr(error, 'strerror', None) or type(error).__name__}") from None
    if not found:
        raise ConfigError(f"{file}: is empty; write the secret into it")
    return found
