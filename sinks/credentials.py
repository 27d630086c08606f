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
    if file is None:
        return None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {getattr(error, 'strerror', None) or type(error).__name__}") from None
