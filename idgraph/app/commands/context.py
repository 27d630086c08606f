"""What commands share: the configuration, read when first asked for, and options that several have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings

Why = Annotated[str, typer.Option("--reason", help="Why; kept with the change.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for scripts.")]


def settings_of(context: typer.Context) -> Settings:
    """The configuration that the command line named. Raises ConfigError."""
    from idgraph.app.settings.document import load

    given: Path | None = context.find_root().obj
    return load(given)
