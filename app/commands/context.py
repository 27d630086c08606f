"""What every command gets: the configuration, read when first asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from app.settings import Settings


def settings_of(context: typer.Context) -> Settings:
    """The configuration that the command line named. Raises ConfigError."""
    from app.settings import load

    given: Path | None = context.find_root().obj
    return load(given)
