"""Shared by commands: the configuration and common options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from idgraph.app.wiring import local_user
from idgraph.model.jobs import Requester

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings

Why = Annotated[str, typer.Option("--reason", help="Reason; stored with the change.")]
JobWho = Annotated[str, typer.Option("--who", help="Who asks for it. Default: the user of this machine.")]
JobWhy = Annotated[str, typer.Option("--why", help="Why; kept with the job.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for scripts.")]


def settings_of(context: typer.Context) -> Settings:
    """The configuration that the command line named. Raises ConfigError."""
    from idgraph.app.settings.document import load

    given: Path | None = context.find_root().obj
    return load(given)


def origin_of(who: str, why: str) -> Requester:
    """The person who starts a job, and the reason."""
    return Requester(who or local_user(), why)
