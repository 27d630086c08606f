"""What every command gets: the configuration, read when first asked for."""

from __future__ import annotations

from pathlib import Path

import typer

from app.settings import Settings, load


def settings_of(context: typer.Context) -> Settings:
    """The configuration that the command line named. Raises ConfigError."""
    given: Path | None = context.find_root().obj
    return load(given)
